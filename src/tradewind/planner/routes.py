"""From flows to a plan: routes with shares, whole connections, and gateways.

Repeatedly takes a path from source to sink with the rate of its tightest edge. The remainder (cycles) is dropped, and
each edge becomes the sum of its routes, so that flow is conserved up to floating-point precision.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from tradewind.model.goal import Goal
from tradewind.model.network_tier import NetworkTier
from tradewind.model.overlay import Cost, OverlayEdge, OverlayRoute, RegionMachines, UnicastOverlay
from tradewind.model.region import Region
from tradewind.model.units import BITS_PER_BYTE
from tradewind.planner.formulation import CAPACITY_FAMILIES, Formulation
from tradewind.planner.network import FloatArray, FlowNetwork, IntArray
from tradewind.planner.points import Demand, Point

__all__ = [
    "FLOW_MIN_RELATIVE",
    "build_overlay",
    "decompose",
    "figures",
    "fitting_part",
    "round_connections",
    "tier_of_pool",
]

FLOW_MIN_RELATIVE = 1e-7
"""Flows below this part of the rate are rounding of the solver, and are dropped."""

Edge = tuple[int, int]
"""The pools that send and receive (`FlowNetwork`)."""


def build_overlay(
    formulation: Formulation,
    demand: Demand,
    goal: Goal,
    point: Point,
    *,
    solve_s: float = 0.0,
    binding: tuple[str, ...] = (),
) -> UnicastOverlay:
    """Write a solver's answer as a plan. All its figures are calculated from the rounded plan."""
    name = formulation.network.regions
    paths = decompose(formulation, point.solution.flow_gbps)
    wanted = sum(gbps for _, gbps in paths)
    part = fitting_part(formulation, point, _flow_columns(formulation, paths))
    paths = [(path, gbps * part) for path, gbps in paths]
    decomposition = [(itertools.pairwise(path), gbps) for path, gbps in paths]
    rate, edges, machines, cost = figures(formulation, demand, point, decomposition)
    return UnicastOverlay(
        source=name[formulation.source],
        destination=name[formulation.sink],
        volume_gb=demand.volume_gb,
        goal=goal,
        throughput_gbps=rate,
        boot_s=demand.boot_of(machines),
        cost=cost,
        objects=demand.objects,
        machines=machines,
        edges=edges,
        routes=tuple(
            OverlayRoute(
                tuple(name[v] for v in path),
                gbps,
                gbps / rate,
                network_tiers=_tiers_along(formulation.network, path, machines),
            )
            for path, gbps in paths
        ),
        connections_per_machine=formulation.network.connections_per_machine,
        compression_ratio=formulation.network.compression_ratio,
        optimal=point.proven and abs(rate - wanted) <= FLOW_MIN_RELATIVE * wanted,
        gap=point.gap,
        solve_s=solve_s,
        binding=binding,
    )


def figures(
    formulation: Formulation, demand: Demand, point: Point, decomposition: Sequence[tuple[Iterable[Edge], float]]
) -> tuple[float, tuple[OverlayEdge, ...], tuple[RegionMachines, ...], Cost]:
    """Return rate, edges with whole connections, machines, and cost of a transfer over routes or trees with rates.

    Leaves out machines without flow; a search that ended before its proof may leave some.
    """
    rate = math.fsum(gbps for _, gbps in decomposition)
    network = formulation.network
    first = network.first_pools.tolist()
    flows: dict[Edge, float] = defaultdict(float)
    used: set[int] = set()
    for part_edges, gbps in decomposition:
        for u, v in part_edges:
            used |= {u, v}
            flows[u, first[v]] += gbps
    name = network.regions
    pools = network.pool_of_option
    counts = {k: n for k, n in _machines(point).items() if int(pools[k]) in used}
    machines = tuple(
        RegionMachines(name[option.pool], option.offer, count, option.network_tier)
        for option, count in ((network.options[k], count) for k, count in counts.items())
    )
    position = {(int(network.tail[e]), int(network.head[e])): int(e) for e in formulation.links}
    link = {edge: float(network.link_gbps[position[edge]]) for edge in flows}
    price = _prices(network, {position[edge]: gbps / rate * demand.volume_gb for edge, gbps in flows.items()})
    senders = _machines_per(pools, counts)
    receivers = _machines_per(network.first_pools[pools], counts)
    connections = round_connections(flows, link, (senders, receivers), network.connections_per_machine)
    edges = tuple(
        OverlayEdge(
            name[u],
            name[v],
            gbps,
            connections[u, v],
            price[position[u, v]],
            link[u, v],
            network_tier=tier_of_pool(network, u, machines),
        )
        for (u, v), gbps in sorted(flows.items(), key=lambda item: -item[1])
    )
    time_s = demand.gbit / rate
    machines_usd = math.fsum(m.count * m.offer.usd(time_s + demand.boot_of(machines)) for m in machines)
    egress_usd = math.fsum(e.gbps * e.usd_per_gb for e in edges) / BITS_PER_BYTE * time_s
    return rate, edges, machines, Cost(egress_usd, machines_usd, demand.requests_usd)


def _tiers_along(
    network: FlowNetwork, path: Sequence[int], machines: Sequence[RegionMachines]
) -> tuple[NetworkTier | None, ...]:
    """Return the network tier of each pool of a path whose region has machines of both; empty if there is none."""
    tiers = tuple(tier_of_pool(network, pool, machines) for pool in path)
    return tiers if any(tiers) else ()


