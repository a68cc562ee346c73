"""Result of the planner, by region: flows, machines, routes, time, cost, and limits of the plan."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput
from tradewind.model.machine import MachineOffer
from tradewind.model.network_tier import NetworkTier
from tradewind.model.records import dataclass
from tradewind.model.region import Region
from tradewind.model.requests import ObjectSet, Requests
from tradewind.model.units import format_count, format_duration, format_gbps, format_usd, format_volume, transfer_time_s

if TYPE_CHECKING:
    from tradewind.model.catalog import Catalog

__all__ = [
    "Cost",
    "DistributionTree",
    "MulticastOverlay",
    "Overlay",
    "OverlayEdge",
    "OverlayRoute",
    "Pool",
    "RegionMachines",
    "UnicastOverlay",
    "goal_document",
    "plan_document",
]


@dataclass(frozen=True)
class Cost:
    """Cost of a transfer [USD]. Machines are paid from launch, boot included."""

    egress_usd: float
    machines_usd: float
    requests_usd: float = 0.0

    @property
    def total_usd(self) -> float:
        """Sum of all costs."""
        return self.egress_usd + self.machines_usd + self.requests_usd


@dataclass(frozen=True)
class RegionMachines:
    """Machines of one type in one region."""

    region: Region
    offer: MachineOffer
    count: int
    network_tier: NetworkTier | None = None
    """How they send to other networks; None in a cloud without a choice."""


@dataclass(frozen=True)
class OverlayEdge:
    """The flow from one region to the next, over all its machine pairs."""

    src: Region
    dst: Region
    gbps: float
    connections: int
    usd_per_gb: float
    link_gbps: float
    """Rate of one machine pair with all its connections."""
    network_tier: NetworkTier | None = None
    """That of the sending machines, if their region has both; else None, and `machines` says it."""


@dataclass(frozen=True)
class OverlayRoute:
    """One route from source to destination, and its share of the bytes."""

    regions: tuple[Region, ...]
    gbps: float
    share: float
    network_tiers: tuple[NetworkTier | None, ...] = ()
    """The tier used in each region that has machines of both, None in the others; empty if no region has both."""

    @property
    def tiers(self) -> tuple[NetworkTier | None, ...]:
        """Return `network_tiers` with an entry for each region."""
        return self.network_tiers or tuple(None for _ in self.regions)


Pool = tuple[Region, NetworkTier | None]
"""Machines of a region; those of one network tier if it has both."""


@dataclass(frozen=True)
class DistributionTree:
    """One tree from the source to all destinations, and its share of the bytes.

    Each byte crosses each hop once; if two hops leave a region, it is duplicated there.
    """

    hops: tuple[tuple[Region, Region], ...]
    """Hops from the source outwards: each region is reached before it is left."""
    gbps: float
    share: float
    network_tiers: tuple[tuple[NetworkTier | None, NetworkTier | None], ...] = ()
    """For each hop, the network tiers of the machines at its ends, None where a region has one; empty if all have."""

    @property
    def pooled_hops(self) -> tuple[tuple[Pool, Pool], ...]:
        """Return the hops with the machines at both ends."""
        tiers = self.network_tiers or tuple((None, None) for _ in self.hops)
        return tuple(
            ((src, sent), (dst, received)) for (src, dst), (sent, received) in zip(self.hops, tiers, strict=True)
        )

    def copies(self, destinations: Collection[Region]) -> Mapping[Region, int]:
        """Return the regions that duplicate its bytes, with their copies, including one kept by a destination."""
        made: dict[Region, int] = {}
        for (region, _), count in Counter(start for start, _ in self.pooled_hops).items():
            made[region] = max(made.get(region, 0), count + (region in destinations))
        return {region: count for region, count in made.items() if count > 1}


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """Common part of all plans by region, for one destination or several."""

    source: Region
    volume_gb: float
    goal: Goal
    throughput_gbps: float
    """Rate of one copy: the rate at which each destination receives."""
    boot_s: float
    cost: Cost
    machines: tuple[RegionMachines, ...]
    edges: tuple[OverlayEdge, ...]
    connections_per_machine: int = 64
    optimal: bool = True
    gap: float = 0.0
    """Maximum distance to the best plan, relative to the goal's objective."""
    solve_s: float = 0.0
    objects: ObjectSet | None = None
    """The objects whose requests are charged."""
    binding: tuple[str, ...] = ()
    """Limits of the plan, as text, the tightest first."""

    @property
    def transfer_s(self) -> float:
        """Seconds from the first byte to the last."""
        return transfer_time_s(self.volume_gb, self.throughput_gbps)

    @property
    def time_s(self) -> float:
        """Seconds from the request for machines to the last byte."""
        return self.boot_s + self.transfer_s

    @property
    def minimum_usd(self) -> float:
        """Cost of machines beyond their running time, due to the provider's minimum; part of `cost`."""
        return sum(m.count * (m.offer.usd(self.time_s) - m.offer.usd_per_s * self.time_s) for m in self.machines)

    @property
    def requests(self) -> Requests:
        """Requests to the stores of the source and of all destinations."""
        if self.objects is None:
            return Requests()
        written = self.objects.at_destination()
        return sum((written for _ in self._destinations()), self.objects.at_source())

    def _destinations(self) -> tuple[Region, ...]:
        return ()

    @property
    def ends(self) -> frozenset[Region]:
        """The source and all destinations."""
        return frozenset((self.source, *self._destinations()))

    @property
    def standard_at(self) -> tuple[Region, ...]:
        """Regions whose machines all send in the standard network tier, for `Catalog.with_standard_tier`."""
        standard = (machines.region for machines in self.machines if machines.network_tier == "standard")
        return tuple(region for region in standard if region not in self.mixed_at)

    @property
    def mixed_at(self) -> tuple[Region, ...]:
        """Regions with machines of both network tiers."""
        of_tier = ({m.region for m in self.machines if m.network_tier == tier} for tier in ("premium", "standard"))
        return tuple(sorted(set.intersection(*of_tier)))

    def pool_of(self, machines: RegionMachines) -> Pool:
        """Return the pool of these machines of the plan."""
        return machines.region, machines.network_tier if machines.region in self.mixed_at else None

    def network_tier_of(self, edge: OverlayEdge) -> NetworkTier | None:
        """Return the network tier of the machines that send over an edge; None in a cloud without a choice."""
        here = (machines.network_tier for machines in self.machines if machines.region == edge.src)
        return edge.network_tier or next(here, None)

    def pooled_hops(self) -> Iterator[tuple[Pool, Pool, float]]:
        """Yield each hop of each route or tree: the machines at both ends, and its rate [Gbit/s]."""
        yield from ()

    def known_to(self, catalog: Catalog, edge: OverlayEdge) -> Catalog:
        """Return the catalog with the prices and rates of the machines that send over an edge."""
        at = (*self.standard_at, edge.src) if edge.network_tier == "standard" else self.standard_at
        return catalog.with_standard_tier(at)

    @property
    def machine_counts(self) -> Mapping[Region, int]:
        """Machines per region, all types together."""
        counts: dict[Region, int] = {}
        for machines in self.machines:
            counts[machines.region] = counts.get(machines.region, 0) + machines.count
        return counts


