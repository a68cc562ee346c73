"""A new plan for the rest of a transfer, from the observed rates of its routes. Pure: no I/O, no clock."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

from tradewind.engine.closed import ClosedPlaces
from tradewind.engine.provisioning import pace_bytes_per_s, plan_gateways, usual_goal, with_memory_for
from tradewind.engine.rates import SlowRoutes
from tradewind.engine.sending_tiers import catalogs_of
from tradewind.errors import InfeasibleGoal, TradewindError, UsageError
from tradewind.model.catalog import Catalog
from tradewind.model.goal import Deadline, Goal, MaxCost
from tradewind.model.machine import MachineOffer
from tradewind.model.network_tier import NetworkTier
from tradewind.model.plan import Plan
from tradewind.model.program import CONNECTIONS_MAX
from tradewind.model.records import dataclass, field, replace
from tradewind.model.region import Region
from tradewind.planner.gateways import gateway_stem
from tradewind.planner.network import PlanningLimits

__all__ = [
    "BETTER_PART",
    "PlanRequest",
    "RevisedPlan",
    "TransferState",
    "as_seen",
    "available_machines",
    "ceiling_usd_per_gb",
    "mixed_regions",
    "observed_links",
    "revise_plan",
    "unreachable",
    "with_names",
    "with_names_of",
    "with_types_of",
]

#: A new plan is accepted only if the rest takes at most this share of the time with it, machine boot included.
BETTER_PART = 0.85
#: A route above this share of its planned rate shows that its hops are not the bottleneck of other routes.
UNAFFECTED_PART = 0.9
#: Assumed rate of a link that carries nothing; no plan uses it.
DEAD_GBPS = 1e-9

Hop = tuple[str, str]
RegionPair = tuple[Region, Region]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The question to the planner, which may be asked again."""

    catalog: Catalog
    source: Region
    destination: Region
    goal: Goal | None
    """``None``: that of `usual_goal`, which depends on the remaining volume."""
    limits: PlanningLimits
    chunk_bytes: int
    ceiling_usd: float | None
    """Ceiling on egress, machines and requests together."""
    limit_bytes_per_s: int | None
    """Rate limit set by the user, independent of the plan."""
    objects: int | None = None
    """Total number of objects; ``None`` if they were not counted."""


@dataclass(frozen=True, slots=True)
class TransferState:
    """State of a transfer, including slow links and dead gateways since its start."""

    left_bytes: int
    total_bytes: int
    elapsed_s: float
    carried_gbps: float
    egress_usd: float
    machines_usd: float
    links: Mapping[RegionPair, float]
    """Observed rates [Gbit/s] of machines of the premium tier, or without a choice; those of the standard tier are in
    `standard_links`."""
    dead: Mapping[str, Region]
    """Regions of the dead gateways, by name."""
    requests_usd: float = 0.0
    sent_gb: Mapping[RegionPair, float] = field(default_factory=dict)
    """Volume sent between regions, over all runs: the tiers of egress prices continue from there."""
    standard_sent_gb: Mapping[RegionPair, float] = field(default_factory=dict)
    """The same for machines of the standard network tier, whose volume `sent_gb` does not contain."""
    available: Mapping[Region, int] = field(default_factory=dict)
    """Number of machines that regions provided before they refused more."""
    network_tier_of: Mapping[Region, NetworkTier] = field(default_factory=dict)
    """Network tiers in which regions have sent; they keep them."""
    mixed: Collection[Region] = ()
    """Regions whose machines had both tiers in a plan; they may have either. Names of gateways say the tier there."""
    standard_links: Mapping[RegionPair, float] = field(default_factory=dict)
    closed: ClosedPlaces | None = None
    """The places that are closed now; None: those that were closed when the plan was requested."""

    @property
    def spent_usd(self) -> float:
        """Total cost of the job so far, over all its runs."""
        return self.egress_usd + self.machines_usd + self.requests_usd


