"""From a plan by region to a plan by gateway: the type that `transfer` compiles into programs.

Each machine runs one gateway. Every route of the overlay is cut so that all gateways of a region carry the same share
of it: a gateway's load is the region's load divided by its machines, in flows, links and connections. Where a region
has machines of both network tiers, a route uses those of its own.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

from tradewind.model.network_tier import NetworkTier
from tradewind.model.overlay import Pool, UnicastOverlay
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute, Prediction
from tradewind.model.program import CONNECTIONS_MAX
from tradewind.model.region import Region
from tradewind.planner.routes import region_name

__all__ = ["assign_gateways", "gateway_stem"]

CUT_SLACK = 1e-9
"""Route boundaries closer together than this share are one cut."""


def assign_gateways(overlay: UnicastOverlay, *, lead_region: str = "site:local") -> Plan:
    """Return gateways, hops and routes with shares for an overlay. Prices of routes are per GB sent.

    Args:
        overlay: the planner's answer.
        lead_region: where the lead runs; data never flows through it.
    """
    pools = _pools(overlay)
    gateways = [PlannedGateway("lead", lead_region)]
    gateways += [
        PlannedGateway(name, str(region), network_tier=tier)
        for (region, tier), names in pools.items()
        for name in names
    ]
    edges = {(e.src, e.dst, e.network_tier): e for e in overlay.edges}
    routes: list[PlannedRoute] = []
    hop_connections: dict[tuple[str, str], float] = defaultdict(float)
    for route in overlay.routes:
        along = [edges[hop] for hop in zip(route.regions, route.regions[1:], route.tiers, strict=False)]
        usd_per_gb = math.fsum(edge.usd_per_gb / overlay.compression_ratio for edge in along)
        for nodes, part in _cut([pools[pool] for pool in zip(route.regions, route.tiers, strict=True)]):
            routes.append(PlannedRoute(nodes, route.share * part, usd_per_gb))
            for edge, ends in zip(along, itertools.pairwise(nodes), strict=True):
                hop_connections[ends] += edge.connections * route.gbps * part / edge.gbps
    hops_planned = tuple(
        PlannedHop(start, end, min(CONNECTIONS_MAX, max(1, math.floor(count + 0.5))))
        for (start, end), count in hop_connections.items()
    )
    prediction = Prediction(overlay.throughput_gbps, overlay.time_s, overlay.cost.total_usd)
    return Plan(tuple(gateways), hops_planned, tuple(routes), prediction=prediction, overlay=overlay)


def _pools(overlay: UnicastOverlay) -> dict[Pool, list[str]]:
    """Return the names of the gateways of each pool, in the order of the overlay's machines."""
    pools: dict[Pool, list[str]] = {}
    for machines in overlay.machines:
        pool = overlay.pool_of(machines)
        names = pools.setdefault(pool, [])
        stem = gateway_stem(*pool)
        names += [f"{stem}-{len(names) + number + 1}" for number in range(machines.count)]
    return pools


def gateway_stem(region: Region, tier: NetworkTier | None) -> str:
    """Return the names of gateways without their numbers.

    `tier` is that of the machines if their region has both: replanning finds running machines by name.
    """
    return f"{region_name(region)}-standard" if tier == "standard" else region_name(region)


def _cut(pools: Sequence[Sequence[str]]) -> list[tuple[tuple[str, ...], float]]:
    """Cut a route through these gateways at every pool's machine boundaries: each piece has one gateway per region."""
    cuts = sorted({part / len(names) for names in pools for part in range(len(names) + 1)})
    pieces = []
    for low, high in itertools.pairwise(cuts):
        if high - low <= CUT_SLACK:
            continue
        middle = (low + high) / 2
        nodes = tuple(names[math.floor(middle * len(names))] for names in pools)
        pieces.append((nodes, high - low))
    return pieces
