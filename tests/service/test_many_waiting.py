"""More waiting jobs than the scheduler reads: those of one tenant hide neither the jobs of others, nor their ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import insert

from tests.service.local import copy_request, new_database, scheduler
from tradewind.service import scheduling, scheduling_rows
from tradewind.service.auth import SCOPES_OF_ROLE, Sender
from tradewind.service.database import ServiceDatabase
from tradewind.service.jobs import JobQueue
from tradewind.service.scheduling_tables import bans
from tradewind.service.tables import tenants


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    with closing(new_database(tmp_path)) as database:
        with database.write() as connection:
            for name in ("first", "second", "third"):
                connection.execute(insert(tenants).values(name=name, created_unix_ms=0))
        yield database


def submitted(database: ServiceDatabase, folder: Path, tenant: str, name: str) -> str:
    sender = Sender("token", tenant, "operator", SCOPES_OF_ROLE["operator"])
    request = {**copy_request(folder), "destination": [str(folder / name)]}
    row, _ = JobQueue(database).submit(sender, name, name, request, [str(folder / name)])
    return row.id


def close(database: ServiceDatabase, tenant: str) -> None:
    """Set a ban on a tenant that never ends."""
    with database.write() as connection:
        row = {"id": f"b-{tenant}", "kind": "tenant", "name": tenant, "reason": "closed", "start_unix_ms": 0}
        flags = {"stops_jobs": 0, "refuses_jobs": 0, "is_maintenance": 0}
        connection.execute(insert(bans).values(**row, **flags))


def test_the_jobs_of_one_tenant_do_not_hide_those_of_others(
    database: ServiceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling_rows, "PASS_JOBS_MAX", 3)
    close(database, "first")
    for number in range(5):
        submitted(database, tmp_path, "first", f"first-{number}")
    later = submitted(database, tmp_path, "second", "second")
    scheduler(database, tmp_path, "this").step()
    assert JobQueue(database).get("second", later).state == "running"


def test_a_run_that_has_failed_frees_its_place_if_others_wait_first(
    database: ServiceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "FIRST_JOBS_EVERY_S", 0.0)
    queue = JobQueue(database)
    ids = [submitted(database, tmp_path, "first", f"first-{number}") for number in range(3)]
    assert queue.move(ids[0], ("waiting",), "paused") and queue.move(ids[1], ("waiting",), "paused")
    this = scheduler(database, tmp_path, "this", jobs_max=1)
    this.step()
    assert queue.get("first", ids[2]).state == "running"
    third = submitted(database, tmp_path, "third", "third")
    monkeypatch.setattr(scheduling_rows, "PASS_JOBS_MAX", 2)
    monkeypatch.setattr(scheduling_rows, "FIRST_JOBS_OF_TENANT", 1)
    later_ms = database.now_unix_ms() + 3_600_000
    kind, counts = "transient", '{"transient": 1}'
    assert queue.move(ids[2], ("running",), "waiting", failures=counts, failure=kind, not_before_unix_ms=later_ms)
    assert queue.move(ids[0], ("paused",), "waiting") and queue.move(ids[1], ("paused",), "waiting")
    close(database, "first")
    this.step()
    assert queue.get("third", third).state == "running"
