"""Messages of the programs: a count and its noun agree."""

from __future__ import annotations

import re
from pathlib import Path

from testbed.messages import messages, rust_texts

#: Nouns that are counted in messages. Units such as bytes and seconds, whose plural always fits, are not among them.
NOUNS = (
    *("accelerations", "addresses", "bids", "clouds", "connections", "copies", "destinations", "entries", "files"),
    *("fleets", "flows", "gateways", "hosts", "instances", "jobs", "keys", "lines", "links", "machines", "names"),
    *("objects", "packets", "parts", "places", "plans", "processes", "proxies", "regions", "requests", "retries"),
    *("routes", "rows", "rules", "runs", "segments", "servers", "slices", "sources", "stores", "tenants", "tokens"),
    *("users", "versions"),
)
#: A number in braces before a plural. Constants in capitals are limits, and no limit is 1.
COUNTED = re.compile(
    rf"\{{(?P<number>[^{{}}]*)\}} (?:(?:more|earlier|old|new|warm|usable) )?(?:{'|'.join(NOUNS)})\b(?! (?:of|and) \{{)"
)
#: Numbers with their noun, and words that are not numbers.
NOT_A_COUNT = re.compile(
    r"format_|counted|[A-Z]{3}|\bnumber\b|^(word|url|flag|region|offer|options\[0\]|state\.id|args\.url|variable|path|context)$"
    r"|^folder\.name$|^machine\.name$|removeprefix|'cost'"
)
#: Messages whose number is never 1, by their beginning.
NEVER_ONE = (
    "this machine; to {copied_by_store} of {destinations} destinations",  # Of several destinations only some.
    "only the first {ADDRESSES_MAX} of {len(addresses)} addresses",
    "{len(starts)} sources",
    "{len(living)} accelerations are running",
    "{len(plans)} plans, one per destination",
    "{len(bids)} bids are more than",
    "{source} → {len(destinations)} destinations",
    "{source}: {len(names)} regions, at most",
    "{sum((m.count for m in here))} machines",
    "{format_volume(self.volume_gb)} to {len(self.destinations)} destinations",
    "{len(self.regions)} regions at once",
    "{flag} was given {len(content)} times for {len(places)} places",
    "{place} must have one number for each of the {count} regions",
    "5. Compared without Tradewind, byte by byte: all {len(sample.names)} files",
    "2. Sky: {len(REGIONS)} regions",
    "by a CA made for this run. {len(job.gateways)} processes",
    "{self.progress.objects_done}/{self.progress.objects_total} objects",
    "{progress.objects_done}/{least}{progress.objects_total} objects",
    "a list of at most {most} entries",  # A limit, none of which is 1.
    "{path or 'the document'} has {len(found)} entries, not {count}",  # Names the numbers of a document's format.
    "{pool[0]}: links need the connections of",  # A sum of fractions.
    "{'cost'} {'rate'} machines",  # The heading of a table.
    "credentials of {} stores",  # More than the limit, as the next ones.
    "connections_max is {}, but this process may open",
    "the request has {} keys, but the store allows",
    "{} machines are not between 1 and",
)


def test_a_count_and_its_noun_agree() -> None:
    left = []
    for message in messages():
        if message.text.startswith(NEVER_ONE) or message.path.endswith(("cli/main.py", "file/walk.rs")):
            continue
        left += [
            f"{message.path}:{message.line}: {found[0]}"
            for found in COUNTED.finditer(message.text)
            if not NOT_A_COUNT.search(found["number"])
        ]
    assert not left, "write format_count (Python) or counted (Rust), or say why it is never 1:\n" + "\n".join(left)


def test_the_check_finds_a_plural() -> None:
    for text in ("{len(routes)} routes by hand", "{} machines ended", "{a} of {b} objects", "{n} earlier lines"):
        assert COUNTED.search(text), text
    for text in ("{format_count(n, 'route')} by hand", "at most {MACHINES_MAX} machines", "{n} bytes"):
        found = COUNTED.search(text)
        assert found is None or NOT_A_COUNT.search(found["number"]), text


def test_no_text_of_rust_is_hidden_by_another_literal_or_by_a_test(tmp_path: Path) -> None:
    source = tmp_path / "lib.rs"
    source.write_text(
        "#[cfg(test)]\nmod tests;\n"
        'const RAW: &str = br#"a "raw" text"#;\n'
        'const NEXT: &str = "after a raw text";\n'
        '#[cfg(test)]\nmod inline {\n    const HIDDEN: &str = "only for tests";\n}\n'
        'fn quote() { found(b\'"\', "the last text") }\n'
    )
    assert list(rust_texts(source)) == [(3, 'a "raw" text'), (4, "after a raw text"), (9, "the last text")]