@dataclass(frozen=True, slots=True)
class RevisedPlan:
    """A new plan, with the limits for the lead: over all routes and runs of the job, and per second."""

    plan: Plan
    ceiling_usd_per_gb: float | None
    limit_bytes_per_s: int | None
    ceiling_usd: float | None = None
    """The egress of all bytes at `ceiling_usd_per_gb`; None: as before."""
    mean_usd_per_gb: float = 0.0
    """The average price of all bytes: of those already sent, and of the rest with this plan."""


def observed_links(
    catalog: Catalog, plan: Plan, seen: SlowRoutes, ratio: float = 1.0, *, standard: bool = False
) -> dict[RegionPair, float]:
    """Return the rate of each link that causes a delay, for one machine pair at full connections [Gbit/s].

    Routes carry data, and links `ratio` times as many bytes: the plan's compression ratio. This is about machines that
    send in the standard network tier, or about the others.

    These are the hops of a route below its planned rate, except those that it shares with a route that reaches its
    rate.
    """
    known = catalogs_of(plan, catalog)
    regions = {gateway.name: Region.parse(gateway.region) for gateway in plan.gateways}
    names = [gateway.name for gateway in plan.gateways]
    of_tier = {name for name in names if (plan.network_tier_of(name) == "standard") == standard}

    def hops(route: tuple[str, ...]) -> list[Hop]:
        return [(a, b) for a, b in itertools.pairwise(route) if a in of_tier]

    kept = [route for route, gbps in seen.carried_gbps.items() if gbps >= UNAFFECTED_PART * seen.planned_gbps[route]]
    unaffected = {(regions[a], regions[b]) for route in kept for a, b in hops(route)}
    carried: dict[RegionPair, float] = defaultdict(float)
    for route, gbps in seen.carried_gbps.items():
        for a, b in hops(route):
            carried[regions[a], regions[b]] += gbps
    connections: dict[RegionPair, int] = defaultdict(int)
    for hop in plan.hops:
        if hop.start in of_tier:
            connections[regions[hop.start], regions[hop.end]] += hop.connections
    found: dict[RegionPair, float] = {}
    for route in seen.under:
        for a, b in hops(route):
            pair = regions[a], regions[b]
            link = known[a].grid.link(*pair)
            if pair[0] != pair[1] and pair not in unaffected and link is not None:
                gbps = carried[pair] * ratio * CONNECTIONS_MAX / max(1, connections[pair])
                found[pair] = max(DEAD_GBPS, min(link.gbps, gbps))
    return found


def mixed_regions(plan: Plan) -> set[Region]:
    """Return the regions whose machines have both network tiers, or had both in an earlier plan of the job.

    The names of their gateways say so.
    """
    places = ((gateway.name, Region.parse(gateway.region)) for gateway in plan.machines)
    return {region for name, region in places if name.rpartition("-")[0] == gateway_stem(region, "standard")}


def unreachable(plan: Plan, seen: SlowRoutes, living: Collection[str]) -> set[str]:
    """Return the gateways to avoid: dead ones, and relays whose routes are all down."""
    gone = {gateway.name for gateway in plan.gateways if gateway.name not in living}
    working = {name for route in plan.routes if route.nodes not in seen.down for name in route.nodes}
    return gone | {name for route in seen.down for name in route[1:-1] if name not in working}


