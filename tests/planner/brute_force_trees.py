"""Find the best plan for several destinations by trying all machines of all types and enumerating every tree.

Shares no code with the planner: a tree is a choice of one predecessor for each region that it reaches. For fixed
machines each goal is one linear program over the rates of the trees.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import highspy

from tests.planner.brute_force import Machines, machine_choices, machines_usd_per_s
from tests.planner.brute_force_mixed import twin_links, twins
from tradewind.model.catalog import Catalog
from tradewind.model.region import Region

Tree = tuple[tuple[Region, Region], ...]


@dataclass(frozen=True)
class TreeWorld:
    catalog: Catalog
    source: Region
    sinks: tuple[Region, ...]
    volume_gb: float
    machines_max: int
    able: tuple[Region, ...] = ()
    """Regions whose machines may have either network tier: each is two places, which share its limit of machines."""

    def twins(self, region: Region) -> tuple[Region, ...]:
        return twins(region, self.able)

    def places(self) -> list[Region]:
        return [place for region in self.catalog.grid.regions() for place in self.twins(region)]

    def links(self) -> dict[tuple[Region, Region], tuple[float, float]]:
        return twin_links(self.catalog, self.able)

    def trees(self) -> list[Tree]:
        """Return every tree from the source that reaches all destinations and whose leaves are destinations."""
        roots, links = self.twins(self.source), self.links()
        places = [place for place in self.places() if place not in roots]
        into = {place: [u for u, v in links if v == place] for place in places}
        found = []
        for choice in itertools.product(*[[None, *into[place]] for place in places]):
            before = {place: u for place, u in zip(places, choice, strict=True) if u is not None}
            reached = all(any(twin in before for twin in self.twins(sink)) for sink in self.sinks)
            if reached and self._is_tree(before, roots):
                found.append(tuple((u, v) for v, u in before.items()))
        return found

    def _is_tree(self, before: dict[Region, Region], roots: tuple[Region, ...]) -> bool:
        for start in before:
            at, steps = start, 0
            while at not in roots:
                at, steps = before.get(at), steps + 1  # type: ignore[assignment]
                if at is None or steps > len(before):
                    return False
        return set(before) - set(before.values()) <= {twin for sink in self.sinks for twin in self.twins(sink)}

    def machine_sets(self) -> Iterator[Machines]:
        regions = self.catalog.grid.regions()
        choices = [
            [
                of
                for of in itertools.product(
                    *[machine_choices(self.catalog, r, self.machines_max) for _ in self.twins(r)]
                )
                if sum(count for _, count in of) <= self.machines_max
            ]
            for r in regions
        ]
        for chosen in itertools.product(*choices):
            machines = {
                place: of
                for region, each in zip(regions, chosen, strict=True)
                for place, of in zip(self.twins(region), each, strict=True)
            }
            ends = (self.source, *self.sinks)
            if all(any(machines[twin][1] for twin in self.twins(end)) for end in ends):
                yield machines


def cheapest_usd(world: TreeWorld, rate_min_gbps: float, *, exactly: bool = False) -> float:
    """Return the minimum cost at a minimum (or exact) rate, by shares of trees and y = 1/T; infinite if infeasible."""
    best = float("inf")
    trees = world.trees()
    for machines in world.machine_sets():
        highs, use, inverse_rate = shares(world, trees, machines)
        egress = _egress_usd_per_gb(world, use)
        bound = 1 / rate_min_gbps
        highs.addConstr(inverse_rate == bound) if exactly else highs.addConstr(inverse_rate <= bound)
        highs.minimize(world.volume_gb * egress + 8 * world.volume_gb * machines_usd_per_s(machines) * inverse_rate)
        if highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            best = min(best, highs.getObjectiveValue())
    return best


def fastest_gbps(world: TreeWorld, ceiling_usd: float = float("inf")) -> float:
    """Return the highest rate for at most ``ceiling_usd``; zero if no plan is that cheap."""
    best = 0.0
    trees = world.trees()
    for machines in world.machine_sets():
        highs, use, inverse_rate = shares(world, trees, machines)
        egress = _egress_usd_per_gb(world, use)
        if ceiling_usd < float("inf"):
            paid = world.volume_gb * egress + 8 * world.volume_gb * machines_usd_per_s(machines) * inverse_rate
            highs.addConstr(paid <= ceiling_usd)
        highs.minimize(inverse_rate)
        if highs.getModelStatus() == highspy.HighsModelStatus.kOptimal and highs.getObjectiveValue() < 1e6:
            best = max(best, 1 / highs.getObjectiveValue())
    return best


def _egress_usd_per_gb(world: TreeWorld, use):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    links = world.links()
    return sum(part * links[pair][1] for pair, part in use.items())


def shares(world: TreeWorld, trees: list[Tree], machines: Machines):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Return the model, the share of the bytes on each link, and the inverse of the rate."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    inverse_rate = highs.addVariable(lb=0, ub=1e6)
    served = [tree for tree in trees if all(machines[u][1] and machines[v][1] for u, v in tree)]
    share = [highs.addVariable(lb=0) for _ in served]
    highs.addConstr(sum(share) == 1.0) if served else highs.addConstr(inverse_rate >= 2e6)
    links = world.links()
    use = {pair: sum(x for x, tree in zip(share, served, strict=True) if pair in tree) for pair in links}
    for region in world.places():
        offer, count = machines[region]
        for end, cap in ((0, offer.machine.egress_gbps), (1, offer.machine.ingress_gbps)):
            at = [pair for pair in links if pair[end] == region and not isinstance(use[pair], int)]
            if at:
                highs.addConstr(sum(use[p] for p in at) <= cap * count * inverse_rate)
                highs.addConstr(sum((1 / links[p][0]) * use[p] for p in at) <= count * inverse_rate)
    return highs, use, inverse_rate
