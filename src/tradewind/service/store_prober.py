"""Asks stores that are down until they answer: all of the server, and each tenant's in turns.

Tenants write the endpoints of their connections, and may have many that never answer. So each round asks one store of a
tenant, and a few tenants: those that were asked longest ago.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tradewind.service.database import ServiceDatabase
from tradewind.service.down_stores import AskedStore, answers, forget_unused, note_up, stores_down
from tradewind.service.limits import TENANT_PROBES_AT_ONCE

__all__ = ["StoreProber"]


class StoreProber:
    """Asks the stores that are down in the database. `woken` is called when one answers."""

    def __init__(self, database: ServiceDatabase, gateway: str | None, woken: Callable[[], None]) -> None:
        self._database, self._gateway, self._woken = database, gateway, woken
        #: Round in which each store was asked last.
        self._asked: dict[AskedStore, int] = {}
        self._round = 0

    def step(self) -> None:
        """Ask once. Raises StateError, UsageError, GatewayError."""
        forget_unused(self._database)
        chosen = self._chosen(stores_down(self._database))
        if not chosen:
            return
        with ThreadPoolExecutor(len(chosen), thread_name_prefix="probe") as pool:
            up = [one for one, is_up in zip(chosen, pool.map(self._answers, chosen), strict=True) if is_up]
        for store in up:
            note_up(self._database, store)
            self._woken()

    def _answers(self, store: AskedStore) -> bool:
        return answers(self._gateway, store)

    def _chosen(self, down: list[AskedStore]) -> list[AskedStore]:
        """Return the stores of the server, and those of tenants whose turn it is."""
        self._round += 1
        self._asked = {store: self._asked.get(store, 0) for store in down}
        own = [store for store in down if not store.tenant]
        by_tenant: dict[str, list[AskedStore]] = {}
        for store in sorted((one for one in down if one.tenant), key=lambda one: self._asked[one]):
            by_tenant.setdefault(store.tenant, []).append(store)
        # The last store of a tenant was asked in the tenant's last turn.
        tenants = sorted(by_tenant, key=lambda tenant: self._asked[by_tenant[tenant][-1]])
        turns = [by_tenant[tenant][0] for tenant in tenants[:TENANT_PROBES_AT_ONCE]]
        self._asked.update(dict.fromkeys(turns, self._round))
        return [*own, *turns]