def revise_plan(plan_request: PlanRequest, state: TransferState) -> RevisedPlan | None:
    """Return another plan if it is better, including the cost of starting machines; otherwise None.

    Raises TradewindError if the destination is unreachable.
    """
    catalog = as_seen(plan_request.catalog, state.links, state.standard_links)
    limits = _without(plan_request.limits, catalog, state.dead)
    limits = replace(
        _around_closed(_within(limits, state.available), plan_request, state.closed),
        egress_sent_gb=state.sent_gb,
        standard_sent_gb=state.standard_sent_gb,
        network_tier_of={**limits.network_tier_of, **state.network_tier_of},
    )
    left_gb = state.left_bytes / 1e9
    objects = None
    if plan_request.objects is not None and state.total_bytes > 0:
        objects = max(1, round(plan_request.objects * state.left_bytes / state.total_bytes))
    ends = plan_request.source, plan_request.destination
    goal = _goal_left(plan_request, state)
    try:
        goal = goal or usual_goal(catalog, *ends, left_gb, limits, objects=objects)
        found = plan_gateways(catalog, *ends, left_gb, goal, limits, objects=objects)
    except InfeasibleGoal as error:
        # If a goal's rate or time is now out of reach, it is missed by as little as possible. A ceiling is never
        # exceeded.
        if error.nearest is None or isinstance(goal, MaxCost):
            return None
        nearest = error.nearest.goal
        found = plan_gateways(catalog, *ends, left_gb, nearest, limits, objects=objects)
    except UsageError:
        return None
    overlay = found.overlay
    if overlay is None:
        raise TradewindError("the plan has no overlay")
    left_s = left_gb * 8 / state.carried_gbps if state.carried_gbps > 0 else float("inf")
    if overlay.time_s > BETTER_PART * left_s:
        return None
    renamed = with_memory_for(_renamed(found, state.dead, state.mixed), plan_request.chunk_bytes)
    pace = pace_bytes_per_s(renamed)
    limit = min((rate for rate in (pace, plan_request.limit_bytes_per_s) if rate is not None), default=None)
    ceiling = None
    if plan_request.ceiling_usd is not None:
        ceiling = ceiling_usd_per_gb(
            plan_request.ceiling_usd,
            renamed,
            state.total_bytes,
            machines_usd=state.machines_usd,
            requests_usd=state.requests_usd,
        )
    total_gb = state.total_bytes / 1e9
    mean = (state.egress_usd + left_gb * renamed.mean_usd_per_gb) / total_gb if total_gb > 0 else 0.0
    return RevisedPlan(renamed, ceiling, limit, None if ceiling is None else ceiling * total_gb, mean)


def as_seen(catalog: Catalog, links: Mapping[RegionPair, float], standard_links: Mapping[RegionPair, float]) -> Catalog:
    """Return the catalog with the observed rates, each in the network tier of the machines that sent.

    Within a cloud, the tier makes no difference.
    """
    premium, standard = dict(links), dict(catalog.standard_links)
    for pair, gbps in standard_links.items():
        if pair[0].provider == pair[1].provider:
            premium[pair] = gbps
        elif (link := standard.get(pair) or catalog.grid.link(*pair)) is not None:
            standard[pair] = replace(link, gbps=gbps)
    known = ((pair, catalog.grid.link(*pair), gbps) for pair, gbps in premium.items())
    grid = catalog.grid.updated((pair, replace(link, gbps=gbps)) for pair, link, gbps in known if link)
    return replace(catalog, grid=grid, standard_links=standard)


def _without(limits: PlanningLimits, catalog: Catalog, dead: Mapping[str, Region]) -> PlanningLimits:
    """Reduce a region's machines by those lost there: the provider will not replace them soon."""
    lost = Counter(dead.values())
    most = {
        region: max(
            0,
            min(
                limits.per_region.get(region, limits.machines_per_region),
                catalog.quotas.get(region, limits.machines_per_region),
            )
            - count,
        )
        for region, count in lost.items()
    }
    return replace(limits, per_region={**limits.per_region, **most})


def _within(limits: PlanningLimits, available: Mapping[Region, int]) -> PlanningLimits:
    """Limit a region's machines to those that it provided before it refused more."""
    most = {
        region: min(count, limits.per_region.get(region, limits.machines_per_region))
        for region, count in available.items()
    }
    return replace(limits, per_region={**limits.per_region, **most})


def _around_closed(limits: PlanningLimits, plan_request: PlanRequest, closed: ClosedPlaces | None) -> PlanningLimits:
    """Close what is closed now, and nothing else. Source and destination stay in their regions."""
    if closed is None:
        return limits
    regions = set(closed.regions) - {plan_request.source, plan_request.destination}
    return replace(limits, closed_regions=tuple(sorted(regions)), closed_links=tuple(sorted(closed.links)))


