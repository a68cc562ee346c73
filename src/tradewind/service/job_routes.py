"""The routes of a job that was planned: the links of its hops, also those via relays, by which it is scheduled.

A job that may rent machines is planned when it starts first, so until then it counts for its direct link. If the plan
has other links, the job waits until the scheduler grants these, see `job_worker`. While it runs, its plan may be
replaced: then it counts for the links of the new one.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection

from tradewind.model.plan import Plan
from tradewind.model.records import dataclass
from tradewind.service.scheduler.jobs import LINK, SITE, Resource

__all__ = ["JobRoutes", "RoutesInUse", "planned_routes"]


@dataclass(frozen=True)
class JobRoutes:
    """The links of all hops, and the planned rate of all routes together [Gbit/s].

    Each link may carry the whole rate: bytes take the routes that work.
    """

    links: tuple[str, ...]
    rate_gbps: float

    def text(self) -> str:
        """Return the routes as the database keeps them."""
        return json.dumps({"links": self.links, "rate_gbps": self.rate_gbps})

    @staticmethod
    def of_text(text: str | None) -> JobRoutes | None:
        """Return what `text` has kept; None for None."""
        if text is None:
            return None
        kept = json.loads(text)
        return JobRoutes(tuple(kept["links"]), kept["rate_gbps"])

    def uses(self, closed: Collection[Resource]) -> bool:
        """Return whether the routes use something closed that another plan may avoid: a link, or a relay's region.

        A link that is named by its stores counts with every plan.
        """
        hops = [tuple(name.split(">")) for name in self.links if "://" not in name]
        relays = {start for start, _ in hops} & {end for _, end in hops}
        used = {*(Resource(LINK, ">".join(hop)) for hop in hops), *(Resource(SITE, name) for name in relays)}
        return not used.isdisjoint(closed)

    def with_links(self, more: Collection[str]) -> JobRoutes:
        """Return the routes with the links of an earlier plan, so that plans that alternate are all granted."""
        return JobRoutes(tuple(dict.fromkeys((*self.links, *more))), self.rate_gbps)


class RoutesInUse:
    """Follows the routes of a job's run, whose plan may be replaced. `links` are those that it was granted.

    `direct` is as in `planned_routes`.
    """

    def __init__(self, links: Collection[str], direct: str) -> None:
        self._links, self._direct = set(links), direct
        self._plan: Plan | None = None

    @property
    def links(self) -> Collection[str]:
        """The links of the present plan."""
        return self._links

    def has_seen(self, plan: Plan) -> bool:
        """Return whether this plan was recorded last."""
        return plan is self._plan

    def record(self, plan: Plan, write: Callable[[JobRoutes], None]) -> None:
        """Write the routes of the present plan if they have other links than before. If that fails, the next call tries
        again.
        """
        if self.has_seen(plan):
            return
        found = planned_routes(plan, self._direct)
        if found is not None and self._links != set(found.links):
            write(found)
            self._links = set(found.links)
        self._plan = plan


def planned_routes(plan: Plan, direct: str) -> JobRoutes | None:
    """Return the routes of a plan with machines; None for one on the server's own machine.

    `direct` is the scheduler's name of the direct link. If it names a store, whose region only the plan knows, the job
    counts for it, too: limits may be set on that name.
    """
    if plan.overlay is None:
        return None
    places = {gateway.name: gateway.region for gateway in plan.gateways}
    hops = [
        f"{places[start]}>{places[end]}"
        for route in plan.routes
        for start, end in itertools.pairwise(route.nodes)
        if places[start] != places[end]
    ]
    named = [direct] if not hops or "://" in direct else []
    return JobRoutes(
        tuple(dict.fromkeys((*hops, *named))), 0.0 if plan.prediction is None else plan.prediction.throughput_gbps
    )
