"""Normal use, between all kinds of stores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import FilePlace, Place, S3Place
from testbed.servers import versitygw
from testbed.trees import MIB, ODD_NAMES, payload

CONTENT = {
    "empty": 0,
    "one byte": 1,
    "folder/small.txt": 1_000,
    "folder/deeper/ünïcödé": 70_000,
    "just-one-chunk": 16 * MIB,
    "two-chunks-and-a-bit": 33 * MIB + 7,
}
PAIRS = [
    ("file", "versitygw"),
    ("file", "moto"),
    ("file", "gcs"),
    ("file", "azure"),
    ("versitygw", "file"),
    ("moto", "file"),
    ("gcs", "file"),
    ("azure", "file"),
    ("versitygw", "versitygw"),
    ("versitygw", "moto"),
    ("moto", "gcs"),
    ("gcs", "azure"),
    ("azure", "versitygw"),
    ("file", "file"),
]
MakePlace = Callable[[str], Place]


def fill(place: Place, sizes: dict[str, int]) -> None:
    for key, size in sizes.items():
        place.put(key, payload(key, size))


def assert_holds(place: Place, sizes: dict[str, int]) -> None:
    """Check that a place has exactly these objects with their bytes, and nothing unfinished."""
    assert place.sizes() == sizes
    for key, size in sizes.items():
        assert place.get(key) == payload(key, size), key
    assert place.unfinished() == []


def between(source: Place, destination: Place) -> list[str]:
    return [source.url, destination.url, *source.flags("src"), *destination.flags("dst")]


@pytest.mark.parametrize(("start", "end"), PAIRS, ids=[f"{start}-to-{end}" for start, end in PAIRS])
def test_a_tree_arrives_whole_and_proven(command: Command, place: MakePlace, start: str, end: str) -> None:
    source, destination = place(start), place(end)
    fill(source, CONTENT)
    done = command.run("cp", "-r", "--json", *between(source, destination)).expect(0)
    assert_holds(destination, CONTENT)
    assert done.summary["progress"]["objects_done"] == len(CONTENT)
    assert done.summary["progress"]["bytes_done"] == sum(CONTENT.values())
    assert sum(done.summary["proofs"].values()) == len(CONTENT)
    command.run("check", "--read", *between(source, destination)).expect(0)


def test_names_that_both_sides_can_store_survive_a_round_trip(command: Command, place: MakePlace) -> None:
    source, bucket, back = place("file"), place("versitygw"), place("file")
    sizes = {name: len(name) for name in ODD_NAMES}
    fill(source, sizes)
    command.run("cp", "-r", *between(source, bucket)).expect(0)
    command.run("cp", "-r", *between(bucket, back)).expect(0)
    assert_holds(back, sizes)


def test_an_endpoint_with_a_private_ca_works_and_without_it_is_refused(command: Command, tmp_path: Path) -> None:
    source = FilePlace(tmp_path / "tree")
    fill(source, {"a": 10, "big": 20 * MIB})
    with versitygw(tls=True) as server:
        bucket = S3Place(server, command)
        command.run("cp", "-r", *between(source, bucket)).expect(0)
        assert_holds(bucket, {"a": 10, "big": 20 * MIB})
        flags = bucket.flags("dst")
        without_ca = flags[: flags.index("--dst-ca-bundle")]
        refused = command.run("cp", "-r", source.url, bucket.url + "/other", *without_ca)
        assert refused.code not in (0, 2)
        assert "certificate" in refused.stderr.lower()


def test_sync_copies_only_what_changed_and_deletes_only_on_request(command: Command, place: MakePlace) -> None:
    source, bucket = place("file"), place("versitygw")
    fill(source, {"a": 1_000, "b": 2_000, "c/d": 3_000})
    command.run("sync", *between(source, bucket)).expect(0)
    again = command.run("sync", "--json", *between(source, bucket)).expect(0)
    assert again.summary["progress"]["objects_done"] == 0
    assert again.summary["progress"]["objects_skipped"] == 3

    (Path(source.url) / "a").unlink()
    source.put("b", payload("other", 2_500))
    changed = command.run("sync", "--json", *between(source, bucket)).expect(0)
    assert changed.summary["progress"]["objects_done"] == 1
    assert set(bucket.sizes()) == {"a", "b", "c/d"}

    deleted = command.run("sync", "--json", "--delete", *between(source, bucket)).expect(0)
    assert deleted.summary["objects_deleted"] == 1
    assert bucket.sizes() == {"b": 2_500, "c/d": 3_000}
    assert bucket.get("b") == payload("other", 2_500)


def test_delete_refuses_a_source_that_is_missing_or_empty(command: Command, place: MakePlace, tmp_path: Path) -> None:
    bucket, empty = place("versitygw"), place("file")
    fill(bucket, {"precious": 100})
    for source in (empty.url, str(tmp_path / "nowhere")):
        refused = command.run("sync", "--delete", source, bucket.url, *bucket.flags("dst"))
        assert refused.code == 3, refused.stderr
        assert bucket.sizes() == {"precious": 100}


def test_sync_deletes_no_name_that_the_listing_may_have_changed(command: Command, place: MakePlace) -> None:
    """A control character is listed as another one, so the listed object cannot be identified."""
    source, bucket = place("file"), place("versitygw")
    fill(source, {**{f"f{number}": 10 for number in range(5)}, "\x1bred": 10})
    command.run("cp", "-r", *between(source, bucket)).expect(0)
    before = bucket.sizes()
    refused = command.run("sync", "--delete", *between(source, bucket))
    assert refused.code == 4, refused.stderr
    assert "the key has U+FFFD" in refused.stderr
    assert bucket.sizes() == before


def test_max_delete_deletes_nothing_if_more_would_be_deleted(command: Command, place: MakePlace) -> None:
    source, bucket = place("file"), place("versitygw")
    fill(source, {"stays": 10})
    fill(bucket, {"stays": 10, "extra-1": 1, "extra-2": 1, "extra-3": 1})
    refused = command.run("sync", "--delete", "--max-delete", "2", *between(source, bucket))
    assert refused.code not in (0, 2), refused.stderr
    assert set(bucket.sizes()) == {"stays", "extra-1", "extra-2", "extra-3"}


def test_mv_leaves_nothing_at_the_source(command: Command, place: MakePlace) -> None:
    source, bucket = place("file"), place("versitygw")
    fill(source, {"a": 10, "b/c": 20, "big": 17 * MIB})
    command.run("mv", "-r", *between(source, bucket)).expect(0)
    assert source.sizes() == {}
    assert_holds(bucket, {"a": 10, "b/c": 20, "big": 17 * MIB})


def test_a_dry_run_shows_what_it_would_do_and_does_nothing(command: Command, place: MakePlace) -> None:
    source, bucket = place("file"), place("versitygw")
    fill(source, {"a": 10, "b": 20})
    done = command.run("cp", "-r", "--dry-run", "--json", *between(source, bucket)).expect(0)
    would = {
        (event["source"].rpartition("/")[2], event["size_bytes"])
        for event in done.events[:-1]
        if event["event"] == "would_copy"
    }
    assert would == {("a", 10), ("b", 20)}
    assert bucket.sizes() == {}


def test_one_object_lands_where_the_slash_rule_says(command: Command, place: MakePlace) -> None:
    source, bucket = place("file"), place("versitygw")
    fill(source, {"name": 10})
    for destination in ("/folder/", "/folder/renamed"):
        command.run("cp", f"{source.url}/name", bucket.url + destination, *bucket.flags("dst")).expect(0)
    assert bucket.sizes() == {"folder/name": 10, "folder/renamed": 10}


def test_a_prefix_is_a_directory(command: Command, place: MakePlace) -> None:
    bucket, back = place("versitygw"), place("file")
    fill(bucket, {"te/inside": 10, "test/outside": 20, "te-st": 30})
    command.run("cp", "-r", f"{bucket.url}/te", back.url, *bucket.flags("src")).expect(0)
    assert back.sizes() == {"inside": 10}


def test_filters_choose_and_the_last_match_wins(command: Command, place: MakePlace) -> None:
    source, back = place("file"), place("file")
    fill(source, {"a.txt": 1, "b.log": 1, "logs/c.log": 1, "logs/keep.log": 1})
    command.run("cp", "-r", "--exclude", "**/*.log", "--include", "**/keep.log", *between(source, back)).expect(0)
    assert set(back.sizes()) == {"a.txt", "logs/keep.log"}


def test_two_destinations_get_the_same(command: Command, place: MakePlace) -> None:
    source, one, other = place("file"), place("versitygw"), place("versitygw")
    fill(source, {"a": 10, "big": 20 * MIB})
    command.run("cp", "-r", source.url, "--to", one.url, "--to", other.url, *one.flags("dst")).expect(0)
    for destination in (one, other):
        assert_holds(destination, {"a": 10, "big": 20 * MIB})


def test_standard_input_and_output(command: Command, place: MakePlace) -> None:
    bucket = place("versitygw")
    content = payload("piped", 21 * MIB)
    command.run("cp", "-", f"{bucket.url}/piped", *bucket.flags("dst"), stdin=content).expect(0)
    assert bucket.get("piped") == content
    for arguments in (["cat", f"{bucket.url}/piped"], ["cp", f"{bucket.url}/piped", "-"]):
        code, stdout, stderr = command.run_bytes(*arguments, *bucket.flags("src"))
        assert code == 0, stderr
        assert stdout == content


def test_ls_du_and_rm_agree_on_the_objects(command: Command, place: MakePlace) -> None:
    bucket = place("versitygw")
    fill(bucket, {"a": 10, "f/b": 20, "f/g/c": 30})
    flags = bucket.flags("src")
    listed = command.run("ls", "-r", "--json", f"{bucket.url}/f", *flags).expect(0)
    assert listed.stdout.count("\n") == 2
    assert "g/c" in listed.stdout
    assert '"a"' not in listed.stdout
    summed = json.loads(command.run("du", "--json", f"{bucket.url}/f", *flags).expect(0).stdout)
    assert 50 in summed.values()
    command.run("rm", "-r", f"{bucket.url}/f", *flags).expect(0)
    assert bucket.sizes() == {"a": 10}


def test_check_finds_the_one_byte_that_differs(command: Command, place: MakePlace) -> None:
    source, bucket = place("file"), place("versitygw")
    fill(source, {"same": 100, "differs": 100})
    fill(bucket, {"same": 100, "differs": 100})
    other = bytearray(payload("differs", 100))
    other[50] ^= 1
    bucket.put("differs", bytes(other))
    found = command.run("check", "--read", *between(source, bucket))
    assert found.code not in (0, 2)
    assert "differs" in found.stdout + found.stderr


def test_the_report_has_a_verdict_per_object(command: Command, place: MakePlace, tmp_path: Path) -> None:
    source, bucket, report = place("file"), place("versitygw"), tmp_path / "report.jsonl"
    fill(source, CONTENT)
    command.run("cp", "-r", "--report", report, *between(source, bucket)).expect(0)
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert len(lines) == len(CONTENT)
