"""Schedules whose jobs have not ended do not keep the others from their turn."""

from __future__ import annotations

import json
import time
from pathlib import Path

from sqlalchemy import insert, select

from tests.service.local import new_database
from tradewind.service.auth import Sender
from tradewind.service.faults import Faults
from tradewind.service.jobs import JobQueue
from tradewind.service.schedule_runner import AT_ONCE, ScheduleRunner
from tradewind.service.scheduling_tables import schedules
from tradewind.service.tables import jobs

SENDER = Sender("admin", "default", "service_admin", frozenset())
REQUEST = {"source": "/a", "destination": ["/b"], "verb": "cp", "recursive": True, "limit_bytes_per_s": None}


def test_many_schedules_that_wait_for_their_jobs_stop_no_other(tmp_path: Path) -> None:
    database, now_ms = new_database(tmp_path), round(time.time() * 1000)
    row = {"tenant": "default", "token": "admin", "time_zone": "UTC", "request": json.dumps(REQUEST)}
    row |= {"owned": '["/b"]', "links": "[]", "overlap": "queue", "submitted": 1, "created_unix_ms": now_ms}
    waiting = {**row, "cron": "", "queued": "[1.5]", "last_unix_ms": now_ms - 120_000, "next_unix_ms": None}
    due = {
        **row,
        "cron": "* * * * *",
        "queued": "[]",
        "last_unix_ms": now_ms - 120_000,
        "next_unix_ms": now_ms - 60_000,
    }
    queue = JobQueue(database)
    first, _ = queue.submit(SENDER, "first", "digest", REQUEST, ["/b"], schedule="w0")
    with database.write() as connection:
        job = dict(connection.execute(select(jobs)).mappings().one())
        for number in range(1, AT_ONCE):
            job |= {"id": f"{first.id}{number}", "schedule": f"w{number}", "idempotency_key": f"k{number}"}
            connection.execute(insert(jobs).values(**job))
        for number in range(AT_ONCE):
            connection.execute(insert(schedules).values(**waiting, id=f"w{number}"))
        connection.execute(insert(schedules).values(**due, id="due"))
    ScheduleRunner(database, queue, Faults()).step(is_scheduling=True)
    with database.read() as connection:
        submitted = connection.execute(select(jobs.c.schedule).where(jobs.c.idempotency_key.like("schedule-%"))).all()
    assert [name for (name,) in submitted] == ["due"]
    database.close()
