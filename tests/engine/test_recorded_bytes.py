"""The bytes that a job's journal has as moved: the real one of a job that was interrupted and resumed."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fleet.worlds import wait_until
from tradewind.engine.engine import Engine
from tradewind.engine.proposal import Request
from tradewind.engine.recorded_bytes import recorded_bytes
from tradewind.engine.request import Options

#: At this rate a job is paused long before its end, also on a busy machine.
SLOW = Options(recursive=True, limit_bytes_per_s=4_000_000, chunk_bytes=5 << 20)


def test_the_journal_of_a_job_has_each_byte_once(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "large").write_bytes(os.urandom(12 << 20))
    (source / "small").write_bytes(os.urandom(1_000))
    with Engine(state_dir=str(tmp_path / "state")) as engine:
        job = engine.start(engine.propose(Request(f"{source}/", (f"{tmp_path / 'copy'}/",), SLOW)))
        wait_until(lambda: bool(job.recorded_bytes))
        job.pause()
        before = recorded_bytes(job.folder)
        assert before is not None and before < 12 << 20
        assert before == job.record.progress.bytes_done
        other = engine.start(engine.propose(Request(f"{source}/", (f"{tmp_path / 'other'}/",), SLOW)))
        wait_until(lambda: bool(other.recorded_bytes))
        other.cancel()
        assert other.recorded_bytes is None, "the uploads that were aborted are not in it"
        job.resume().wait()
        assert recorded_bytes(job.folder) is None, "a job that is done needs no journal"


def test_a_job_without_a_readable_journal_has_none(tmp_path: Path) -> None:
    assert recorded_bytes(str(tmp_path)) is None
    (tmp_path / "journal.sqlite").write_text("not a journal")
    assert recorded_bytes(str(tmp_path)) is None
