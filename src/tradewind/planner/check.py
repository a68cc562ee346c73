"""An independent check of a plan: plain arithmetic on the plan and the catalog, without the solver.

Every printed plan has passed it, and so has every plan that the tests make.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tradewind.model.catalog import Catalog
from tradewind.model.goal import Deadline, MaxCost, MinThroughput
from tradewind.model.overlay import MulticastOverlay, Overlay, OverlayEdge, Pool, RegionMachines, UnicastOverlay
from tradewind.model.price import EgressPrice
from tradewind.model.region import Region
from tradewind.model.tier import BillingCount
from tradewind.model.units import format_count
from tradewind.planner.network import GBPS_MIN, PlanningLimits, sent_gb

__all__ = ["multicast_violations", "violations"]

TOLERANCE = 1e-9
"""Relative. Floating point sums of some ten terms stay far below it."""
GOAL_TOLERANCE = 1e-6
"""Relative; a goal counts as met within a millionth."""


def violations(
    plan: UnicastOverlay, catalog: Catalog, limits: PlanningLimits, *, boot_s: float | None = None
) -> list[str]:
    """Return the faults of a plan, one line each; an empty list for a valid plan.

    ``boot_s`` is the start time of machines if it was given; it replaces the catalog's.
    """
    return [
        *_conservation(plan),
        *_routes(plan),
        *_links(plan, catalog, limits),
        *_machines(plan, catalog, limits),
        *_stores(plan, catalog, limits),
        *_connections(plan),
        *_boot(plan, boot_s),
        *_cost(plan, catalog, limits),
        *_rate(plan, limits),
        *_goal(plan),
    ]


def multicast_violations(
    plan: MulticastOverlay, catalog: Catalog, limits: PlanningLimits, *, boot_s: float | None = None
) -> list[str]:
    """Return the faults of a plan with several destinations."""
    return [
        *_trees(plan),
        *_links(plan, catalog, limits),
        *_machines(plan, catalog, limits),
        *_stores(plan, catalog, limits),
        *_connections(plan),
        *_boot(plan, boot_s),
        *_cost(plan, catalog, limits),
        *_rate(plan, limits),
        *_goal(plan),
    ]


def _out(plan: Overlay, region: Region) -> float:
    return math.fsum(e.gbps for e in plan.edges if e.src == region)


def _into(plan: Overlay, region: Region) -> float:
    return math.fsum(e.gbps for e in plan.edges if e.dst == region)


def _above(value: float, limit: float, tolerance: float = TOLERANCE) -> bool:
    return value > limit + tolerance * max(abs(value), abs(limit))


def _differ(a: float, b: float) -> bool:
    return _above(a, b) or _above(b, a)


def _conservation(plan: UnicastOverlay) -> Iterator[str]:
    for region in {r for e in plan.edges for r in (e.src, e.dst)}:
        into, out = _into(plan, region), _out(plan, region)
        if region == plan.source:
            if into > 0 or _differ(out, plan.throughput_gbps):
                yield f"{region}: the source sends {out} and receives {into} Gbit/s at {plan.throughput_gbps} Gbit/s"
        elif region == plan.destination:
            if out > 0 or _differ(into, plan.throughput_gbps):
                yield f"{region}: the destination receives {into} and sends {out} Gbit/s"
        elif _differ(into, out):
            yield f"{region}: {into} Gbit/s in, {out} Gbit/s out"


def _routes(plan: UnicastOverlay) -> Iterator[str]:
    if _differ(math.fsum(r.share for r in plan.routes), 1.0):
        yield "the routes' shares do not add up to one"
    for route in plan.routes:
        if route.regions[0] != plan.source or route.regions[-1] != plan.destination:
            yield f"a route leads from {route.regions[0]} to {route.regions[-1]}"
        pools = list(zip(route.regions, route.tiers, strict=True))
        if len(set(pools)) != len(pools):
            yield f"a route passes the same machines twice: {route.regions}"
        for region, tier in pools:
            if (tier is None) == (region in plan.mixed_at):
                yield f"a route does not say which machines of {region} it uses"
    for edge in plan.edges:
        through = [
            r.gbps
            for r in plan.routes
            if (edge.src, edge.dst, edge.network_tier) in zip(r.regions, r.regions[1:], r.tiers, strict=False)
        ]
        if _differ(math.fsum(through), edge.gbps):
            yield f"{edge.src} → {edge.dst}: the routes over it carry {math.fsum(through)}, not {edge.gbps} Gbit/s"


def _trees(plan: MulticastOverlay) -> Iterator[str]:
    """Check that trees reach every destination once without idle hops, and that they sum up to edges and rate."""
    if _differ(math.fsum(t.share for t in plan.trees), 1.0):
        yield "the trees' shares do not add up to one"
    if _differ(math.fsum(t.gbps for t in plan.trees), plan.throughput_gbps):
        yield f"the trees do not add up to {plan.throughput_gbps} Gbit/s"
    for tree in plan.trees:
        reached: set[Pool] = set()
        for start, end in tree.pooled_hops:
            unknown = start[0] != plan.source and start not in reached
            if unknown or end in reached or end[0] == plan.source:
                words = "has not reached" if unknown else "was at"
                yield f"a tree goes from {start[0]} to {end[0]}, but {words} it"
            reached.add(end)
            for region, tier in (start, end):
                if (tier is None) == (region in plan.mixed_at):
                    yield f"a tree does not say which machines of {region} it uses"
        for missed in set(plan.destinations) - {region for region, _ in reached}:
            yield f"a tree does not reach {missed}"
        leaves = reached - {start for start, _ in tree.pooled_hops}
        for idle in {region for region, _ in leaves} - set(plan.destinations):
            yield f"a tree ends at {idle}, which is not a destination"
    hops = list(plan.pooled_hops())
    for edge in plan.edges:
        through = math.fsum(
            gbps for start, end, gbps in hops if (*start, end[0]) == (edge.src, edge.network_tier, edge.dst)
        )
        if _differ(through, edge.gbps):
            yield f"{edge.src} → {edge.dst}: the trees over it carry {through}, not {edge.gbps} Gbit/s"
    for hop in {hop for tree in plan.trees for hop in tree.hops} - {(e.src, e.dst) for e in plan.edges}:
        yield f"{hop[0]} → {hop[1]}: a tree uses it, but it is not an edge of the plan"


def _pools(plan: Overlay) -> dict[Pool, list[RegionMachines]]:
    pools: dict[Pool, list[RegionMachines]] = {}
    for each in plan.machines:
        pools.setdefault(plan.pool_of(each), []).append(each)
    return pools


def _sent_by(plan: Overlay, pool: Pool) -> list[OverlayEdge]:
    return [edge for edge in plan.edges if (edge.src, edge.network_tier) == pool]


def _received_by(plan: Overlay, pool: Pool) -> list[tuple[OverlayEdge, float]]:
    """Return the edges to a pool, each with its rate there: that of the routes or trees which use it [Gbit/s]."""
    edges = [edge for edge in plan.edges if edge.dst == pool[0]]
    if pool[1] is None:
        return [(edge, edge.gbps) for edge in edges]
    hops = list(plan.pooled_hops())
    return [
        (edge, math.fsum(gbps for start, end, gbps in hops if (*start, end) == (edge.src, edge.network_tier, pool)))
        for edge in edges
    ]


def _catalogs(plan: Overlay, catalog: Catalog) -> dict[OverlayEdge, Catalog]:
    """Return the catalog that knows price and rate of each edge."""
    usual = catalog.with_standard_tier(plan.standard_at)
    other = catalog.with_standard_tier((*plan.standard_at, *plan.mixed_at)) if plan.mixed_at else usual
    return {edge: other if edge.network_tier == "standard" else usual for edge in plan.edges}


def _links(plan: Overlay, catalog: Catalog, limits: PlanningLimits) -> Iterator[str]:
    known = _catalogs(plan, catalog)
    for edge in plan.edges:
        link = known[edge].grid.link(edge.src, edge.dst)
        price = known[edge].egress(edge.src, edge.dst)
        if link is None or price is None or edge.gbps <= 0:
            yield f"{edge.src} → {edge.dst}: not a link with a rate and a price, or unused"
        elif _differ(edge.link_gbps, link.gbps / limits.compression_ratio):
            yield f"{edge.src} → {edge.dst}: planned with {edge.link_gbps} Gbit/s, the catalog has {link.gbps} Gbit/s"
        if (edge.network_tier is None) == (edge.src in plan.mixed_at):
            yield f"{edge.src} → {edge.dst}: its network tier does not fit the machines of its region"
    for pool, machines in _pools(plan).items():
        out, count = math.fsum(e.gbps / e.link_gbps for e in _sent_by(plan, pool)), sum(m.count for m in machines)
        if _above(out, count):
            yield f"{pool[0]}: links need the connections of {out} machines, but the plan has {count}"
        into = math.fsum(gbps / edge.link_gbps for edge, gbps in _received_by(plan, pool))
        if _above(into, count):
            yield f"{pool[0]}: links need the connections of {into} machines, but the plan has {count}"


def _machines(plan: Overlay, catalog: Catalog, limits: PlanningLimits) -> Iterator[str]:
    counts = plan.machine_counts
    used = {r for e in plan.edges for r in (e.src, e.dst)}
    for region in used - set(counts):
        yield f"{region}: used, but has no machine"
    for region in set(counts) - used:
        yield f"{region}: {format_count(counts[region], 'machine')}, and nothing passes it"
    for region, count in counts.items():
        allowed = min(limits.per_region.get(region, limits.machines_per_region), catalog.quotas.get(region, count))
        if count > allowed:
            yield f"{region}: {format_count(count, 'machine')}, but the maximum is {allowed}"
        here = [m for m in plan.machines if m.region == region]
        for m in here:
            if m.offer not in catalog.machine_offers(region) or (m.offer.spot and not limits.spot):
                yield f"{region}: {m.offer.name} is not offered"
            tiers = catalog.network_tiers(region)
            if m.network_tier not in (tiers or (None,)):
                yield f"{region}: the {m.network_tier} network tier is not offered"
            wanted = limits.network_tier_of.get(region, limits.network_tiers)
            if "standard" in tiers and wanted not in ("best", m.network_tier):
                yield f"{region}: in the {m.network_tier} network tier, which is not wanted"

    for pool, machines in _pools(plan).items():
        if len(machines) > 1:
            yield f"{pool[0]}: links cannot be shared evenly among {len(machines)} machine types"
        egress = sum(m.count * m.offer.machine.egress_gbps for m in machines) / limits.compression_ratio
        sent = math.fsum(e.gbps for e in _sent_by(plan, pool))
        if _above(sent, egress):
            yield f"{pool[0]}: sends {sent}, its machines may send {egress} Gbit/s"
        ingress = sum(m.count * m.offer.machine.ingress_gbps for m in machines) / limits.compression_ratio
        received = math.fsum(gbps for _, gbps in _received_by(plan, pool))
        if _above(received, ingress):
            yield f"{pool[0]}: receives {received}, its machines may receive {ingress} Gbit/s"


def _stores(plan: UnicastOverlay | MulticastOverlay, catalog: Catalog, limits: PlanningLimits) -> Iterator[str]:
    if not limits.store_limits:
        return
    counts = plan.machine_counts
    source = catalog.stores.get(plan.source.provider)
    if source is not None and _above(plan.throughput_gbps, source.read_gbps * counts.get(plan.source, 0)):
        yield f"{plan.source}: reads faster than its object store allows"
    for pool, machines in _pools(plan).items() if source is not None and plan.mixed_at else ():
        sent = math.fsum(e.gbps for e in _sent_by(plan, pool))
        if pool[0] == plan.source and source and _above(sent, source.read_gbps * sum(m.count for m in machines)):
            yield f"{plan.source}: its machines of the {pool[1]} tier read faster than its object store allows"
    for destination in plan.destinations if isinstance(plan, MulticastOverlay) else (plan.destination,):
        store = catalog.stores.get(destination.provider)
        if store is not None and _above(plan.throughput_gbps, store.write_gbps * counts.get(destination, 0)):
            yield f"{destination}: writes faster than its object store allows"


def _connections(plan: Overlay) -> Iterator[str]:
    for edge in plan.edges:
        if edge.connections < 1:
            yield f"{edge.src} → {edge.dst}: no connection"
    for region, count in plan.machine_counts.items():
        most, into = plan.connections_per_machine * count, sum(e.connections for e in plan.edges if e.dst == region)
        if into > most:
            yield f"{region}: {format_count(into, 'connection')}, but the maximum is {most}"
    for pool, machines in _pools(plan).items():
        most = plan.connections_per_machine * sum(m.count for m in machines)
        out = sum(e.connections for e in _sent_by(plan, pool))
        if out > most:
            yield f"{pool[0]}: {format_count(out, 'connection')}, but the maximum is {most}"


def _boot(plan: Overlay, boot_s: float | None) -> Iterator[str]:
    """Check that a plan waits, and pays, until its slowest machine has started."""
    slowest_s = max((m.offer.machine.boot_s for m in plan.machines), default=0.0) if boot_s is None else boot_s
    if _differ(plan.boot_s, slowest_s):
        yield f"waits {plan.boot_s} s for machines to start, the slowest takes {slowest_s} s"


def _cost(plan: Overlay, catalog: Catalog, limits: PlanningLimits) -> Iterator[str]:
    """Check egress by billing count (each edge at its mean price), and machines from launch or their minimum."""
    ratio, part = limits.compression_ratio, plan.volume_gb / plan.throughput_gbps
    known, used_gb, seen_gb = _catalogs(plan, catalog), limits.monthly_egress_used_gb, sent_gb(catalog, limits)
    counts: dict[BillingCount, tuple[EgressPrice, list[OverlayEdge]]] = {}
    for edge in plan.edges:
        price = known[edge].egress(edge.src, edge.dst)
        if price is None:
            return  # `_links` reports the missing price.
        key = known[edge].egress_account(edge.src, edge.dst, price), price.tiers
        counts.setdefault(key, (price, []))[1].append(edge)
    usd = []
    for key, (price, edges) in counts.items():
        volume_gb = math.fsum(edge.gbps * part * ratio for edge in edges)
        usd.append(price.cost_usd(volume_gb, seen_gb.get(key, used_gb)))
        for edge in edges:
            if _differ(edge.usd_per_gb, usd[-1] / volume_gb * ratio):
                yield f"{edge.src} → {edge.dst}: at {edge.usd_per_gb} USD/GB, it costs {usd[-1] / volume_gb * ratio}"
    egress = math.fsum(usd)
    machines = math.fsum(m.count * m.offer.usd(plan.time_s) for m in plan.machines)
    if _differ(egress, plan.cost.egress_usd) or _differ(machines, plan.cost.machines_usd):
        yield f"costs {plan.cost}, which should be {egress} for egress and {machines} for machines"


def _rate(plan: Overlay, limits: PlanningLimits) -> Iterator[str]:
    most = None if limits.rate_max_gbps is None else max(GBPS_MIN, limits.rate_max_gbps)
    if most is not None and _above(plan.throughput_gbps, most, GOAL_TOLERANCE):
        yield f"moves {plan.throughput_gbps} Gbit/s, the user allows {most}"


def _goal(plan: Overlay) -> Iterator[str]:
    goal = plan.goal
    if isinstance(goal, MinThroughput):
        short = _above(goal.gbps, plan.throughput_gbps, GOAL_TOLERANCE)
        if short or (goal.exactly and _above(plan.throughput_gbps, goal.gbps, GOAL_TOLERANCE)):
            yield f"moves {plan.throughput_gbps} Gbit/s, the goal is {goal}"
    elif isinstance(goal, MaxCost) and _above(plan.cost.total_usd, goal.usd, GOAL_TOLERANCE):
        yield f"costs {plan.cost.total_usd} USD, the goal is {goal}"
    elif isinstance(goal, Deadline) and _above(plan.time_s, goal.seconds, GOAL_TOLERANCE):
        yield f"takes {plan.time_s} s, the goal is {goal}"
