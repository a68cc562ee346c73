"""Stores that are down: who waits for them, and in which order they are asked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update

from tests.service.local import new_database
from tradewind.model.store import Access
from tradewind.service import down_stores, store_prober
from tradewind.service.auth import Sender
from tradewind.service.connections import ConnectionBook
from tradewind.service.database import ServiceDatabase
from tradewind.service.down_stores import AskedStore, forget_unused, note_down, stores_down
from tradewind.service.jobs import JobQueue
from tradewind.service.sealing import Sealer
from tradewind.service.settings import ServiceSettings
from tradewind.service.store_prober import StoreProber
from tradewind.service.tables import connections, jobs, tenants

REQUEST = {"source": "/a", "destination": ["s3://bucket/in/x"], "verb": "cp", "recursive": True}
CONNECTIONS = {"source": None, "destination": ["data"], "stores": ["local", "s3://s3.lab.example:443/bucket"]}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    database = new_database(tmp_path)
    yield database
    database.close()


def waiting_job(database: ServiceDatabase, tenant: str) -> None:
    """Submit a job of a new tenant, which waits for a store that is down."""
    with database.write() as connection:
        connection.execute(insert(tenants).values(name=tenant, created_unix_ms=0))
    sender = Sender("admin", tenant, "operator", frozenset())
    row, _ = JobQueue(database).submit(
        sender, "k", "digest", {**REQUEST, "limit_bytes_per_s": None}, [f"s3://{tenant}"]
    )
    with database.write() as connection:
        connection.execute(update(jobs).where(jobs.c.id == row.id).values(failure="store-down"))


def test_a_connection_is_asked_at_its_own_server_without_credentials(
    database: ServiceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ServiceSettings(tmp_path / "state", allow_endpoints=("https://s3.lab.example",))
    row = {"place": "s3://bucket/in/", "endpoint": "https://s3.lab.example", "region": "lab-1", "sealed": ""}
    with database.write() as connection:
        connection.execute(
            insert(connections).values(tenant="default", name="data", created_unix_ms=0, replaced_unix_ms=0, **row)
        )
    book = ConnectionBook(database, Sealer(bytes(32)), settings)
    (asked,) = book.asked_stores("default", {**REQUEST, "connections": CONNECTIONS})
    assert (asked.store, asked.tenant) == ("s3://s3.lab.example:443/bucket", "default")
    seen: list[tuple[Any, ...]] = []

    def noted(*words: Any, timeout_s: float) -> bool:
        seen.append(words)
        return timeout_s > 0

    monkeypatch.setattr(down_stores, "store_answers", noted)
    assert down_stores.answers("gateway", asked)
    access = Access("https://s3.lab.example", "lab-1", anonymous=True, is_given=True)
    assert seen == [("gateway", "s3://bucket", access)]
    assert book.asked_stores("default", REQUEST) == [AskedStore("s3://bucket", "s3://bucket")]
    assert book.asked_stores("other", {**REQUEST, "connections": CONNECTIONS}) == []


def test_a_tenant_with_many_dead_stores_does_not_delay_the_others(
    database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = AskedStore("s3://own", "s3://own")
    many = [AskedStore(f"s3://{number}", f"s3://{number}", "many", None, "nowhere") for number in range(9)]
    others = [AskedStore("s3://a", "s3://a", f"t{number}") for number in range(6)]
    for tenant in ("many", *(one.tenant for one in others)):
        waiting_job(database, tenant)
    for store in [*many, own, *others]:
        note_down(database, store)
    asked: list[AskedStore] = []

    def silent(_: str | None, store: AskedStore) -> bool:
        asked.append(store)
        return False

    monkeypatch.setattr(store_prober, "answers", silent)
    prober = StoreProber(database, None, lambda: None)
    for _ in range(2):
        prober.step()
    assert asked.count(own) == 2
    assert {one.tenant for one in asked} == {"", "many", *(one.tenant for one in others)}
    assert max(sum(one.tenant == tenant for one in asked) for tenant in ("many", "t0")) <= 2


def test_a_store_that_answers_is_forgotten_for_its_tenant_alone(
    database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [AskedStore("s3://a", "s3://a", tenant) for tenant in ("one", "two")]
    for store in stores:
        waiting_job(database, store.tenant)
        note_down(database, store)
    woken: list[bool] = []
    monkeypatch.setattr(store_prober, "answers", lambda _, store: store.tenant == "one")
    StoreProber(database, None, lambda: woken.append(True)).step()
    assert stores_down(database) == [stores[1]]
    assert woken == [True]


def test_a_store_that_no_job_waits_for_is_asked_no_more(database: ServiceDatabase) -> None:
    own, gone = AskedStore("s3://own", "s3://own"), AskedStore("s3://a", "s3://a", "default")
    for store in (own, gone):
        note_down(database, store)
    forget_unused(database)
    assert stores_down(database) == [own]
