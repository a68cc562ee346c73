"""A server that loses the lease of a job at any moment leaves no run behind."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from tests.service.local import copy_request, job_runner, new_database
from tradewind.service.auth import Sender
from tradewind.service.jobs import JobLease, JobQueue
from tradewind.service.tables import jobs

WAIT_S = 30.0
FILES = 8


@pytest.mark.parametrize("moment", ["before the run is recorded", "while it runs"])
def test_its_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    (tmp_path / "source").mkdir()
    for number in range(FILES):
        (tmp_path / "source" / f"{number}").write_bytes(os.urandom(500_000))
    database = new_database(tmp_path)
    queue = JobQueue(database)

    def steal(job_id: str) -> None:
        with database.write() as connection:
            change = {"owner": "other", "epoch": jobs.c.epoch + 1, "lease_unix_ms": 2**53}
            connection.execute(update(jobs).where(jobs.c.id == job_id).values(**change))

    note = JobQueue.note

    def note_after_theft(self: JobQueue, lease: JobLease, **fields: Any) -> None:
        if "engine_job" in fields:
            steal(lease.job)
        note(self, lease, **fields)

    if moment == "before the run is recorded":
        monkeypatch.setattr(JobQueue, "note", note_after_theft)
    runner = job_runner(database, tmp_path)
    request = copy_request(tmp_path, limit_bytes_per_s=400_000)
    sender = Sender("admin", "default", "service_admin", frozenset())
    row, _ = queue.submit(sender, "key", "digest", request, [str(tmp_path / "copy")])
    runner.start()
    try:
        deadline_s = time.monotonic() + WAIT_S
        while not (records := list(runner.engine.records())) and time.monotonic() < deadline_s:
            time.sleep(0.02)
        if moment == "while it runs":
            while records[0].state != "running" or not list(tmp_path.glob("copy/*")):
                assert time.monotonic() < deadline_s
                time.sleep(0.02)
            steal(row.id)
        control = runner.engine.control.store
        while control.has_lead(records[0].id) or control.is_owned(records[0].id):
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        # The run was stopped: the other server resumes it, and this one has recorded nothing about it.
        assert runner.engine.job(records[0].id).state == "interrupted"
        found = queue.find(row.id)
        assert found is not None
        assert (found.state, found.owner, found.epoch) == ("running", "other", 2)
    finally:
        runner.close()
        database.close()
