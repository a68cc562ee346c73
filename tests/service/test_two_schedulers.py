"""Two servers on one database: one schedules at a time, and an earlier one that does not know it decides nothing."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import func, insert, select, update

from tests.service.local import LEASE_MS, new_database, scheduler
from tradewind.errors import StateError
from tradewind.service import scheduler_lease, scheduling
from tradewind.service.auth import Sender
from tradewind.service.database import ServiceDatabase
from tradewind.service.jobs import JobQueue
from tradewind.service.scheduler_lease import SchedulerLease
from tradewind.service.scheduling import ServiceScheduler
from tradewind.service.scheduling_tables import bans, schedulers
from tradewind.service.tables import jobs

SENDER = Sender("admin", "default", "service_admin", frozenset())
ROOM = 3


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    database = new_database(tmp_path)
    yield database
    database.close()


@pytest.fixture
def server(database: ServiceDatabase, tmp_path: Path) -> Callable[[str], ServiceScheduler]:
    return lambda name: scheduler(database, tmp_path, name, ROOM)


def submit(database: ServiceDatabase, first: int, count: int) -> list[str]:
    request: dict[str, Any] = {"source": "/data/source", "verb": "cp", "recursive": True, "limit_bytes_per_s": None}
    made = []
    for number in range(first, first + count):
        place = f"/data/{number}"
        row, _ = JobQueue(database).submit(SENDER, f"{number}", "", {**request, "destination": [place]}, [place])
        made.append(row.id)
    return made


def running(database: ServiceDatabase) -> int:
    with database.read() as connection:
        count = select(func.count()).select_from(jobs).where(jobs.c.state == "running")
        return int(connection.execute(count).scalar_one())


def expire(database: ServiceDatabase) -> None:
    with database.write() as connection:
        connection.execute(update(schedulers).values(lease_unix_ms=0))


def test_an_earlier_scheduler_starts_nothing(
    database: ServiceDatabase, server: Callable[[str], ServiceScheduler]
) -> None:
    one, two = server("one"), server("two")
    one.step()
    two.step()
    assert (one.is_scheduling, two.is_scheduling) == (True, False)
    submit(database, 0, 4)
    one.step()
    assert running(database) == 4, "two servers with room for three each"
    submit(database, 4, 4)
    expire(database)
    two.step()
    assert running(database) == 2 * ROOM, "it knows what the first one has started"
    with database.write() as connection:
        started = select(jobs.c.id).where(jobs.c.state == "running").limit(1)
        connection.execute(update(jobs).where(jobs.c.id.in_(started)).values(state="done"))
    one.step()
    assert running(database) == 2 * ROOM - 1, "the first one sees room, and may not use it"
    two.step()
    assert running(database) == 2 * ROOM
    assert not one.is_scheduling


def test_the_right_to_schedule_is_kept_during_a_long_pass(
    database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass over very many jobs takes longer than a lease. Its server must not lose the lease each time."""
    monkeypatch.setattr(scheduler_lease, "KEEP_SHARE", 0.0)
    one, two = (SchedulerLease(database, name, LEASE_MS) for name in ("one", "two"))
    assert (one.hold(), two.hold()) == (1, None)
    expire(database)
    one.keep()
    assert two.hold() is None
    expire(database)
    assert two.hold() == 2
    one.keep()
    assert two.hold() == 2, "a server that has lost the right cannot keep it"
    assert one.hold() is None


def test_a_pass_without_progress_loses_the_right_to_schedule(
    database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scheduler_lease, "KEEP_SHARE", 0.0)
    now_s = 1000.0
    monkeypatch.setattr(scheduler_lease, "time", SimpleNamespace(monotonic=lambda: now_s))
    one, two = (SchedulerLease(database, name, LEASE_MS) for name in ("one", "two"))
    assert one.hold() == 1
    for _ in range(30):  # A pass of 30 leases, which does its work.
        now_s += LEASE_MS / 1000
        one.progressed()
        expire(database)
        one.keep()
        assert two.hold() is None
    now_s += LEASE_MS / 1000
    expire(database)
    one.keep()
    assert two.hold() is None, "it may be silent for one lease"
    now_s += 1.0
    expire(database)
    one.keep()
    one.keep()
    assert two.hold() == 2
    assert [record.message for record in caplog.records] == [
        "the scheduler has made no progress for 61 s: another server may schedule"
    ]
    now_s += LEASE_MS / 1000
    assert one.hold() is None, "it learns of it when it goes on"