def tier_of_pool(network: FlowNetwork, pool: int, machines: Sequence[RegionMachines]) -> NetworkTier | None:
    """Return the network tier of a pool if its region has machines of both; else None, as its machines say it."""
    here = {each.network_tier for each in machines if each.region == network.regions[pool]}
    return None if len(here) < 2 else network.tiers[pool]


def _prices(network: FlowNetwork, volumes_gb: Mapping[int, float]) -> dict[int, float]:
    """Return the price per GB of data on each link; with tiers, the mean over all traffic of its billing count."""
    prices = {link: float(network.usd_per_gb[link]) for link in volumes_gb}
    for count in network.counts:
        links = [link for link in count.links.tolist() if link in volumes_gb]
        volume_gb = math.fsum(volumes_gb[link] for link in links)
        prices.update((link, count.usd(volume_gb) / volume_gb) for link in links)
    return prices


def decompose(formulation: Formulation, flow_gbps: FloatArray) -> list[tuple[tuple[int, ...], float]]:
    """Return routes and their rates, the highest first. Each takes the remaining rate of its tightest edge.

    A route begins at a pool of the source.
    """
    network = formulation.network
    rate = float(flow_gbps[formulation.out_of_source].sum())
    left: dict[int, dict[int, float]] = defaultdict(dict)
    for column in np.flatnonzero(flow_gbps > FLOW_MIN_RELATIVE * rate):
        e = formulation.links[column]
        u, v = int(network.tail[e]), int(network.head[e])
        left[u][v] = left[u].get(v, 0.0) + float(flow_gbps[column])
    paths: list[tuple[tuple[int, ...], float]] = []
    while (path := _widest_path(left, formulation.sources, formulation.sink)) is not None:
        gbps = min(left[u][v] for u, v in itertools.pairwise(path))
        for u, v in itertools.pairwise(path):
            left[u][v] -= gbps
            if left[u][v] <= FLOW_MIN_RELATIVE * rate:
                del left[u][v]
        paths.append((path, gbps))
    return sorted(paths, key=lambda item: -item[1])


def _widest_path(
    left: Mapping[int, Mapping[int, float]], sources: Collection[int], sink: int
) -> tuple[int, ...] | None:
    """Return the path with the widest bottleneck (Dijkstra on widths); `None` if the sink is unreachable."""
    width = dict.fromkeys(sources, math.inf)
    before: dict[int, int] = {}
    done: set[int] = set()
    while True:
        open_nodes = [v for v in width if v not in done]
        if not open_nodes:
            return None
        node = max(open_nodes, key=lambda v: width[v])
        if node == sink:
            break
        done.add(node)
        for following, gbps in left.get(node, {}).items():
            reach = min(width[node], gbps)
            if following not in done and reach > width.get(following, 0.0):
                width[following], before[following] = reach, node
    path = [sink]
    while path[-1] not in sources:
        path.append(before[path[-1]])
    return tuple(reversed(path))


def _flow_columns(formulation: Formulation, paths: list[tuple[tuple[int, ...], float]]) -> FloatArray:
    network = formulation.network
    flow = np.zeros(formulation.link_count)
    column = {(int(network.tail[e]), int(network.head[e])): c for c, e in enumerate(formulation.links)}
    for path, gbps in paths:
        for edge in itertools.pairwise(path):
            flow[column[edge]] += gbps
    return flow


def fitting_part(formulation: Formulation, point: Point, flow_gbps: FloatArray) -> float:
    """Return the fraction of these flows that fits the machines: one, or less by the solver's tolerance."""
    values = np.concatenate([flow_gbps, point.solution.machines.astype(np.float64)])
    rows = formulation.rows
    count = len(rows.names)
    terms = rows.value * values[rows.column]
    activity = np.bincount(rows.row, terms, minlength=count)
    use = np.bincount(rows.row, np.where(rows.value > 0, terms, 0.0), minlength=count)
    capped = np.array([name.startswith(CAPACITY_FAMILIES) for name in rows.names]) & (use > 0)
    excess = float(np.max((activity - rows.upper)[capped] / use[capped], initial=0.0))
    return 1.0 if excess <= 1e-12 else 1.0 - excess


def _machines(point: Point) -> dict[int, int]:
    return {int(k): int(point.solution.machines[k]) for k in np.flatnonzero(point.solution.machines)}


def _machines_per(group_of_option: IntArray, counts: Mapping[int, int]) -> dict[int, int]:
    per_group: dict[int, int] = defaultdict(int)
    for option, count in counts.items():
        per_group[int(group_of_option[option])] += count
    return per_group


def round_connections(
    flows: Mapping[Edge, float],
    link: Mapping[Edge, float],
    machines: tuple[Mapping[int, int], Mapping[int, int]],
    connections_per_machine: int,
) -> dict[Edge, int]:
    """Return whole connections per edge: rounded up, at least one, and within the limit of the machines at its ends.

    If rounding up exceeds a limit, the edges that lose least by it get one less. `machines` has those that send, and
    those that receive.
    """
    exact = {edge: connections_per_machine * gbps / link[edge] for edge, gbps in flows.items()}
    whole = {edge: max(1, math.ceil(count - 1e-6)) for edge, count in exact.items()}
    for end, counts in enumerate(machines):
        for place, count in counts.items():
            at = [edge for edge in whole if edge[end] == place]
            while sum(whole[edge] for edge in at) > connections_per_machine * count:
                spare = [edge for edge in at if whole[edge] > 1]
                if not spare:
                    break
                least_hurt = max(spare, key=lambda edge: (whole[edge] - exact[edge]) / exact[edge])
                whole[least_hurt] -= 1
    return whole


def region_name(region: Region) -> str:
    """Return a region as part of a gateway's name: letters, digits and dashes."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in str(region))
