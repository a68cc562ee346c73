"""`--files-from`: a list is read once, whatever its source, and a resumed job keeps its original names."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.places import FilePlace
from testbed.trees import MIB


@pytest.fixture
def source(tmp_path: Path) -> FilePlace:
    made = FilePlace(tmp_path / "source")
    for name in "abc":
        made.put(name, name.encode())
    return made


@pytest.mark.parametrize("change", ["edited", "removed", "replaced by a pipe"])
def test_a_resumed_move_uses_the_original_list_of_names(command: Command, tmp_path: Path, change: str) -> None:
    source, there = FilePlace(tmp_path / "source"), FilePlace(tmp_path / "there")
    for number in range(4):
        source.put(f"f{number}", os.urandom(12 * MIB))
    source.put("precious", b"stays")
    names = tmp_path / "names"
    names.write_text("f0\nf1\nf2\nf3\n")
    running = command.start(
        *("mv", "--files-from", names, source.folder, there.folder), "--limit-rate", "15MB/s", "--chunk-size", "5MiB"
    )
    running.wait_for_bytes(5 * MIB)
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    (job,) = command.jobs()
    kept = command.state / "jobs" / job["id"] / "names"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    if change == "edited":
        names.write_text("precious\n")
    else:
        names.unlink()
        if change != "removed":
            os.mkfifo(names)
    moved = tmp_path / "moved"
    shutil.move(command.state, moved)  # The copy of the list is found in the moved folder.
    command.environment["TRADEWIND_STATE_DIR"] = str(moved)
    command.run("jobs", "resume", job["id"]).expect(0)
    assert source.sizes() == {"precious": 5}
    assert there.sizes().keys() == {"f0", "f1", "f2", "f3"}
    assert not (moved / "jobs" / job["id"] / "names").exists()


@pytest.mark.parametrize("path", ["-", "/dev/stdin"])
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_list_comes_from_standard_input(
    command: Command, source: FilePlace, tmp_path: Path, path: str, dry: tuple[str, ...]
) -> None:
    there = FilePlace(tmp_path / "there")
    command.run("cp", "--files-from", path, *dry, source.folder, there.folder, stdin=b"a\nc\r\n").expect(0)
    assert there.sizes() == ({} if dry else {"a": 1, "c": 1})


def test_a_list_comes_from_another_command(command: Command, source: FilePlace, tmp_path: Path) -> None:
    there = FilePlace(tmp_path / "there")
    line = '"$0" cp --files-from <(printf "a\\nb\\n") "$1" "$2"'
    words = ["bash", "-c", line, *map(str, (command.binary, source.folder, there.folder))]
    done = subprocess.run(words, env=command.full_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert there.sizes() == {"a": 1, "b": 1}


def test_a_list_that_cannot_be_read_is_a_usage_error(command: Command, source: FilePlace, tmp_path: Path) -> None:
    for path, why in (tmp_path / "missing", "No such file"), (tmp_path, "Is a directory"):
        refused = command.run("cp", "--files-from", path, source.folder, tmp_path / "there").expect(2)
        assert f"--files-from {path}: {why}" in refused.stderr and "hint: " in refused.stderr
    assert command.jobs() == []
    assert not (tmp_path / "there").exists()


def test_an_empty_list_is_named(command: Command, source: FilePlace, tmp_path: Path) -> None:
    (tmp_path / "names").write_text("\n")
    words = ("cp", "--files-from", tmp_path / "names", source.folder, tmp_path / "there")
    assert "error: the list has no names" in command.run(*words).expect(3).stderr
    command.run(*words, "--allow-empty").expect(0)


def test_waiting_for_the_writer_of_a_pipe_can_be_interrupted(
    command: Command, source: FilePlace, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    running = command.start("cp", "--files-from", tmp_path / "pipe", source.folder, tmp_path / "there")
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)  # Returns when the command opens the pipe.
    running.signal(signal.SIGINT)
    running.finish().expect(130)
    os.close(writer)
    assert command.jobs() == []


def test_names_of_files_may_begin_as_find_prints_them(command: Command, source: FilePlace, tmp_path: Path) -> None:
    there = FilePlace(tmp_path / "there")
    command.run("cp", "--files-from", "-", source.folder, there.folder, stdin=b"./a\n././b\n./\n.\n").expect(0)
    assert there.sizes() == {"a": 1, "b": 1}
    command.run("rm", there.folder, "--files-from", "-", stdin=b"./b\n").expect(0)
    assert there.sizes() == {"a": 1}
