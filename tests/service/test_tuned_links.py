"""Links that the scheduler tunes: its decisions are stored, limit the next jobs, and are shown to operators."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from testbed.postgres import Postgres
from testbed.servers import InstallError
from tests.service.local import new_database, scheduler
from tests.service.server import Server, submit, until
from tests.service.test_two_schedulers import expire, running
from tests.service.test_two_schedulers import submit as submit_rows
from tradewind.model.event import LimitChanged, Progress, StageLimit, StageLimits
from tradewind.model.program import GatewayLimits
from tradewind.service import link_decisions as decisions
from tradewind.service import scheduling
from tradewind.service.database import ServiceDatabase
from tradewind.service.engine_request import engine_request, limited
from tradewind.service.jobs import JobLease, JobQueue
from tradewind.service.link_decisions import decisions_page, record_gateway_decisions, record_tunings, restored_links
from tradewind.service.link_tables import link_decisions, tuned_links
from tradewind.service.scheduler import tuning
from tradewind.service.scheduler.events import TuneLink
from tradewind.service.scheduler.tuning import REQUESTS_MAX, Tuning
from tradewind.service.tables import jobs

LOCAL = "site:local>site:local"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    database = new_database(tmp_path)
    yield database
    database.close()


def rows(database: ServiceDatabase, link: str | None = LOCAL) -> list[dict[str, Any]]:
    with database.read() as connection:
        return decisions_page(connection, link=link, before=None, limit=1000)


def progressed(bytes_done: int) -> Progress:
    stages = StageLimits(read=StageLimit(96, 128), write=StageLimit(16, 64))
    return Progress(bytes_done=bytes_done, bytes_total=2 * bytes_done, listed=True, limits=stages)


def test_a_link_is_tuned_and_another_server_continues_with_it(
    database: ServiceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "PROGRESS_EVERY_S", 0.0)
    with database.write() as connection:
        record_tunings(connection, [TuneLink(LOCAL, 4, 16, 16, 0.1, 1.0)], 0)
    one, now_s = scheduler(database, tmp_path, "one", 50, lambda _: progressed(10**9)), time.time()
    monkeypatch.setattr(one, "_now_s", lambda: now_s)
    submit_rows(database, 0, 12)
    one.step()
    assert running(database) == 4
    with database.read() as connection:
        waiting = connection.execute(select(jobs.c.waiting).where(jobs.c.state == "waiting")).scalars().all()
    assert set(waiting) == {
        "The limit of link site:local>site:local is reached: active jobs, as its goodput and errors allow."
    }
    with database.write() as connection:
        connection.execute(update(jobs).where(jobs.c.state == "running").values(engine_job="e"))
    one.step()
    now_s += tuning.TUNE_EVERY_S
    one.step()
    (newest,) = rows(database)
    assert (newest["what"], newest["before"], newest["now"], newest["job"]) == ("jobs", 4, 5, None)
    assert newest["reason"] == "4 → 5 jobs: others waited while 4 moved 1.12 Gbit/s"
    assert running(database) == 5
    with database.write() as connection:
        one_running = select(jobs.c.id).where(jobs.c.engine_job == "e").limit(1)
        connection.execute(update(jobs).where(jobs.c.id.in_(one_running)).values(state="done"))
    one.step()
    now_s += tuning.TUNE_EVERY_S
    one.step()
    assert rows(database)[0]["reason"] == "16 → 26 requests to the source at first: earlier jobs ended with about 26"
    with database.read() as connection:
        (kept,) = connection.execute(select(tuned_links)).mappings()
    assert (kept["link"], kept["success"], kept["read_requests"], kept["write_requests"]) == (LOCAL, 1.0, 26, 16)
    with database.write() as connection:
        connection.execute(update(jobs).where(jobs.c.state == "running").values(state="done"))
    assert not kept["is_starting"]
    two = scheduler(database, tmp_path, "two", 50)
    expire(database)
    two.step()
    assert running(database) == kept["jobs_max"] == 5, "it starts no more than the first one may"
    assert json.loads(newest_granted(database))["requests"] == {"read": 26, "write": 16}


def newest_granted(database: ServiceDatabase) -> str:
    with database.read() as connection:
        found: str = connection.execute(select(jobs.c.granted).where(jobs.c.granted.is_not(None))).scalars().all()[-1]
    return found


def test_nothing_is_tuned_if_that_is_off(database: ServiceDatabase, tmp_path: Path) -> None:
    one = scheduler(database, tmp_path, "one", 50, tunes_links=False)
    submit_rows(database, 0, 20)
    one.step()
    assert running(database) == 20
    assert json.loads(newest_granted(database))["requests"] is None


def test_a_job_begins_with_the_requests_that_it_was_granted() -> None:
    places = {"source": "/a", "destination": ["/b"], "verb": "cp", "recursive": True, "delete": False}
    document = {**places, "verify": "auto", "stall_s": 60, "limit_bytes_per_s": None}
    granted = {"requests": {"read": 30, "write": 5}, "is_limited": False}
    options = engine_request(limited(document, json.dumps(granted))).options
    assert (options.read_requests_start, options.write_requests_start, options.limit_bytes_per_s) == (30, 5, None)
    assert engine_request(limited(document, None)).options.read_requests_start is None
    assert GatewayLimits().store_requests_max == REQUESTS_MAX
    assert GatewayLimits().read_requests_start == GatewayLimits().write_requests_start == tuning.REQUESTS_START


def test_decisions_and_links_are_bounded(database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "LINK_DECISIONS_PER_LINK", 3)
    monkeypatch.setattr(decisions, "LINK_DECISIONS_MAX", 8)
    monkeypatch.setattr(decisions, "COUNT_EVERY", 1)
    monkeypatch.setattr(decisions, "TUNED_LINKS_MAX", 4)
    for number in range(10):
        changes = (Tuning("jobs", number, number + 1, f"decision {number}"),)
        for link in ("a", "b") if number < 5 else (f"c{number}",):
            with database.write() as connection:
                record_tunings(connection, [TuneLink(link, number + 1, 16, 16, 1.0, 1.0, changes)], number)
    with database.read() as connection:
        query = select(link_decisions.c.link, func.count()).group_by(link_decisions.c.link)
        counts = {str(link): int(count) for link, count in connection.execute(query)}
        kept = [one.link for one in restored_links(connection)]
    monkeypatch.setattr(decisions, "LINK_DECISIONS_MAX", 100)
    with database.write() as connection:
        changes_of_gateways = [changed("read", 16, 20, "waiting")] * 9
        for _ in range(9):
            decisions._add(connection, "c9", 0, list(decisions._summaries(changes_of_gateways)), job="j")
    assert [one["job"] for one in rows(database, "c9")] == ["j"] * 3 + [None]
    assert counts["b"] <= 3 and sum(counts.values()) == 8
    assert kept == ["c6", "c7", "c8", "c9"]


def test_links_on_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        postgres = Postgres()
    except InstallError as error:
        pytest.skip(str(error))
    with closing(postgres):
        for name, text in postgres.environment.items():
            monkeypatch.setenv(name, text)
        database = ServiceDatabase(tmp_path, postgres.url)
        database.migrate()
        changes = (Tuning("jobs", 16, 20, "a reason"),)
        for number in range(3):
            with database.write() as connection:
                tuned = TuneLink(LOCAL, 20, 16, 16, 1.0, 1.0, changes, is_starting=True)
                record_tunings(connection, [tuned], number)
        with database.read() as connection:
            assert [(one.jobs_max, one.is_starting) for one in restored_links(connection)] == [(20, True)]
        assert [one["reason"] for one in rows(database)] == ["a reason"] * 3
        database.close()


def changed(stage: Any, before: int, now: int, reason: Any, gateway: str = "one") -> LimitChanged:
    return LimitChanged(gateway, stage, "store", before, now, reason)


def test_decisions_of_gateways_are_kept_in_words_under_the_lease(database: ServiceDatabase) -> None:
    (job,) = submit_rows(database, 0, 1)
    with database.write() as connection:
        connection.execute(update(jobs).values(owner="me", epoch=2))
    changes = [
        changed("read", 16, 20, "waiting"),
        changed("read", 20, 25, "waiting"),
        changed("read", 16, 12, "no_gain", "two"),
        changed("write", 16, 8, "slow_down"),
        changed("elsewhere", 1, 2, "waiting"),
    ]
    for epoch in (1, 2):
        with database.write() as connection:
            record_gateway_decisions(connection, JobLease(job, "me", epoch), [LOCAL, LOCAL], changes, epoch)
    found = [(one["what"], one["before"], one["now"], one["reason"], one["job"]) for one in rows(database)]
    assert found == [
        ("write", 16, 8, "16 → 8 requests to the destination: halved once because the store asked for fewer", job),
        (
            "read",
            32,
            37,
            "32 → 37 requests to the source: raised twice because requests waited; "
            "taken back once because more did not raise the rate",
            job,
        ),
    ]


def test_hosts_of_users_and_gateways_displace_no_decisions_of_the_scheduler(
    database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "LINK_DECISIONS_MAX", 5)
    monkeypatch.setattr(decisions, "COUNT_EVERY", 1)
    (job,) = submit_rows(database, 0, 1)
    lease = JobLease(job, "me", 2)
    with database.write() as connection:
        connection.execute(update(jobs).values(owner="me", epoch=2))
        record_tunings(connection, [TuneLink(LOCAL, 20, 16, 16, 1.0, 1.0, (Tuning("jobs", 16, 20, "why"),))], 0)
        record_gateway_decisions(connection, lease, [LOCAL], [changed("read", 16, 20, "waiting")], 0)
    for number in range(20):
        with database.write() as connection:
            record_gateway_decisions(
                connection, lease, [f"guest://{number}>site:local"], [changed("read", 16, 20, "waiting")], 0
            )
    assert {one["link"] for one in rows(database, None)} == {LOCAL} and len(rows(database, None)) == 2
    for number in range(20):
        with database.write() as connection:
            record_gateway_decisions(connection, lease, [f"a>{number}"], [changed("read", 16, 20, "waiting")], 0)
    assert [one["job"] for one in rows(database, None)] == [job] * 5 + [None]


def test_operators_see_a_link_after_its_jobs(tmp_path: Path) -> None:
    server = Server(tmp_path)
    (server.data / "source").mkdir()
    for number in range(300):
        (server.data / "source" / f"{number}").write_bytes(os.urandom(2000))
    server.start()
    try:
        with server.client() as admin:
            job = submit(admin, "k", server.data / "source", server.data / "copy", recursive=True).json()["id"]
            until(admin, job, "done")
            assert admin.get("/v1/links/decisions", params={"link": "other>link"}).json()["decisions"] == []
            found = admin.get("/v1/links/decisions", params={"limit": 1})
            assert found.status_code == 200
            for one in found.json()["decisions"]:
                assert (one["link"], one["job"]) in ((LOCAL, job), (LOCAL, None))
            granted = JobQueue(ServiceDatabase(server.state)).find(job)
            assert granted is not None and granted.granted is not None
            assert json.loads(granted.granted)["requests"] == {"read": 16, "write": 16}
    finally:
        server.kill()
