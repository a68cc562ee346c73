"""From a plan by region to a plan by gateway: the type that `transfer` compiles into programs.

Each machine runs one gateway. Every route of the overlay is cut so that all gateways of a region carry the same share
of it: a gateway's load is the region's load divided by its machines, in flows, links and connections.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping

from tradewind.model.overlay import UnicastOverlay
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute, Prediction
from tradewind.model.program import CONNECTIONS_MAX
from tradewind.model.region import Region
from tradewind.planner.routes import region_name

__all__ = ["assign_gateways"]

CUT_SLACK = 1e-9
"""Route boundaries closer together than this share are one cut."""


def assign_gateways(overlay: UnicastOverlay, *, lead_region: str = "site:local") -> Plan:
    """Return gateways, hops and routes with shares for an overlay. Prices of routes are per GB sent.

    Args:
        overlay: the planner's answer.
        lead_region: where the lead runs; data never flows through it.
    """
    counts = overlay.machine_counts
    gateways = [PlannedGateway("lead", lead_region)]
    gateways += [PlannedGateway(_name(r, i), str(r)) for r in counts for i in range(counts[r])]
    price = {(e.src, e.dst): e.usd_per_gb / overlay.compression_ratio for e in overlay.edges}
    flow = {(e.src, e.dst): e.gbps for e in overlay.edges}
    connections = {(e.src, e.dst): e.connections for e in overlay.edges}
    routes: list[PlannedRoute] = []
    hop_connections: dict[tuple[str, str], float] = defaultdict(float)
    for route in overlay.routes:
        hops = list(zip(route.regions, route.regions[1:], strict=False))
        usd_per_gb = math.fsum(price[hop] for hop in hops)
        for nodes, part in _cut(route.regions, counts):
            routes.append(PlannedRoute(nodes, route.share * part, usd_per_gb))
            for hop, ends in zip(hops, itertools.pairwise(nodes), strict=True):
                hop_connections[ends] += connections[hop] * route.gbps * part / flow[hop]
    hops_planned = tuple(
        PlannedHop(start, end, min(CONNECTIONS_MAX, max(1, math.floor(count + 0.5))))
        for (start, end), count in hop_connections.items()
    )
    prediction = Prediction(overlay.throughput_gbps, overlay.time_s, overlay.cost.total_usd)
    return Plan(tuple(gateways), hops_planned, tuple(routes), prediction=prediction, overlay=overlay)


def _name(region: Region, index: int) -> str:
    return f"{region_name(region)}-{index + 1}"


def _cut(regions: tuple[Region, ...], counts: Mapping[Region, int]) -> list[tuple[tuple[str, ...], float]]:
    """Cut a route at every region's machine boundaries: each piece has one gateway per region."""
    cuts = sorted({part / counts[region] for region in regions for part in range(counts[region] + 1)})
    pieces = []
    for low, high in itertools.pairwise(cuts):
        if high - low <= CUT_SLACK:
            continue
        middle = (low + high) / 2
        nodes = tuple(_name(region, math.floor(middle * counts[region])) for region in regions)
        pieces.append((nodes, high - low))
    return pieces
