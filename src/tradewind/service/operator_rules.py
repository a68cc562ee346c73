"""The operator's rules for a plan: places that are closed, by bans or by limits of 0, and limits of rates.

The scheduler applies all rules when a job starts. A plan is made with them in mind, so that it uses nothing that is
closed, and a quote promises no rate that the limits do not allow.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection

from tradewind.engine.closed import ClosedPlaces
from tradewind.engine.engine import Engine
from tradewind.engine.proposal import Proposal, Request
from tradewind.errors import InfeasibleGoal, StateError
from tradewind.fleet.given import GivenCredentials
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region
from tradewind.service.database import ServiceDatabase, database_unix_ms
from tradewind.service.faults import Faults
from tradewind.service.job_routes import JobRoutes
from tradewind.service.limits import RULES_EVERY_S
from tradewind.service.links import link_end, sites_on
from tradewind.service.scheduler.events import BandwidthSold
from tradewind.service.scheduler.jobs import LINK, RATE_SHARE_MIN, SITE, STORE_IN, STORE_OUT, TENANT, Resource
from tradewind.service.scheduler.limits import ROUNDING, ResourceLimit
from tradewind.service.scheduling_rules import bandwidth_sold_now, closed_now, limits_of_resources
from tradewind.service.stores import stores_of

__all__ = ["ClosedToRun", "OperatorRules", "PresentRules", "operator_rules"]


@dataclass(frozen=True)
class OperatorRules:
    """The rules that are in force, and what tenants have bought of links for the present hour."""

    closed: frozenset[Resource]
    limits: Mapping[Resource, ResourceLimit]
    sold: Sequence[BandwidthSold] = ()

    def proposed(self, engine: Engine, request: Request, credentials: GivenCredentials | None) -> Proposal:
        """Return a proposal that goes around what is closed if it can; otherwise its job waits for what it uses.

        Raises InfeasibleGoal if there is no plan even without the rules; see `Engine.propose`.
        """
        try:
            return engine.propose(self.around_closed(request), credentials=credentials)
        except InfeasibleGoal:
            return engine.propose(request, credentials=credentials)

    def around_closed(self, request: Request) -> Request:
        """Return a request whose plan uses no closed region or link."""
        closed = self.closed_places
        return replace(request, closed_regions=tuple(sorted(closed.regions)), closed_links=tuple(sorted(closed.links)))

    @property
    def closed_places(self) -> ClosedPlaces:
        """The regions and links that are closed."""
        return _places(self.closed)

    def closed_to(self, links: Collection[str], rate_gbps: float) -> ClosedPlaces:
        """Return what a running job leaves or does not enter, which uses `links` and was granted a rate.

        It may not enter a resource whose limit is below that rate: the scheduler would stop it there. One that it
        already uses, it uses on, because limits are for jobs that start.
        """
        used = {*(Resource(LINK, name) for name in links), *(Resource(SITE, name) for name in sites_on((), links))}
        narrow = {one for one, limit in self.limits.items() if limit.rate_gbps < rate_gbps * (1 - ROUNDING)}
        return _places(self.closed | (narrow - used))

    def rate_gbps(self, tenant: str, document: Mapping[str, Any], routes: JobRoutes) -> float:
        """Return the highest rate that the limits allow a job on its routes, if nothing else runs [Gbit/s].

        What other tenants have bought is left out, as long as the scheduler would start a job with the rest: otherwise
        the job waits for the end of the hour, instead of being slow.
        """
        used = _resources(tenant, document, routes)
        return min((self._rate_of(one, tenant) for one in used if one in self.limits), default=math.inf)

    def _rate_of(self, resource: Resource, tenant: str) -> float:
        limit_gbps = self.limits[resource].rate_gbps or math.inf
        others = (one for one in self.sold if one.resource == resource and one.tenant != tenant)
        left_gbps = limit_gbps - sum(one.rate_gbps for one in others)
        return left_gbps if left_gbps >= limit_gbps * RATE_SHARE_MIN else limit_gbps


class PresentRules:
    """The rules for all running jobs of a server, read again after RULES_EVERY_S. Any thread may use it.

    They are read in a thread of its own. An answer of the database can take minutes, and the thread of a run must
    notice in time that its lease has ended: another server then runs the job.
    """

    def __init__(self, database: ServiceDatabase, faults: Faults) -> None:
        self._database, self._faults, self._lock = database, faults, threading.Lock()
        self._rules: OperatorRules | None = None
        self._read_s, self._again_s = -math.inf, 0.0
        #: The thread that reads the rules now, or did so last.
        self.reading: threading.Thread | None = None

    def latest(self, since_s: float) -> OperatorRules | None:
        """Return the rules as they were read last, the same object until they change; None if they were not read since
        a time of the monotonic clock. Does not wait.
        """
        with self._lock:
            is_reading = self.reading is not None and self.reading.is_alive()
            if not is_reading and time.monotonic() >= self._again_s:
                self._again_s = time.monotonic() + RULES_EVERY_S
                self.reading = threading.Thread(target=self._read, name="operator rules", daemon=True)
                self.reading.start()
            return self._rules if self._read_s >= since_s else None

    def _read(self) -> None:
        # After a failure the next thread tries again. Until then the rules are those that were read last.
        with suppress(StateError), self._faults.caught("jobs", recovers=False):
            began_s = time.monotonic()
            with self._database.read() as connection:
                found = operator_rules(connection)
            with self._lock:
                self._read_s = began_s
                if found != self._rules:
                    self._rules = found


class ClosedToRun:
    """Tells a run what is closed to it. Rules that have not changed are not searched again: there may be many.

    `granted` is what the run was started with, and `tell` is called with each change.
    """

    def __init__(self, granted: str | None, tell: Callable[[ClosedPlaces], None]) -> None:
        self._granted_gbps: float = 0.0 if granted is None else json.loads(granted)["rate_gbps"]
        self._tell = tell
        self._rules: OperatorRules | None = None
        self._links: Collection[str] | None = None

    def look(self, rules: OperatorRules, links: Collection[str]) -> None:
        """Compare rules and links with those of the last call, as objects."""
        if rules is not self._rules or links is not self._links:
            self._rules, self._links = rules, links
            self._tell(rules.closed_to(links, self._granted_gbps))


def operator_rules(connection: Connection) -> OperatorRules:
    """Return the rules that are in force by the database's clock."""
    now_ms = database_unix_ms(connection)
    limits = limits_of_resources(connection)
    closed = frozenset(closed_now(connection, now_ms, limits))
    return OperatorRules(closed, limits, bandwidth_sold_now(connection, now_ms))


def _resources(tenant: str, document: Mapping[str, Any], routes: JobRoutes) -> Iterable[Resource]:
    source, ends = stores_of(document)
    yield Resource(STORE_OUT, source)
    yield from (Resource(STORE_IN, name) for name in ends)
    yield from (Resource(LINK, name) for name in routes.links)
    yield from (Resource(SITE, name) for name in sites_on([link_end(source), *map(link_end, ends)], routes.links))
    yield Resource(TENANT, tenant)


def _places(closed: Collection[Resource]) -> ClosedPlaces:
    """Return the regions and links among closed resources."""
    links = (_regions(one.name) for one in closed if one.kind == LINK)
    return ClosedPlaces(
        frozenset(region for one in closed if one.kind == SITE for region in _regions(one.name)),
        frozenset((link[0], link[1]) for link in links if len(link) == 2),
    )


def _regions(name: str) -> list[Region]:
    """Return the regions of a site or link; none if an end is a store."""
    if "://" in name:
        return []
    try:
        return [Region.parse(end) for end in name.split(">")]
    except ValueError:
        return []
