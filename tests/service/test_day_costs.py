"""Limits of the cost per day count jobs without quotes, too: with their ceilings, and later with their charges."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from tests.service.local import new_database, scheduler
from tradewind.service.auth import Sender
from tradewind.service.database import ServiceDatabase
from tradewind.service.jobs import JobQueue
from tradewind.service.machines import MachineRules
from tradewind.service.scheduling import ServiceScheduler
from tradewind.service.scheduling_tables import resource_limits
from tradewind.service.tables import jobs

SENDER = Sender("admin", "default", "service_admin", frozenset())
RULES = MachineRules("auto", usd_max=6.0)
REQUEST = {"source": "s3://a/in/", "destination": ["s3://b/out/"], "verb": "cp", "recursive": True}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    database = new_database(tmp_path)
    with database.write() as connection:
        limit = {"kind": "tenant", "name": "default", "usd_per_day": 10.0}
        connection.execute(insert(resource_limits).values(**limit))
    yield database
    database.close()


def submit(database: ServiceDatabase, name: str, **others: object) -> str:
    request = {**REQUEST, "limit_bytes_per_s": None, **others}
    row, _ = JobQueue(database).submit(SENDER, name, name, request, [f"s3://b/{name}"])
    return row.id


def end(database: ServiceDatabase, job_id: str, usd: float, state: str = "done", **others: Any) -> None:
    receipt = {"progress": {"bytes_done": 1}, "runs": [], "cost": {"lines": [], "metered_usd": usd}}
    assert JobQueue(database).move(job_id, ("running",), state, receipt=json.dumps(receipt), **others)


def running(database: ServiceDatabase) -> set[str]:
    with database.read() as connection:
        return set(connection.execute(select(jobs.c.id).where(jobs.c.state == "running")).scalars())


@pytest.fixture
def one(database: ServiceDatabase, tmp_path: Path) -> ServiceScheduler:
    return scheduler(database, tmp_path, "one", rules=RULES)


def test_a_job_counts_with_its_ceiling_until_it_has_ended(database: ServiceDatabase, one: ServiceScheduler) -> None:
    first, second = submit(database, "first"), submit(database, "second")
    one.step()
    assert running(database) == {first}
    why, _ = one.answer(second) or (None, None)
    assert why == "The limit of tenant default is reached: cost per day."
    end(database, first, 1.0)
    one.step()
    assert running(database) == {second}


def test_a_job_counts_with_its_own_lower_ceiling_and_one_without_machines_with_nothing(
    database: ServiceDatabase, one: ServiceScheduler
) -> None:
    cheap = {submit(database, f"{number}", max_cost_usd=3.0) for number in range(3)}
    here = submit(database, "here", via="here")
    one.step()
    assert running(database) == {*cheap, here}
    dear = submit(database, "dear")
    one.step()
    assert dear not in running(database)
    end(database, here, 5.0)
    one.step()
    for job_id in cheap:
        end(database, job_id, 0.0)
    one.step()
    assert dear not in running(database), "what ran on the server's own machine has cost 5 USD, too"


@pytest.mark.parametrize(("usd", "starts"), [(3.5, True), (4.5, False)])
def test_a_run_that_failed_counts_what_it_has_cost(
    database: ServiceDatabase, one: ServiceScheduler, usd: float, starts: bool
) -> None:
    first, second = submit(database, "first"), submit(database, "second")
    one.step()
    assert running(database) == {first}
    end(database, first, usd, "waiting", failures='{"transient": 1}', failure="transient")
    one.step()
    assert running(database) == ({second} if starts else set())


def test_the_next_scheduler_counts_what_was_charged_today(
    database: ServiceDatabase, one: ServiceScheduler, tmp_path: Path
) -> None:
    first = submit(database, "first")
    one.step()
    end(database, first, 4.5)
    one.step()
    one.leave()
    two = scheduler(database, tmp_path, "two", rules=RULES)
    second = submit(database, "second")
    two.step()
    assert running(database) == set(), "4.5 USD and a ceiling of 6 are too much"
    assert JobQueue(database).move(second, ("waiting",), "cancelled")
    two.step()
    cheap = submit(database, "cheap", max_cost_usd=5.0)
    two.step()
    assert running(database) == {cheap}
