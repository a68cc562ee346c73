"""Bans, drains and maintenance windows: resources that operators have closed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from tradewind.model.records import dataclass
from tradewind.service.scheduler.jobs import STORE_IN, STORE_OUT, TENANT, Resource

__all__ = ["Ban", "Bans"]


@dataclass(frozen=True)
class Ban:
    """No job starts on the resource from `start_s` until `end_s`.

    Running jobs finish (a drain), or stop if `stops_jobs`. New jobs are accepted and wait, unless `refuses_jobs`. A
    maintenance window is a ban whose times are known before. To ban a whole store, ban its reads and its writes.
    """

    id: str
    resource: Resource
    reason: str
    start_s: float = 0.0
    end_s: float = math.inf
    stops_jobs: bool = False
    refuses_jobs: bool = False


class Bans:
    """All bans that have not ended."""

    def __init__(self) -> None:
        self._bans: dict[str, Ban] = {}
        self._of: dict[Resource, dict[str, Ban]] = {}

    def add(self, ban: Ban) -> None:
        """Add a ban, or replace the one with this id."""
        self.lift(ban.id)
        self._bans[ban.id] = ban
        self._of.setdefault(ban.resource, {})[ban.id] = ban

    def lift(self, ban_id: str) -> Ban | None:
        """Remove a ban and return it; None if there is none with this id."""
        ban = self._bans.pop(ban_id, None)
        if ban:
            del self._of[ban.resource][ban_id]
            if not self._of[ban.resource]:
                del self._of[ban.resource]
        return ban

    @property
    def exist(self) -> bool:
        """Return whether there is a ban that has not ended."""
        return bool(self._bans)

    def get(self, ban_id: str) -> Ban | None:
        """Return a ban by its id."""
        return self._bans.get(ban_id)

    def in_force(self, resources: Iterable[Resource], now_s: float) -> Ban | None:
        """Return a ban that is in force on one of the resources, or None."""
        return next(self._all_in_force(resources, now_s), None)

    def stopping(self, resources: Iterable[Resource], now_s: float) -> Ban | None:
        """Return a ban in force on one of the resources that stops running jobs, or None."""
        return next((ban for ban in self._all_in_force(resources, now_s) if ban.stops_jobs), None)

    def opens_s(self, resources: Sequence[Resource], now_s: float) -> float:
        """Return from when on no ban is in force on any of the resources; infinity if a ban has no end."""
        at_s = now_s
        while ends_s := [ban.end_s for ban in self._all_in_force(resources, at_s)]:
            at_s = max(ends_s)
        return at_s

    def coming(self, resources: Iterable[Resource], now_s: float) -> list[Ban]:
        """Return the bans on the resources that begin later, in their order."""
        found = (ban for one in resources if self._of for ban in self._of.get(one, {}).values() if ban.start_s > now_s)
        return sorted(found, key=lambda ban: ban.start_s)

    def _all_in_force(self, resources: Iterable[Resource], now_s: float) -> Iterator[Ban]:
        for resource in resources if self._of else ():
            for ban in self._of.get(resource, {}).values():
                if ban.start_s <= now_s < ban.end_s:
                    yield ban

    def refusing(self, tenant: str, sources: Sequence[str], destinations: Sequence[str], now_s: float) -> Ban | None:
        """Return a ban that refuses a new job: on one of its destinations, its tenant, or its only source."""
        named = [*(Resource(STORE_IN, name) for name in destinations), Resource(TENANT, tenant)]
        if len(sources) == 1:
            named.append(Resource(STORE_OUT, sources[0]))
        return next((ban for ban in self._all_in_force(named, now_s) if ban.refuses_jobs), None)
