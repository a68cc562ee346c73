"""Schedules with many events, or whose jobs have not ended, do not keep the others from their turn."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from tests.service.local import new_database
from tradewind.service import schedule_runner
from tradewind.service.auth import Sender
from tradewind.service.database import ServiceDatabase
from tradewind.service.faults import Faults
from tradewind.service.jobs import JobQueue
from tradewind.service.schedule_runner import ScheduleRunner
from tradewind.service.scheduling_tables import schedule_events, schedules
from tradewind.service.tables import jobs

SENDER = Sender("admin", "default", "service_admin", frozenset())
REQUEST = {"source": "/a", "destination": ["/b"], "verb": "cp", "recursive": True, "limit_bytes_per_s": None}


#: Less than the service's limits, so that the tests are fast.
AT_ONCE, EVENTS_AT_ONCE = 5, 8


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_runner, "AT_ONCE", AT_ONCE)
    monkeypatch.setattr(schedule_runner, "EVENTS_AT_ONCE", EVENTS_AT_ONCE)


def row(name: str, now_ms: int, **others: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": name,
        "tenant": "default",
        "token": "admin",
        "time_zone": "UTC",
        "request": json.dumps(REQUEST),
    }
    row |= {"owned": '["/b"]', "links": "[]", "created_unix_ms": now_ms, "next_unix_ms": None, "queued": "[]"}
    return row | {"cron": "", "overlap": "queue", "submitted": 0, "last_unix_ms": now_ms - 1_000, **others}


def due(now_ms: int) -> dict[str, Any]:
    return row("due", now_ms, cron="* * * * *", last_unix_ms=now_ms - 120_000, next_unix_ms=now_ms - 60_000)


def submitted(database: ServiceDatabase) -> list[str]:
    query = select(jobs.c.schedule).where(jobs.c.idempotency_key.like("schedule-%"))
    with database.read() as connection:
        return list(connection.execute(query).scalars())


def test_many_schedules_that_wait_for_their_jobs_stop_no_other(tmp_path: Path) -> None:
    database, now_ms = new_database(tmp_path), round(time.time() * 1000)
    queue = JobQueue(database)
    first, _ = queue.submit(SENDER, "first", "digest", REQUEST, ["/b"], schedule="w0")
    with database.write() as connection:
        job = dict(connection.execute(select(jobs)).mappings().one())
        for number in range(1, AT_ONCE):
            job |= {"id": f"{first.id}{number}", "schedule": f"w{number}", "idempotency_key": f"k{number}"}
            connection.execute(insert(jobs).values(**job))
        for number in range(AT_ONCE):
            waiting = row(f"w{number}", now_ms, queued="[1.5]", last_unix_ms=now_ms - 240_000)
            connection.execute(insert(schedules).values(**waiting))
        connection.execute(insert(schedules).values(**due(now_ms)))
    ScheduleRunner(database, queue, Faults()).step(is_scheduling=True)
    assert submitted(database) == ["due"]
    database.close()


def test_many_schedules_with_events_stop_no_other(tmp_path: Path) -> None:
    database, now_ms = new_database(tmp_path), round(time.time() * 1000)
    with database.write() as connection:
        for number in range(AT_ONCE):
            connection.execute(insert(schedules).values(**row(f"e{number}", now_ms)))
            event = {"schedule": f"e{number}", "at_unix_ms": now_ms - 500, "idempotency_key": "k", "is_open": 1}
            connection.execute(insert(schedule_events).values(**event))
        connection.execute(insert(schedules).values(**due(now_ms)))
    ScheduleRunner(database, JobQueue(database), Faults()).step(is_scheduling=True)
    assert "due" in submitted(database)
    database.close()


def test_the_events_of_a_schedule_are_handled_a_part_at_a_time(tmp_path: Path) -> None:
    database, now_ms, more = new_database(tmp_path), round(time.time() * 1000), 5
    with database.write() as connection:
        connection.execute(insert(schedules).values(**row("e", now_ms, overlap="allow")))
        for number in range(EVENTS_AT_ONCE + more):
            event = {"schedule": "e", "at_unix_ms": now_ms - 999 + number, "idempotency_key": f"k{number}"}
            connection.execute(insert(schedule_events).values(**event, is_open=1))
    runner = ScheduleRunner(database, JobQueue(database), Faults())
    for count in (EVENTS_AT_ONCE, EVENTS_AT_ONCE + more, EVENTS_AT_ONCE + more):
        runner.step(is_scheduling=True)
        assert len(submitted(database)) == count
    database.close()
