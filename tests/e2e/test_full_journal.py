"""A full disk: no journal without all of its tables is left, and what a journal records can still be read."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.trees import write_tree
from tests.fleet.worlds import wait_until
from tradewind.engine.engine import Engine
from tradewind.engine.proposal import Request
from tradewind.engine.request import Options

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


def test_the_journal_of_a_paused_job_can_be_read_on_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    """SQLite has no room for the file of its shared memory there. A service charges the job by what the journal has."""
    source, filler = tmp_path / "from", small_disk / "filler"
    write_tree(source, dict.fromkeys("abcdefgh", 400_000))
    slow = Options(recursive=True, limit_bytes_per_s=400_000)
    with Engine(state_dir=str(small_disk / "state")) as engine:
        job = engine.start(engine.propose(Request(f"{source}/", (f"{tmp_path / 'copy'}/",), slow)))
        wait_until(lambda: bool(job.recorded_bytes))
        job.pause()
        with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4 * KIB))
        recorded = job.recorded_bytes
        assert recorded and recorded == job.record.progress.bytes_done
        filler.unlink()
        job.resume().wait()
        assert job.record.progress.bytes_earlier == recorded, "reading it has changed it"
