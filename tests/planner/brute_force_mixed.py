"""Find the best plan whose regions may use machines of both network tiers, by trying all machines.

Shares no code with the planner. A region with both tiers becomes two without a link between them, one for each tier,
which share its limit of machines. For fixed machines each goal is one linear program, as in `brute_force.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import highspy

from tests.planner.brute_force import Machines, machine_choices
from tradewind.model.catalog import Catalog
from tradewind.model.region import Region


def twins(region: Region, able: Collection[Region]) -> tuple[Region, ...]:
    """Return the places of a region: one of `able` also has that of its machines in the standard tier."""
    return (region, Region(region.provider, f"{region.name}-standard")) if region in able else (region,)


def twin_links(catalog: Catalog, able: Collection[Region]) -> dict[tuple[Region, Region], tuple[float, float]]:
    """Return rate and price of each link, once for each pair of places at its ends."""
    found, standard = {}, catalog.with_standard_tier(able)
    for u, v in catalog.grid.links:
        for start, end in itertools.product(twins(u, able), twins(v, able)):
            known = catalog if start == u else standard
            price = known.egress(u, v)
            assert price is not None
            found[start, end] = known.grid.links[u, v].gbps, price.usd_per_gb
    return found


@dataclass(frozen=True)
class MixedWorld:
    """`able` are the regions whose machines may have either tier; the sink is not among them, as it sends nothing."""

    catalog: Catalog
    able: tuple[Region, ...]
    source: Region
    sink: Region
    volume_gb: float
    machines_max: int
    boot_s: float
    rate_max_gbps: float = math.inf

    @property
    def sources(self) -> tuple[Region, ...]:
        return self.twins(self.source)

    def twins(self, region: Region) -> tuple[Region, ...]:
        return twins(region, self.able)

    def links(self) -> dict[tuple[Region, Region], tuple[float, float]]:
        """Return rate and price of each link between places, except into the source and out of the sink."""
        links = twin_links(self.catalog, self.able)
        return {(u, v): of for (u, v), of in links.items() if v not in self.sources and u != self.sink}

    def machine_sets(self) -> Iterator[Machines]:
        places = [place for region in self.catalog.grid.regions() for place in self.twins(region)]
        owner = {place: region for region in self.catalog.grid.regions() for place in self.twins(region)}
        choices = [machine_choices(self.catalog, owner[place], self.machines_max) for place in places]
        for chosen in itertools.product(*choices):
            machines = dict(zip(places, chosen, strict=True))
            counts = [sum(machines[twin][1] for twin in self.twins(region)) for region in self.able]
            sending = sum(machines[place][1] for place in self.sources)
            if sending and machines[self.sink][1] and all(count <= self.machines_max for count in counts):
                yield machines

    def model(self, machines: Machines, *, scaled: bool):  # type: ignore[no-untyped-def]  # noqa: ANN201
        """Return the model of flows with its rate T, or scaled 1/T, and its egress; None without a link."""
        return _flows(self, machines, scaled=scaled)


def _flows(world: MixedWorld, machines: Machines, *, scaled: bool):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the model of flows in Gbit/s with rate T; or, scaled, as fractions of T with y = 1/T for each constant."""
    links = {(u, v): of for (u, v), of in world.links().items() if machines[u][1] and machines[v][1]}
    sources = world.sources
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
