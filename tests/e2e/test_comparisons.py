"""`check` and `sync` judge each pair of objects in the same way."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from testbed.drive import Command
from testbed.places import FilePlace, Place

#: Content at the source and at the destination, and the time of the source's file after that of the destination's [s].
#: Copies in a store are always younger than files with an earlier time.
PAIRS = {
    "same": (b"content", b"content", 0),
    "same, source older": (b"content", b"content", -100),
    "same, source newer": (b"content", b"content", 100),
    "other bytes": (b"content", b"CONTENT", 0),
    "other bytes, source newer": (b"content", b"CONTENT", 100),
    "other length": (b"content", b"contents", -100),
    "empty": (b"", b"", 100),
}
HOUR_S = 3600


@pytest.mark.parametrize("kind", ["file", "moto", pytest.param("azure", marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", ["checksum", "size", "time"])
def test_sync_copies_what_check_names(place: Callable[[str], Place], command: Command, kind: str, rule: str) -> None:
    source, there = place("file"), place(kind)
    assert isinstance(source, FilePlace)
    for name, (content, copied, _) in PAIRS.items():
        source.put(name, content)
        there.put(name, copied)
    for name, (*_, later_s) in PAIRS.items():
        written_s = (source.folder / name).stat().st_mtime
        if isinstance(there, FilePlace):
            os.utime(there.folder / name, (written_s, written_s))
        elif later_s > 0:
            later_s = HOUR_S  # Later than the store's time of writing.
        os.utime(source.folder / name, (written_s + later_s, written_s + later_s))
    flags = there.flags("dst")
    checked = command.run("check", "--json", "--compare", rule, source.url, there.url, *flags).expect(6)
    lines = [json.loads(line) for line in checked.stdout.splitlines()]
    named = {line["name"] for line in lines if "name" in line}
    report = command.home / "report.jsonl"
    words = ("sync", "--compare", rule, "--report", report, source.url, there.url)
    command.run(*words, *flags).expect(0)
    synced = {os.path.basename(json.loads(line)["source"]) for line in report.read_text().splitlines()}
    assert synced == named and "other length" in named