def test_a_hanging_pass_ends_its_right_and_nothing_else(
    database: ServiceDatabase, server: Callable[[str], ServiceScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the scheduler's lock. Requests get what is in the database, and the server can end."""
    monkeypatch.setattr(scheduling, "ANSWER_WAIT_S", 0.01)
    monkeypatch.setattr(scheduling, "LEAVE_WAIT_S", 0.01)
    one, two, hangs, goes_on = server("one"), server("two"), threading.Event(), threading.Event()
    (name,) = submit(database, 0, 1)
    one.step()
    submit(database, 1, 1)

    def hang(*_: object) -> Any:
        hangs.set()
        assert goes_on.wait(60)
        return []

    monkeypatch.setattr(one, "_carry_out", hang)
    thread = threading.Thread(target=one.step)
    thread.start()
    try:
        assert hangs.wait(60)
        assert one.answer(name) is None
        expire(database)
        two.step()
        assert two.is_scheduling and running(database) == 2
        one.leave()
    finally:
        goes_on.set()
        thread.join()


def test_each_part_of_a_pass_is_progress(
    database: ServiceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass over many jobs reports after each one, so it may take as long as it needs."""
    count = 0

    def progressed(self: SchedulerLease) -> None:
        nonlocal count
        count += 1

    monkeypatch.setattr(SchedulerLease, "progressed", progressed)
    submit(database, 0, 20)
    scheduler(database, tmp_path, "one", ROOM).step()
    assert count > 2 * 20


def test_the_reasons_in_the_database_are_those_of_the_scheduler(
    database: ServiceDatabase, server: Callable[[str], ServiceScheduler]
) -> None:
    one = server("one")
    names = submit(database, 0, ROOM + 3)
    one.step()
    waiting = 0
    for name in names:
        row, answer = JobQueue(database).find(name), one.answer(name)
        assert row is not None
        assert answer is not None
        sentence, eta = answer
        assert row.waiting == sentence
        assert eta is not None
        assert row.latest_unix_ms is not None
        assert abs(row.latest_unix_ms / 1000 - eta.latest_s) < 0.1 * (eta.latest_s - row.created_unix_ms / 1000)
        waiting += row.state == "waiting"
    assert waiting == 3
    two = server("two")
    expire(database)
    two.step()
    for name in names:
        row, answer = JobQueue(database).find(name), two.answer(name)
        assert row is not None
        assert answer is not None
        assert (row.state == "waiting") == (answer[0] is not None)


def test_a_ban_that_was_set_during_an_error_stops_its_jobs(
    database: ServiceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next pass reads again the changes that a pass has read before its error."""
    monkeypatch.setattr(scheduling, "PROGRESS_EVERY_S", 0.0)
    one = scheduler(database, tmp_path, "one", ROOM, locked)
    (name,) = submit(database, 0, 1)
    one.step()
    row = {"id": "b", "kind": "store-in", "name": "local", "reason": "none", "start_unix_ms": 0}
    more = {"end_unix_ms": None, "stops_jobs": 1, "refuses_jobs": 0, "is_maintenance": 0}
    with database.write() as connection:
        connection.execute(update(jobs).values(engine_job="e"))
        connection.execute(insert(bans).values(**row, **more))
    with pytest.raises(StateError):
        one.step()
    with database.write() as connection:
        connection.execute(update(jobs).values(engine_job=None))
    one.step()
    found = JobQueue(database).find(name)
    assert found is not None and (found.state, found.waiting) == ("stopping", "ban b: none")


def locked(job_id: str) -> None:
    raise StateError(f"job {job_id}: the database is locked")


def test_answers_that_could_not_be_written_are_written_later(
    database: ServiceDatabase, server: Callable[[str], ServiceScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "ANSWER_EVERY_S", 0.0)
    monkeypatch.setattr(scheduling, "ANSWER_SHARE", 1e9)
    one = server("one")
    submit(database, 0, ROOM + 1)
    with monkeypatch.context() as patched:
        for name in ("set_waiting", "set_ends"):
            patched.setattr(JobQueue, name, not_written)
        with pytest.raises(StateError):
            one.step()
    assert answers(database) == [(None, False)] * (ROOM + 1)
    one.step()
    assert sorted(is_known for _, is_known in answers(database)) == [True] * (ROOM + 1)
    assert [sentence is not None for sentence, _ in answers(database)] == [False] * ROOM + [True]


def not_written(*_: object) -> None:
    raise StateError("the database is locked")


def answers(database: ServiceDatabase) -> list[tuple[str | None, bool]]:
    query = select(jobs.c.waiting, jobs.c.earliest_unix_ms).order_by(jobs.c.id)
    with database.read() as connection:
        return [(row.waiting, row.earliest_unix_ms is not None) for row in connection.execute(query)]
