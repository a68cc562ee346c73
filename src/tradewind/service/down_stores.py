"""Stores that do not answer: their jobs wait without using attempts, until a probe gets an answer.

A store of the server is down for all tenants. One that a connection leads to is down for the connection's tenant alone:
endpoint and region are what the tenant has written, so they must not hold up others. Probes of connections send no
credentials; a refusal is an answer, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import delete, exists, insert, select

from tradewind.engine.tasks import store_answers
from tradewind.model.records import dataclass
from tradewind.model.store import Access
from tradewind.service.database import ServiceDatabase
from tradewind.service.limits import PROBE_S_MAX
from tradewind.service.scheduler.retry import STORE_DOWN
from tradewind.service.scheduling_tables import down_stores
from tradewind.service.tables import jobs

__all__ = ["AskedStore", "answers", "first_down", "forget_unused", "note_down", "note_up", "stores_down"]


@dataclass(frozen=True)
class AskedStore:
    """A store, as limits name it, and its URL. `tenant` is empty for a store of the server.

    `endpoint` and `region` are those of the tenant's connection.
    """

    store: str
    url: str
    tenant: str = ""
    endpoint: str | None = None
    region: str | None = None

    @property
    def access(self) -> Access:
        """Access without credentials of a tenant."""
        return Access(self.endpoint, self.region, anonymous=True, is_given=True) if self.tenant else Access()


def answers(gateway: str | None, store: AskedStore) -> bool:
    """Return whether a store answers. Raises UsageError, GatewayError."""
    return store_answers(gateway, store.url, store.access, timeout_s=PROBE_S_MAX)


def first_down(gateway: str | None, stores: Iterable[AskedStore]) -> AskedStore | None:
    """Return the first store that does not answer; None if all do. Raises UsageError, GatewayError."""
    return next((one for one in stores if not answers(gateway, one)), None)


def note_down(database: ServiceDatabase, store: AskedStore) -> None:
    """Record that a store does not answer. Raises StateError."""
    row = {name: getattr(store, name) for name in AskedStore.__dataclass_fields__}
    with database.write() as connection:
        if connection.execute(select(down_stores.c.url).where(*_is(store))).first() is None:
            connection.execute(insert(down_stores).values(**row, since_unix_ms=database.clock_ms))


def note_up(database: ServiceDatabase, store: AskedStore) -> None:
    """Record that a store answers again. Raises StateError."""
    with database.write_rows() as connection:
        connection.execute(delete(down_stores).where(*_is(store)))


def stores_down(database: ServiceDatabase) -> list[AskedStore]:
    """Return the stores that do not answer. Raises StateError."""
    query = select(*(down_stores.c[name] for name in AskedStore.__dataclass_fields__))
    with database.read() as connection:
        return [AskedStore(**row) for row in connection.execute(query).mappings()]


def forget_unused(database: ServiceDatabase) -> None:
    """Ask a tenant's store no more if no job of the tenant waits for one. Raises StateError."""
    waits = exists().where(
        jobs.c.state == "waiting", jobs.c.failure == STORE_DOWN, jobs.c.tenant == down_stores.c.tenant
    )
    unused = down_stores.c.tenant != "", ~waits
    with database.read() as connection:
        if connection.execute(select(down_stores.c.store).where(*unused).limit(1)).first() is None:
            return
    with database.write_rows() as connection:
        connection.execute(delete(down_stores).where(*unused))


def _is(store: AskedStore) -> tuple[Any, Any]:
    return down_stores.c.store == store.store, down_stores.c.tenant == store.tenant
