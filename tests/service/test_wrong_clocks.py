"""Servers whose clocks are an hour wrong: the times that servers compare are by the database's clock."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from tests.service.local import new_database, scheduler
from tradewind.service.auth import Sender
from tradewind.service.database import ServiceDatabase
from tradewind.service.jobs import JobQueue
from tradewind.service.problems import ApiProblem
from tradewind.service.schedule_runner import ScheduleRunner
from tradewind.service.scheduling_tables import bans, schedules
from tradewind.service.tables import deliveries, jobs
from tradewind.service.tables import webhooks as webhook_table

HOUR_S = 3600
SENDER = Sender("admin", "default", "service_admin", frozenset())
REQUEST = {"source": "/a", "destination": ["/b"], "verb": "cp", "recursive": True, "limit_bytes_per_s": None}
both_ways = pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    database = new_database(tmp_path)
    yield database
    database.close()


@pytest.fixture
def step_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def step(ahead_s: int) -> None:
        right_ns, right_s = time.time_ns, time.time
        monkeypatch.setattr(time, "time_ns", lambda: right_ns() + ahead_s * 10**9)
        monkeypatch.setattr(time, "time", lambda: right_s() + ahead_s)

    return step


def submit(database: ServiceDatabase) -> str:
    row, _ = JobQueue(database).submit(SENDER, "key", "digest", REQUEST, ["/b"])
    return row.id


def ban(database: ServiceDatabase, end_ms: int, *, refuses: bool) -> None:
    row = {"id": "b", "kind": "store", "name": "local", "reason": "repair", "is_maintenance": 0, "stops_jobs": 0}
    with database.write() as connection:
        connection.execute(insert(bans).values(**row, start_unix_ms=0, end_unix_ms=end_ms, refuses_jobs=int(refuses)))


def schedule_once(database: ServiceDatabase, folder: Path) -> None:
    """Let a server alone on the database decide once."""
    scheduler(database, folder, "server").step()


@both_ways
def test_an_event_is_due_by_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], ahead_s: int
) -> None:
    now_s = time.time()
    with database.write() as connection:
        row = {"id": "w", "tenant": "default", "url": "https://example.org/", "sealed": "", "dropped": 0}
        connection.execute(insert(webhook_table).values(**row, states=json.dumps(["waiting"]), created_unix_ms=0))
    step_clock(ahead_s)
    submit(database)
    with database.read() as connection:
        due_ms = connection.execute(select(deliveries.c.next_unix_ms)).scalar_one()
    assert abs(due_ms / 1000 - now_s) < HOUR_S / 2


@both_ways
def test_a_ban_ends_by_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], tmp_path: Path, ahead_s: int
) -> None:
    is_over, job_id = ahead_s < 0, submit(database)
    ban(database, round((time.time() + ahead_s / 2) * 1000), refuses=False)
    step_clock(ahead_s)
    schedule_once(database, tmp_path)
    with database.read() as connection:
        assert connection.execute(select(jobs.c.state).where(jobs.c.id == job_id)).scalar() == (
            "running" if is_over else "waiting"
        )


@both_ways
def test_a_ban_refuses_jobs_by_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], ahead_s: int
) -> None:
    ban(database, round((time.time() + ahead_s / 2) * 1000), refuses=True)
    step_clock(ahead_s)
    if ahead_s < 0:
        submit(database)
        return
    with pytest.raises(ApiProblem, match="refuses new jobs"):
        submit(database)


@both_ways
def test_a_start_is_recorded_by_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], tmp_path: Path, ahead_s: int
) -> None:
    now_s, job_id = time.time(), submit(database)
    step_clock(ahead_s)
    schedule_once(database, tmp_path)
    with database.read() as connection:
        granted = json.loads(connection.execute(select(jobs.c.granted).where(jobs.c.id == job_id)).scalar_one())
    assert abs(granted["at_unix_ms"] / 1000 - now_s) < HOUR_S / 2


@both_ways
def test_a_schedule_submits_by_the_clock_of_the_database(
    database: ServiceDatabase, step_clock: Callable[[int], None], ahead_s: int
) -> None:
    now_ms = round(time.time() * 1000)
    row = {"id": "s", "tenant": "default", "token": "admin", "cron": "* * * * *", "time_zone": "UTC"}
    row |= {"request": json.dumps(REQUEST), "owned": '["/b"]', "links": "[]", "overlap": "skip", "queued": "[]"}
    times = dict.fromkeys(("created_unix_ms", "last_unix_ms", "next_unix_ms"), now_ms + ahead_s * 500)
    with database.write() as connection:
        connection.execute(insert(schedules).values(**row, **times, submitted=0))
    step_clock(ahead_s)
    ScheduleRunner(database, JobQueue(database)).step(is_scheduling=True)
    with database.read() as connection:
        found = connection.execute(select(jobs.c.id)).scalars().all()
    assert len(found) == (1 if ahead_s < 0 else 0)