def available_machines(plan: Plan, refused: Mapping[str, str]) -> dict[Region, int]:
    """Return the machines that each refusing region did provide for a plan; `refused` has regions by machine."""
    planned = Counter(gateway.region for gateway in plan.machines)
    return {
        Region.parse(region): max(0, planned[region] - count) for region, count in Counter(refused.values()).items()
    }


def _goal_left(plan_request: PlanRequest, state: TransferState) -> Goal | None:
    """Return the goal for the rest: a ceiling less what was spent, a deadline less the time that has passed.

    None: the usual one.
    """
    goal = plan_request.goal
    if isinstance(goal, MaxCost):
        return MaxCost(max(0.0, goal.usd - state.spent_usd))
    if isinstance(goal, Deadline):
        return Deadline(max(1.0, goal.seconds - state.elapsed_s))
    return goal


def ceiling_usd_per_gb(
    ceiling_usd: float, plan: Plan, total_bytes: int, *, machines_usd: float = 0.0, requests_usd: float = 0.0
) -> float | None:
    """Return the maximum average price of a byte, also of those already sent, so that machines can be paid as well.

    `machines_usd` and `requests_usd` were spent before the plan.
    """
    if plan.overlay is None or total_bytes == 0:
        return None
    cost = plan.overlay.cost
    egress_usd = ceiling_usd - machines_usd - requests_usd - cost.machines_usd - cost.requests_usd
    return max(0.0, egress_usd) / (total_bytes / 1e9)


def _renamed(plan: Plan, dead: Collection[str], mixed: Collection[Region]) -> Plan:
    """Return the plan without the names of lost gateways: numbering of a region's machines continues after them.

    Names in `mixed` regions say the network tier, also if the machines there have only one in this plan.
    """
    mine: dict[str, list[str]] = defaultdict(list)
    for gateway in plan.machines:
        stem, region = gateway.name.rpartition("-")[0], Region.parse(gateway.region)
        if region in mixed:
            stem = gateway_stem(region, plan.network_tier_of(gateway.name))
        mine[stem].append(gateway.name)
    names: dict[str, str] = {}
    for stem, old in mine.items():
        numbers = itertools.count(1)
        for name in old:
            names[name] = next(fresh for n in numbers if (fresh := f"{stem}-{n}") not in dead)
    return with_names(plan, names)


def with_names(plan: Plan, names: Mapping[str, str]) -> Plan:
    """Return the plan with other names for some of its gateways."""

    def name(old: str) -> str:
        return names.get(old, old)

    return replace(
        plan,
        gateways=tuple(replace(gateway, name=name(gateway.name)) for gateway in plan.gateways),
        hops=tuple(replace(hop, start=name(hop.start), end=name(hop.end)) for hop in plan.hops),
        routes=tuple(replace(route, nodes=tuple(map(name, route.nodes))) for route in plan.routes),
    )


def with_names_of(plan: Plan, running: Collection[str]) -> Plan:
    """Return the plan with the names of machines that run, as far as it has machines like them."""
    mine: dict[str, list[str]] = defaultdict(list)
    for gateway in plan.machines:
        mine[gateway.name.rpartition("-")[0]].append(gateway.name)
    names: dict[str, str] = {}
    for stem, old in mine.items():
        living = sorted(name for name in running if name.rpartition("-")[0] == stem)
        fresh = (name for n in itertools.count(1) if (name := f"{stem}-{n}") not in living)
        names |= dict(zip(old, itertools.chain(living, fresh), strict=False))
    return with_names(plan, names)


def with_types_of(plan_request: PlanRequest, plan: Plan, running: Collection[str]) -> PlanRequest:
    """Return the request with only the planned machine types in the regions where machines of the plan run."""
    regions = {gateway.region for gateway in plan.machines if gateway.name in running}
    offers: dict[Region, tuple[MachineOffer, ...]] = {}
    for machines in plan.overlay.machines if plan.overlay is not None else ():
        if str(machines.region) in regions:
            offers[machines.region] = (*offers.get(machines.region, ()), machines.offer)
    catalog = plan_request.catalog
    catalog = replace(catalog, region_offers={**catalog.region_offers, **offers})
    return replace(plan_request, catalog=catalog)
