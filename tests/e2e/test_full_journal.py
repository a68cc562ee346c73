"""A disk that is full when a job begins its journal: no journal without all of its tables is left."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from testbed.drive import Command
from testbed.trees import write_tree

KIB = 1024


def test_a_journal_on_a_full_disk_is_whole_or_absent(command: Command, tmp_path: Path, small_disk: Path) -> None:
    source, filler, failed = tmp_path / "from", small_disk / "filler", 0
    write_tree(source, {"one": 10, "two": 10})
    for free_kib in range(160, 320, 12):
        state = small_disk / f"state-{free_kib}"
        on_disk = replace(command, environment={**command.environment, "TRADEWIND_STATE_DIR": str(state)})
        on_disk.run("jobs", "list").expect(0)  # Creates the database.
        disk = os.statvfs(small_disk)
        filler.write_bytes(bytes(disk.f_bavail * disk.f_frsize - free_kib * KIB))
        failed += on_disk.run("cp", "-r", source, tmp_path / f"copy-{free_kib}").code != 0
        filler.unlink()
        for journal in state.glob("jobs/*/journal.sqlite"):
            names = {path.name for path in journal.parent.iterdir()}
            assert not names & {"journal.sqlite.new-wal", "journal.sqlite.new-shm"}, f"{free_kib} KiB were free"
            with closing(sqlite3.connect(journal)) as connection:
                assert connection.execute("SELECT count(*) FROM upload").fetchone() == (0,)
    assert failed, "the disk was never full"
