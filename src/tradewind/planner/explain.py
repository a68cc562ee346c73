"""Why a plan looks as it does: the limits that bind, in words, and the gain from loosening them.

Every constraint row has a name. A row without slack binds; rows are ranked by their duals in the flow model with the
plan's machines. Machines are whole, so the gain from one more machine or more money takes another solve.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tradewind.model.goal import ASKED_DIGITS, Deadline, Goal, MaxCost, MinThroughput
from tradewind.model.records import dataclass
from tradewind.model.units import format_count, format_duration, format_gbps, format_usd
from tradewind.planner.formulation import CAPACITY_FAMILIES, Formulation, pool_name
from tradewind.planner.network import FloatArray, IntArray, MachineOption
from tradewind.planner.points import Demand, Point

__all__ = ["TIGHT", "BottleneckPlace", "Tightness", "binding_limits", "bottlenecks", "tight_rows"]

TIGHT = 1 - 1e-6
BOTTLENECK_UTILISATION = 0.99
"""As §7.4 of the Skyplane paper counts them."""

BottleneckPlace = str
"""``source machine``, ``source link``, ``relay machine``, ``relay link`` or ``destination machine``."""


@dataclass(frozen=True, slots=True)
class Tightness:
    """A capacity row in use."""

    family: str
    pool: int
    """As in `FlowNetwork`."""
    used: float
    """Share of the capacity in use."""
    dual: float


def tight_rows(formulation: Formulation, point: Point, at_least: float = TIGHT) -> list[Tightness]:
    """Return the capacity rows whose use is ``at_least`` this share, the most costly first."""
    rows = formulation.rows
    values = np.concatenate([point.solution.flow_gbps, point.solution.machines.astype(np.float64)])
    terms = rows.value * values[rows.column]
    use = np.bincount(rows.row, np.where(terms > 0, terms, 0.0), minlength=len(rows.names))
    have = np.bincount(rows.row, np.where(terms < 0, -terms, 0.0), minlength=len(rows.names))
    duals: FloatArray = np.zeros(len(rows.names)) if point.solution.duals is None else point.solution.duals
    network, found = formulation.network, []
    for row in np.flatnonzero(np.isneginf(rows.lower) & (have > 0) & (use >= at_least * have)):
        family, _, region = rows.names[row].rpartition(" ")
        if family not in CAPACITY_FAMILIES:
            continue
        pool = next(v for v in range(len(network.regions)) if pool_name(network, v) == region)
        weight = abs(float(duals[row])) * float(have[row])
        found.append(Tightness(family, pool, float(use[row] / have[row]), weight))
    return sorted(found, key=lambda t: -t.dual)


def binding_limits(formulation: Formulation, demand: Demand, point: Point, goal: Goal) -> tuple[str, ...]:
    """Return the limits of the plan, one phrase each."""
    return tuple(_phrases(formulation, demand, point, goal))


def _phrases(formulation: Formulation, demand: Demand, point: Point, goal: Goal) -> Iterator[str]:
    if isinstance(goal, MaxCost) and point.cost_usd >= goal.usd * TIGHT:
        yield f"the cost ceiling of {format_usd(goal.usd)}"
    if isinstance(goal, MinThroughput) and point.rate_gbps <= goal.gbps / TIGHT:
        yield f"the requested rate of {format_gbps(goal.gbps, ASKED_DIGITS)}"
    if isinstance(goal, Deadline) and demand.boot_s + demand.gbit / point.rate_gbps >= goal.seconds * TIGHT:
        yield f"the deadline of {format_duration(goal.seconds)}"
    if point.rate_gbps >= demand.rate_max_gbps * TIGHT:
        yield f"the rate limit of {format_gbps(demand.rate_max_gbps, ASKED_DIGITS)}"
    network = formulation.network
    in_pool = _machines_by_pool(network.pool_of_option, point)
    for tight in tight_rows(formulation, point):
        region, count = network.regions[tight.pool], in_pool[tight.pool]
        several, most = count != 1, sum(in_pool.get(pool, 0) for pool in network.pools_of(tight.pool))
        tier = f" in the {network.tiers[tight.pool]} tier" if count < most else ""
        machines = f"{count} machine{'s' if several else ''}{tier}"
        at_limit = most >= int(network.machines_max[tight.pool])
        more = ""
        if at_limit and tight.pool in network.held_by_quota:
            more = f", and the account's quota there is {most}"
        elif at_limit:
            more = f", and no more than {most} {'are' if most != 1 else 'is'} allowed there"
        if tight.family in ("links out of", "links into"):
            connections = count * network.connections_per_machine
            use = "use all their" if several else "uses all its"
            yield f"the {tight.family} {region}: {machines} {use} {format_count(connections, 'connection')}{more}"
        else:
            capacity = _capacity(formulation, point, tight)
            move = "move" if several else "moves"
            yield f"the {tight.family} {region}: {machines} {move} {format_gbps(capacity)} at most{more}"


def _capacity(formulation: Formulation, point: Point, tight: Tightness) -> float:
    options, pools = formulation.network.options, formulation.network.pool_of_option
    return sum(
        _per_machine(options[k], tight.family) * int(point.solution.machines[k])
        for k in np.flatnonzero(point.solution.machines)
        if pools[k] == tight.pool
    )


def _per_machine(option: MachineOption, family: str) -> float:
    return {
        "egress cap at": option.egress_gbps,
        "ingress cap at": option.ingress_gbps,
        "object-store read rate at": option.read_gbps,
        "object-store write rate at": option.write_gbps,
    }[family]


def _machines_by_pool(pool_of_option: IntArray, point: Point) -> dict[int, int]:
    counts: dict[int, int] = {}
    for k in np.flatnonzero(point.solution.machines):
        pool = int(pool_of_option[k])
        counts[pool] = counts.get(pool, 0) + int(point.solution.machines[k])
    return counts


def bottlenecks(formulation: Formulation, point: Point) -> set[BottleneckPlace]:
    """Return the parts of the plan that are more than 99% used: Fig. 8 of the Skyplane paper."""
    places: set[BottleneckPlace] = set()
    for tight in tight_rows(formulation, point, BOTTLENECK_UTILISATION):
        place = (
            "source"
            if tight.pool in formulation.sources
            else "destination"
            if tight.pool == formulation.sink
            else "relay"
        )
        if not tight.family.startswith("links"):
            places.add(f"{place} machine")
        elif place == "source" or (place == "relay" and tight.family == "links out of"):
            places.add(f"{place} link")
        elif _fed_by_source_alone(formulation, point, tight.pool):
            places.add("source link")
        else:
            places.add("relay link")
    return places


def _fed_by_source_alone(formulation: Formulation, point: Point, pool: int) -> bool:
    network = formulation.network
    into = [
        int(network.tail[formulation.links[c]])
        for c in np.flatnonzero(point.solution.flow_gbps > 0)
        if int(network.head[formulation.links[c]]) == pool
    ]
    return bool(into) and set(into) <= set(formulation.sources)
