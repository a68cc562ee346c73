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

from tests.planner.brute_force import Machines, machine_choices
from tradewind.model.catalog import Catalog
from tradewind.model.region import Region


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
    rate_max_gbps: float = math.inf

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

    def model(self, machines: Machines, *, scaled: bool):  # type: ignore[no-untyped-def]  # noqa: ANN201
        """Return the model of flows with its rate T, or scaled 1/T, and its egress; None without a link."""
        return _flows(self, machines, scaled=scaled)


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
