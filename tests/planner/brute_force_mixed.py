"""Find the best plan whose source may use machines of both network tiers, by trying all machines.

Shares no code with the planner. The source becomes two regions without a link between them, one for each tier, which
share its limit of machines. For fixed machines each goal is one linear program, as in `brute_force.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import highspy

from tests.planner.brute_force import machine_choices, machines_usd_per_s
from tradewind.model.catalog import Catalog
from tradewind.model.machine import MachineOffer
from tradewind.model.region import Region

Machines = dict[Region, tuple[MachineOffer, int]]


@dataclass(frozen=True)
class MixedWorld:
    """`premium` and `standard` are the same catalog with the source in one tier; the other regions have theirs."""

    premium: Catalog
    standard: Catalog
    source: Region
    sink: Region
    volume_gb: float
    machines_max: int
    boot_s: float

    @property
    def other(self) -> Region:
        """The source's machines of the standard tier, as a region of their own."""
        return Region(self.source.provider, f"{self.source.name}-standard")

    def links(self) -> dict[tuple[Region, Region], tuple[float, float]]:
        """Return rate and price of each link; those out of the source once per tier."""
        found = {}
        for catalog, start in ((self.premium, self.source), (self.standard, self.other)):
            for (u, v), link in catalog.grid.links.items():
                price = catalog.egress(u, v)
                assert price is not None
                if v != self.source and u != self.sink and (u == self.source or start == self.source):
                    found[start if u == self.source else u, v] = link.gbps, price.usd_per_gb
        return found

    def machine_sets(self) -> Iterator[Machines]:
        regions = list(self.premium.grid.regions())
        choices = [machine_choices(self.premium, region, self.machines_max) for region in regions]
        more = machine_choices(self.premium, self.source, self.machines_max)
        for *chosen, other in itertools.product(*choices, more):
            machines = dict(zip(regions, chosen, strict=True)) | {self.other: other}
            sending = machines[self.source][1] + other[1]
            if 0 < sending <= self.machines_max and machines[self.sink][1]:
                yield machines


def cheapest_usd(world: MixedWorld, rate_min_gbps: float) -> float:
    """Return the minimum cost at a minimum rate; infinite if the rate is infeasible."""
    best = math.inf
    for machines in world.machine_sets():
        model = _flows(world, machines, scaled=True)
        if model is None:
            continue
        highs, inverse_rate, egress = model
        highs.addConstr(inverse_rate <= 1 / rate_min_gbps)
        usd_per_s = machines_usd_per_s(machines)
        highs.minimize(world.volume_gb * egress + 8 * world.volume_gb * usd_per_s * inverse_rate)
        if highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            best = min(best, highs.getObjectiveValue() + world.boot_s * usd_per_s)
    return best


def fastest_gbps(world: MixedWorld, ceiling_usd: float = math.inf) -> float:
    """Return the highest rate for at most ``ceiling_usd``; zero if no plan is that cheap."""
    best = 0.0
    for machines in world.machine_sets():
        model = _flows(world, machines, scaled=False)
        if model is None:
            continue
        highs, rate, egress_usd_per_s = model
        usd_per_s = machines_usd_per_s(machines)
        if ceiling_usd < math.inf:
            left_usd = ceiling_usd - world.boot_s * usd_per_s
            highs.addConstr(8 * world.volume_gb * (egress_usd_per_s + usd_per_s) <= left_usd * rate)
        highs.maximize(rate)
        if highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            best = max(best, highs.getObjectiveValue())
    return best


def _flows(world: MixedWorld, machines: Machines, *, scaled: bool):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the model of flows in Gbit/s with rate T; or, scaled, as fractions of T with y = 1/T for each constant."""
    links = {(u, v): of for (u, v), of in world.links().items() if machines[u][1] and machines[v][1]}
    sources = (world.source, world.other)
    if not any(u in sources for u, _ in links) or not any(v == world.sink for _, v in links):
        return None
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    flow = {pair: highs.addVariable(lb=0) for pair in links}
    other = highs.addVariable(lb=0)
    unit, total = (other, 1.0) if scaled else (1.0, other)
    for region, (offer, count) in machines.items():
        out, into = ([pair for pair in links if pair[end] == region] for end in (0, 1))
        for pairs, cap in ((out, offer.machine.egress_gbps), (into, offer.machine.ingress_gbps)):
            if pairs:
                highs.addConstr(sum(flow[p] for p in pairs) <= cap * count * unit)
                highs.addConstr(sum(flow[p] * (1 / links[p][0]) for p in pairs) <= count * unit)
        if region == world.sink:
            highs.addConstr(sum(flow[p] for p in into) == total)
        elif region not in sources and (out or into):
            highs.addConstr(sum(flow[p] for p in into) - sum(flow[p] for p in out) == 0)
    highs.addConstr(sum(flow[p] for p in links if p[0] in sources) == total)
    egress = sum(flow[p] * (usd if scaled else usd / 8) for p, (_, usd) in links.items())
    return highs, other, egress
