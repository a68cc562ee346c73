"""Recording that a job waits for its guest does not delay the run, whose lease may be lost meanwhile."""

from __future__ import annotations

import time
from pathlib import Path

from sqlalchemy import update

from tests.service.local import copy_request, new_database
from tests.service.server import WAIT_S
from tradewind.service.auth import Sender
from tradewind.service.awaited_guest import AwaitedGuest
from tradewind.service.jobs import JobLease, JobQueue
from tradewind.service.tables import jobs

SENDER = Sender("admin", "default", "service_admin", frozenset())


def test_a_database_that_does_not_answer_does_not_hold_a_run_up(tmp_path: Path) -> None:
    database = new_database(tmp_path)
    try:
        queue = JobQueue(database)
        row, _ = queue.submit(SENDER, "key", "digest", copy_request(tmp_path), [str(tmp_path / "copy")], [])
        mine = {"state": "running", "owner": "this", "epoch": 1, "waiting": "what a killed server has recorded"}
        with database.write() as connection:
            connection.execute(update(jobs).where(jobs.c.id == row.id).values(**mine))
        guest = AwaitedGuest(queue, JobLease(row.id, "this", 1), {"guest": {"guest": "g-awaited"}})
        with database.write():
            # If it waited for this transaction, it would record nothing: it would give up, and is called only once.
            guest.look()
        deadline_s = time.monotonic() + WAIT_S
        while (found := queue.find(row.id)) is None or found.waiting is not None:
            assert time.monotonic() < deadline_s, found
            time.sleep(0.02)
    finally:
        database.close()
