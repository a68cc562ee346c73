"""Several sources, as from a shell's glob, and several destinations with --to."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import FilePlace, Place
from testbed.trees import payload

LOGS = {"1.log": 10, "2.log": 20, "3.log": 30}


@pytest.fixture
def logs(tmp_path: Path) -> FilePlace:
    made = FilePlace(tmp_path / "logs")
    for key, size in {**LOGS, "keep.txt": 5, "deep/4.log": 40}.items():
        made.put(key, payload(key, size))
    return made


def glob(place: FilePlace) -> list[Path]:
    """Return the files that a shell's `*.log` matches."""
    return sorted(place.folder.glob("*.log"))


@pytest.mark.parametrize("kind", ["file", "versitygw"])
def test_a_glob_is_copied_file_by_file(
    command: Command, logs: FilePlace, place: Callable[[str], Place], kind: str
) -> None:
    there = place(kind)
    done = command.run("cp", *glob(logs), f"{there.url}/logs/", *there.flags("dst")).expect(0)
    assert there.sizes() == {f"logs/{key}": size for key, size in LOGS.items()}
    assert all(there.get(f"logs/{key}") == payload(key, size) for key, size in LOGS.items())
    assert "and 1 more" not in done.stderr


def test_the_last_file_of_a_glob_is_not_overwritten(command: Command, logs: FilePlace, tmp_path: Path) -> None:
    command.run("cp", *glob(logs)).expect(2)
    command.run("cp", *glob(logs), tmp_path / "no-slash").expect(2)
    command.run("mv", *glob(logs), "--to", tmp_path / "no-slash").expect(2)
    assert {key: logs.get(key) for key in LOGS} == {key: payload(key, size) for key, size in LOGS.items()}


def test_exactly_what_was_moved_is_deleted(command: Command, logs: FilePlace, tmp_path: Path) -> None:
    command.run("mv", *glob(logs), logs.folder / "gone", f"{tmp_path}/to/").expect(4)
    assert FilePlace(tmp_path / "to").sizes() == LOGS
    assert set(logs.sizes()) == {"keep.txt", "deep/4.log"}
    command.run("mv", "-r", logs.folder / "deep", logs.folder / "keep.txt", f"{tmp_path}/to/").expect(0)
    assert FilePlace(tmp_path / "to").sizes() == {**LOGS, "deep/4.log": 40, "keep.txt": 5}
    assert logs.sizes() == {}


def test_equal_names_and_overlaps_are_refused_before_anything_is_moved(
    command: Command, logs: FilePlace, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "1.log").write_text("another")
    before = logs.sizes()
    command.run("mv", *glob(logs), tmp_path / "other" / "1.log", f"{tmp_path}/to/").expect(2)
    command.run("mv", *glob(logs), f"{logs.folder}/").expect(2)
    command.run("mv", "-r", logs.folder / "deep", logs.folder / "1.log", f"{logs.folder}/deep/").expect(2)
    assert logs.sizes() == before
    assert not (tmp_path / "to").exists()


def test_filters_choose_by_the_name_at_the_destination(command: Command, logs: FilePlace, tmp_path: Path) -> None:
    sources = [logs.folder / "deep", *glob(logs)]
    command.run("cp", "-r", *sources, f"{tmp_path}/to/", "--exclude", "deep/", "--exclude", "1.*").expect(0)
    assert FilePlace(tmp_path / "to").sizes() == {"2.log": 20, "3.log": 30}
    said = command.run("cp", "-r", *sources, f"{tmp_path}/to/", "--explain", "deep/4.log").expect(0).stdout
    assert said.startswith("included: deep/4.log")


@pytest.mark.parametrize("verb", ["cp", "mv", "sync"])
def test_to_names_each_destination(command: Command, logs: FilePlace, tmp_path: Path, verb: str) -> None:
    before = logs.sizes()
    flags = [] if verb == "sync" else ["-r"]
    command.run(verb, *flags, logs.folder, "--to", f"{tmp_path}/one/", "--to", f"{tmp_path}/two/").expect(0)
    assert FilePlace(tmp_path / "one").sizes() == FilePlace(tmp_path / "two").sizes() == before
    assert logs.sizes() == ({} if verb == "mv" else before)


def test_a_stopped_job_of_several_sources_is_resumed(command: Command, tmp_path: Path) -> None:
    source = FilePlace(tmp_path / "source")
    for name in ("a", "b", "c"):
        source.put(f"{name}.raw", payload(name, 3_000_000))
    paths = sorted(source.folder.glob("*.raw"))
    running = command.start("mv", *paths, f"{tmp_path}/to/", "--limit-rate", "2MB/s")
    running.wait_for_objects(1)
    for pid in running.gateways().values():
        os.kill(pid, signal.SIGKILL)
    running.finish()
    (job,) = command.jobs()
    if job["state"] != "done":
        command.run("jobs", "resume", job["id"]).expect(0)
    there = FilePlace(tmp_path / "to")
    assert {key: there.get(key) for key in there.sizes()} == {f"{n}.raw": payload(n, 3_000_000) for n in "abc"}
    assert source.sizes() == {}
