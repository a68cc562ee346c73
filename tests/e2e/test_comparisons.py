"""`check` and `sync` judge each pair of objects in the same way if both get the same `--compare`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import FilePlace, Place

RULES = ("auto", "checksum", "size", "time")
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
PART = ("--chunk-size", "5MiB")
LONG = 11 * 1024 * 1024

Words = Sequence[str | Path]


def named_and_synced(command: Command, rule: str, source: Words, there: Words) -> tuple[set[str], set[str]]:
    """Return the names that `check` prints, and those that `sync` then copies."""
    words = ("--compare", rule, source[0], there[0], *source[1:], *there[1:])
    checked = command.run("check", "--json", *words)
    lines = [json.loads(line) for line in checked.stdout.splitlines()]
    named = {line["name"] for line in lines if "name" in line}
    assert (checked.code == 0) is (not named), checked
    report = command.home / f"report-{time.monotonic_ns()}.jsonl"
    command.run("sync", "--report", report, *words).expect(0)
    return named, {os.path.basename(json.loads(line)["source"]) for line in report.read_text().splitlines()}


def sides(source: Place, there: Place) -> tuple[list[str], list[str]]:
    """Return each place with its flags."""
    return [source.url, *source.flags("src")], [there.url, *there.flags("dst")]


@pytest.mark.parametrize("kind", ["file", "moto", pytest.param("azure", marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", RULES)
def test_sync_copies_from_files_what_check_names(
    place: Callable[[str], Place], command: Command, kind: str, rule: str
) -> None:
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
    named, synced = named_and_synced(command, rule, *sides(source, there))
    assert synced == named and "other length" in named


@pytest.mark.parametrize("kind", ["moto", pytest.param("azure", marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", RULES)
def test_sync_copies_to_files_with_kept_times_what_check_names(
    place: Callable[[str], Place], command: Command, kind: str, rule: str
) -> None:
    written, source, there = place("file"), place(kind), place("file")
    assert isinstance(written, FilePlace) and isinstance(there, FilePlace)
    for name in ("same", "other bytes", "other bytes and time", "touched", "other length"):
        written.put(name, b"content")
        os.utime(written.folder / name, (1e9, 1e9))
    written.put("long", bytes(LONG))
    command.run("cp", "-r", *PART, written.url, source.url, *source.flags("dst")).expect(0)
    command.run("cp", "-r", source.url, there.url, *source.flags("src")).expect(0)
    assert (there.folder / "same").stat().st_mtime == 1e9
    for name, content, modified_s in (
        ("other bytes", b"CONTENT", 1e9),
        ("other bytes and time", b"CONTENT", 1e9 + 100),
        ("touched", b"content", 1e9 + 100),
        ("other length", b"contents", 1e9),
    ):
        there.put(name, content)
        os.utime(there.folder / name, (modified_s, modified_s))
    named, synced = named_and_synced(command, rule, *sides(source, there))
    assert synced == named and "other length" in named and "same" not in named


@pytest.mark.parametrize("kinds", [("moto", "moto"), pytest.param(("versitygw", "azure"), marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", RULES)
def test_sync_copies_between_stores_what_check_names(
    place: Callable[[str], Place], command: Command, kinds: tuple[str, str], rule: str
) -> None:
    files, source, there = place("file"), place(kinds[0]), place(kinds[1])
    for name in ("parts", "parts of other bytes"):
        files.put(name, bytes(LONG))
    command.run("cp", "-r", *PART, files.url, source.url, *source.flags("dst")).expect(0)
    there.put("parts", bytes(LONG))
    there.put("parts of other bytes", b"1" * LONG)
    newer = {name for name, (*_, later_s) in PAIRS.items() if later_s > 0}
    for name in PAIRS.keys() - newer:
        source.put(name, PAIRS[name][0])
    time.sleep(1.1)  # Some stores keep whole seconds.
    for name, (_, copied, _) in PAIRS.items():
        there.put(name, copied)
    time.sleep(1.1)
    for name in newer:
        source.put(name, PAIRS[name][0])
    named, synced = named_and_synced(command, rule, *sides(source, there))
    assert synced == named and "other length" in named


@pytest.mark.parametrize("kind", ["file", "moto"])
def test_check_without_a_rule_compares_checksums(place: Callable[[str], Place], command: Command, kind: str) -> None:
    source, there = place("file"), place(kind)
    source.put("a", b"content")
    there.put("a", b"content")
    source.put("b", b"content")
    there.put("b", b"CONTENT")
    assert isinstance(source, FilePlace)
    for folder in (each.folder for each in (source, there) if isinstance(each, FilePlace)):
        for name in "ab":
            os.utime(folder / name, (1e9, 1e9))
    words = (source.url, there.url, *there.flags("dst"))
    checked = command.run("check", *words).expect(6)
    assert checked.stdout == command.run("check", "--compare", "checksum", *words).expect(6).stdout
    assert checked.stdout == "differs  b (checksum; sync would keep it)\n"
    assert "hint: sync would keep 1 of them, because it goes by size and time: pass" in checked.stderr
    found = command.run("check", "--json", *words).expect(6).stdout.splitlines()[0]
    assert json.loads(found) == {"kind": "differs", "name": "b", "detail": "checksum", "kept_by_sync": True}
    command.run("sync", *words).expect(0)
    assert there.get("b") == b"CONTENT"
    command.run("sync", "--compare", "checksum", *words).expect(0)
    assert there.get("b") == b"content"


def test_objects_that_a_check_passes_over_are_not_called_missing(command: Command, tmp_path: Path) -> None:
    source, there = FilePlace(tmp_path / "source"), FilePlace(tmp_path / "there")
    source.put("new", b"1")
    there.put("old", b"1")
    for words in (("--one-way",), ("--include", "new")):
        done = command.run("check", *words, source.url, there.url).expect(6)
        assert "differ in 1 name" in done.stderr and "nothing exists" not in done.stderr
    nowhere = command.run("check", "--one-way", source.url, f"{there.url}/missing").expect(6)
    assert "nothing exists at" in nowhere.stderr
