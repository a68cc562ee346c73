"""With any umask, only the user may read what Tradewind keeps in its private folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.chains import chain, write
from testbed.drive import Command
from testbed.trees import MIB, write_large

OTHERS = 0o077
KEPT = {"status.json", "objects.ndjson", "state.sqlite", "lead.log", "source.log", "sink.log"}


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def shared(folder: Path) -> list[str]:
    """Return the modes and paths below a folder, and of itself, that others may use."""
    modes = {}
    for path in [folder, *folder.rglob("*")]:
        try:
            modes[path] = path.lstat().st_mode
        except FileNotFoundError:
            continue
    return [f"{mode:o} {path.relative_to(folder)}" for path, mode in modes.items() if mode & OTHERS]


@pytest.mark.usefixtures("no_umask")
def test_private_folders_have_no_files_for_others(command: Command, tmp_path: Path) -> None:
    write_large(tmp_path / "large", 16 * MIB)
    topology = write(chain("relay"), tmp_path / "topology.json")
    words = ("cp", tmp_path / "large", tmp_path / "copy", "--topology", topology, "--chunk-size", "5MiB")
    running = command.start(*words, "--limit-rate", "8MB/s", "--keep-logs")
    running.wait_for_bytes(1 * MIB)
    while_it_runs = shared(command.state)
    assert list(command.state.rglob("journal.sqlite-wal")) and list(command.state.rglob("state.sqlite-wal"))
    running.finish().expect(0)
    assert while_it_runs == []
    assert shared(command.state) == []
    assert {path.name for path in command.state.rglob("*")} >= KEPT


@pytest.mark.usefixtures("no_umask")
def test_a_report_that_the_user_names_follows_the_umask(command: Command) -> None:
    (command.home / "file").write_bytes(b"x")
    command.run("cp", "file", "copy", "--report", "report").expect(0)
    assert (command.home / "report").stat().st_mode & 0o777 == 0o666
