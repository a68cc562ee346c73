"""Find the best plan by trying all machines of all types, with the paper's model as printed: M is not eliminated.

Shares no code with the planner. For fixed machines each goal is one linear program. The cheapest plan at a minimum rate
becomes one by the change of variables f = F/T, y = 1/T (Charnes and Cooper).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import highspy

from tradewind.model.catalog import Catalog
from tradewind.model.machine import MachineOffer
from tradewind.model.region import Region

Machines = dict[Region, tuple[MachineOffer, int]]
"""Type and number of machines by region."""

CONNECTIONS = 64.0


@dataclass(frozen=True)
class World:
    catalog: Catalog
    source: Region
    sink: Region
    volume_gb: float
    machines_max: int
    boot_s: float
    rate_max_gbps: float = float("inf")

    @property
    def regions(self) -> list[Region]:
        return list(self.catalog.grid.regions())

    def machine_sets(self) -> Iterator[Machines]:
        choices = [machine_choices(self.catalog, r, self.machines_max) for r in self.regions]
        for chosen in itertools.product(*choices):
            machines = dict(zip(self.regions, chosen, strict=True))
            if machines[self.source][1] and machines[self.sink][1]:
                yield machines

    def model(self, machines: Machines, *, scaled: bool):  # type: ignore[no-untyped-def]  # noqa: ANN201
        """Return the model of flows with its rate T, or scaled 1/T, and its egress; None without a link."""
        found = _flows(self, machines, scaled=scaled)
        return None if found is None else (found[0], *found[2:])


def machine_choices(catalog: Catalog, region: Region, most: int) -> list[tuple[MachineOffer, int]]:
    """Return the choices for a region: no machine, or up to `most` of one type."""
    offers = catalog.machine_offers(region)
    return [(offers[0], 0), *itertools.product(offers, range(1, most + 1))]


def machines_usd_per_s(machines: Machines) -> float:
    return sum(count * offer.usd_per_s for offer, count in machines.values())


class Worldlike(Protocol):
    """A world whose best plans the functions below find."""

    @property
    def volume_gb(self) -> float: ...

    @property
    def boot_s(self) -> float: ...

    @property
    def rate_max_gbps(self) -> float: ...

    def machine_sets(self) -> Iterator[Machines]: ...

    def model(self, machines: Machines, *, scaled: bool) -> Any: ...


def cheapest_usd(world: Worldlike, rate_min_gbps: float, *, exactly: bool = False) -> float:
    """Return the minimum cost at a minimum (or exact) rate; infinite if the rate is infeasible."""
    best = float("inf")
    for machines in world.machine_sets():
        model = world.model(machines, scaled=True)
        if model is None:
            continue
        highs, inverse_rate, egress = model
        bound = 1 / rate_min_gbps
        highs.addConstr(inverse_rate == bound) if exactly else highs.addConstr(inverse_rate <= bound)
        highs.addConstr(inverse_rate >= 1 / world.rate_max_gbps)
        usd_per_s = machines_usd_per_s(machines)
        highs.minimize(world.volume_gb * egress + 8 * world.volume_gb * usd_per_s * inverse_rate)
        if highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            best = min(best, highs.getObjectiveValue() + world.boot_s * usd_per_s)
    return best


def fastest_gbps(world: Worldlike, ceiling_usd: float = float("inf")) -> float:
    """Return the highest rate for at most ``ceiling_usd``; zero if no plan is that cheap."""
    best = 0.0
    for machines in world.machine_sets():
        model = world.model(machines, scaled=False)
        if model is None:
            continue
        highs, rate, egress_usd_per_s = model
        usd_per_s = machines_usd_per_s(machines)
        if world.rate_max_gbps < float("inf"):
            highs.addConstr(rate <= world.rate_max_gbps)
        if ceiling_usd < float("inf"):
            left_usd = ceiling_usd - world.boot_s * usd_per_s
            highs.addConstr(8 * world.volume_gb * (egress_usd_per_s + usd_per_s) <= left_usd * rate)
        highs.maximize(rate)
        if highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            best = max(best, highs.getObjectiveValue())
    return best


def _flows(world: World, machines: Machines, *, scaled: bool):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the model of flows in Gbit/s with rate T; or, scaled, as fractions of T with y = 1/T for each constant."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    links = {
        (u, v): link.gbps
        for (u, v), link in world.catalog.grid.links.items()
        if machines[u][1] and machines[v][1] and v != world.source and u != world.sink
    }
    if not any(u == world.source for u, _ in links) or not any(v == world.sink for _, v in links):
        return None
    flow = {pair: highs.addVariable(lb=0) for pair in links}
    connections = {pair: highs.addVariable(lb=0) for pair in links}
    other = highs.addVariable(lb=0)
    unit = other if scaled else 1.0
    total = 1.0 if scaled else other
    for (u, v), gbps in links.items():
        highs.addConstr(CONNECTIONS * flow[u, v] <= gbps * connections[u, v])
    for region in world.regions:
        offer, count = machines[region]
        cap = offer.machine
        out = [pair for pair in links if pair[0] == region]
        into = [pair for pair in links if pair[1] == region]
        for pairs, limit in ((out, cap.egress_gbps), (into, cap.ingress_gbps)):
            if pairs:
                highs.addConstr(sum(flow[p] for p in pairs) <= limit * count * unit)
                highs.addConstr(sum(connections[p] for p in pairs) <= CONNECTIONS * count * unit)
        if region == world.source:
            highs.addConstr(sum(flow[p] for p in out) == total)
        elif region == world.sink:
            highs.addConstr(sum(flow[p] for p in into) == total)
        elif out or into:
            highs.addConstr(sum(flow[p] for p in into) - sum(flow[p] for p in out) == 0)
    price = {pair: world.catalog.egress(*pair) for pair in links}
    per_gb = {pair: p.usd_per_gb for pair, p in price.items() if p is not None}
    egress = sum(flow[p] * (per_gb[p] if scaled else per_gb[p] / 8) for p in links)
    return highs, flow, other, egress