@dataclass(frozen=True, kw_only=True)
class MulticastOverlay(Overlay):
    """One plan for several destinations; each receives everything at the same rate."""

    destinations: tuple[Region, ...]
    trees: tuple[DistributionTree, ...]

    def _destinations(self) -> tuple[Region, ...]:
        return self.destinations

    def pooled_hops(self) -> Iterator[tuple[Pool, Pool, float]]:
        """Yield each hop of each tree: the machines at both ends, and its rate [Gbit/s]."""
        for tree in self.trees:
            yield from ((start, end, tree.gbps) for start, end in tree.pooled_hops)

    @property
    def copies(self) -> Mapping[Region, int]:
        """Return the regions that duplicate bytes of any tree, with their maximum number of copies."""
        most: dict[Region, int] = {}
        for tree in self.trees:
            for region, count in tree.copies(self.destinations).items():
                most[region] = max(most.get(region, 0), count)
        return most

    def __str__(self) -> str:
        return (
            f"{format_volume(self.volume_gb)} to {len(self.destinations)} destinations at "
            f"{format_gbps(self.throughput_gbps)} each in {format_duration(self.time_s)} for "
            f"{format_usd(self.cost.total_usd)} with {format_count(sum(m.count for m in self.machines), 'machine')}, "
            f"{format_count(len(self.trees), 'tree')}"
        )


