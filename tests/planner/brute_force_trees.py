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

    def trees(self) -> list[Tree]:
        """Return every tree from the source that reaches all destinations and whose leaves are destinations."""
        regions = [r for r in self.catalog.grid.regions() if r != self.source]
        into = {r: [u for u, v in self.catalog.grid.links if v == r] for r in regions}
        found = []
        for choice in itertools.product(*[[None, *into[r]] for r in regions]):
            before = {r: u for r, u in zip(regions, choice, strict=True) if u is not None}
            if set(self.sinks) <= set(before) and self._is_tree(before):
                found.append(tuple((u, v) for v, u in before.items()))
        return found

    def _is_tree(self, before: dict[Region, Region]) -> bool:
        for start in before:
            at, steps = start, 0
            while at != self.source:
                at, steps = before.get(at), steps + 1  # type: ignore[assignment]
                if at is None or steps > len(before):
                    return False
        return set(before) - set(before.values()) <= set(self.sinks)

    def machine_sets(self) -> Iterator[Machines]:
        regions = self.catalog.grid.regions()
        for chosen in itertools.product(*[machine_choices(self.catalog, r, self.machines_max) for r in regions]):
            machines = dict(zip(regions, chosen, strict=True))
            if all(machines[end][1] for end in (self.source, *self.sinks)):
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
    prices = {pair: world.catalog.egress(*pair) for pair in use}
    return sum(part * prices[pair].usd_per_gb for pair, part in use.items())  # type: ignore[union-attr]


def shares(world: TreeWorld, trees: list[Tree], machines: Machines):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Return the model, the share of the bytes on each link, and the inverse of the rate."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    inverse_rate = highs.addVariable(lb=0, ub=1e6)
    served = [tree for tree in trees if all(machines[u][1] and machines[v][1] for u, v in tree)]
    share = [highs.addVariable(lb=0) for _ in served]
    highs.addConstr(sum(share) == 1.0) if served else highs.addConstr(inverse_rate >= 2e6)
    links = world.catalog.grid.links
    use = {pair: sum(x for x, tree in zip(share, served, strict=True) if pair in tree) for pair in links}
    for region in world.catalog.grid.regions():
        offer, count = machines[region]
        for end, cap in ((0, offer.machine.egress_gbps), (1, offer.machine.ingress_gbps)):
            at = [pair for pair in links if pair[end] == region and not isinstance(use[pair], int)]
            if at:
                highs.addConstr(sum(use[p] for p in at) <= cap * count * inverse_rate)
                highs.addConstr(sum((1 / links[p].gbps) * use[p] for p in at) <= count * inverse_rate)
    return highs, use, inverse_rate