@dataclass(frozen=True, kw_only=True)
class UnicastOverlay(Overlay):
    """One plan for one destination."""

    destination: Region
    routes: tuple[OverlayRoute, ...]
    compression_ratio: float = 1.0
    """Bytes sent per byte of data that the plan assumes. Its rates, and prices of edges, are per byte of data."""

    @property
    def destinations(self) -> tuple[Region, ...]:
        """The destination as a tuple, as in plans for several."""
        return (self.destination,)

    def _destinations(self) -> tuple[Region, ...]:
        return self.destinations

    def pooled_hops(self) -> Iterator[tuple[Pool, Pool, float]]:
        """Yield each hop of each route: the machines at both ends, and its rate [Gbit/s]."""
        for route in self.routes:
            hops = itertools.pairwise(zip(route.regions, route.tiers, strict=True))
            yield from ((start, end, route.gbps) for start, end in hops)

    def __str__(self) -> str:
        paths = "; ".join(f"{' → '.join(map(str, r.regions))} {r.share:.0%}" for r in self.routes)
        machines = format_count(sum(m.count for m in self.machines), "machine")
        return (
            f"{format_volume(self.volume_gb)} at {format_gbps(self.throughput_gbps)} in {format_duration(self.time_s)} "
            f"for {format_usd(self.cost.total_usd)} with {machines}: {paths}"
        )


def plan_document(plan: UnicastOverlay | MulticastOverlay) -> dict[str, Any]:
    """Return a plan with unrounded figures, so that sums hold. Multicast plans have trees, not routes."""
    return {
        "status": "optimal" if plan.optimal else "feasible",
        "gap": plan.gap,
        "source": str(plan.source),
        **_destinations(plan),
        "volume_gb": plan.volume_gb,
        "goal": goal_document(plan.goal),
        "throughput_gbps": plan.throughput_gbps,
        "time_s": plan.time_s,
        "boot_s": plan.boot_s,
        "solve_s": round(plan.solve_s, 4),
        "cost_usd": {
            "egress": plan.cost.egress_usd,
            "vm": plan.cost.machines_usd,
            "requests": plan.cost.requests_usd,
            "total": plan.cost.total_usd,
        },
        "objects": None if plan.objects is None else plan.objects.count,
        "requests": {
            "get": plan.requests.gets,
            "put": plan.requests.puts,
            "list": plan.requests.lists,
            "head": plan.requests.heads,
        },
        "vms": {str(region): count for region, count in plan.machine_counts.items()},
        "machines": [
            {
                "region": str(m.region),
                "type": m.offer.name,
                "count": m.count,
                "usd_per_hour": m.offer.usd_per_hour,
                **_tier(m.network_tier),
            }
            for m in plan.machines
        ],
        "edges": [
            {
                "src": str(e.src),
                "dst": str(e.dst),
                "gbps": e.gbps,
                "connections": e.connections,
                "usd_per_gb": e.usd_per_gb,
                **_tier(e.network_tier),
            }
            for e in plan.edges
        ],
        **_paths(plan),
        "binding": list(plan.binding),
    }


def _destinations(plan: UnicastOverlay | MulticastOverlay) -> dict[str, Any]:
    if isinstance(plan, MulticastOverlay):
        return {"destinations": [str(region) for region in plan.destinations]}
    return {"destination": str(plan.destination)}


def _paths(plan: UnicastOverlay | MulticastOverlay) -> dict[str, Any]:
    if isinstance(plan, MulticastOverlay):
        trees = ((t, [[str(src), str(dst)] for src, dst in t.hops]) for t in plan.trees)
        return {
            "trees": [{"hops": hops, "gbps": t.gbps, "share": t.share, **_tiers(t.network_tiers)} for t, hops in trees]
        }
    routes = ((r, [str(region) for region in r.regions]) for r in plan.routes)
    return {
        "routes": [
            {"regions": regions, "gbps": r.gbps, "share": r.share, **_tiers(r.network_tiers)} for r, regions in routes
        ]
    }


def _tier(network_tier: NetworkTier | None) -> dict[str, NetworkTier]:
    return {} if network_tier is None else {"network_tier": network_tier}


def _tiers(network_tiers: Sequence[object]) -> dict[str, list[object]]:
    return {"network_tiers": list(network_tiers)} if network_tiers else {}


def goal_document(goal: Goal) -> dict[str, Any]:
    """Return a goal in the form of a problem file."""
    if isinstance(goal, MinThroughput):
        document: dict[str, Any] = {"min_throughput_gbps": goal.gbps}
        return {**document, "exactly": True} if goal.exactly else document
    if isinstance(goal, MaxCost):
        return {"max_cost_usd": goal.usd}
    if isinstance(goal, Deadline):
        return {"deadline_s": goal.seconds}
    if isinstance(goal, Cheapest):
        return {"cheapest": True}
    return {"fastest": True} if isinstance(goal, Fastest) else {"soonest": True}
