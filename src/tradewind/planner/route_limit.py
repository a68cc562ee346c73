"""Plans with a limited number of routes, which experts may set ("Transfer as a Service", section III).

Flows may split over any number of paths between regions, and each path is cut at the machines of its regions
(`gateways.py`), so p paths with m machines in each region are p · m routes or a few more. For each m the search allows
as many paths as fit, and chooses their links in three ways: it closes the links that only the narrowest paths of a plan
use, and solves again; or it allows the widest paths with at most one relay, or the cheapest. It returns the best plan
for the goal. This proves no optimum: the gap is stated against the plan without a limit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence

import numpy as np

from tradewind.errors import InfeasibleGoal, SolverLimitReached
from tradewind.model.goal import (
    ASKED_DIGITS,
    Cheapest,
    Deadline,
    Fastest,
    Goal,
    MaxCost,
    MinThroughput,
    Soonest,
)
from tradewind.model.overlay import UnicastOverlay
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region
from tradewind.model.units import format_count, format_duration, format_gbps, format_usd
from tradewind.planner.formulation import build_formulation
from tradewind.planner.gateways import assign_gateways
from tradewind.planner.points import PROVEN_GAP
from tradewind.planner.transfer import Transfer

__all__ = ["route_count", "solve_within_routes"]

Solve = Callable[[Transfer, Goal], UnicastOverlay]
Edge = tuple[Region, Region]

TIE = 1e-6
"""Relative; of plans whose rates differ by less, the cheapest wins."""
NEAREST_SLACK = 1e-9
"""Relative; the nearest goal is stated with this margin on the feasible side."""


def solve_within_routes(transfer: Transfer, goal: Goal, routes_max: int, solve: Solve) -> UnicastOverlay:
    """Return the best plan found with at most `routes_max` routes between gateways. `solve` plans without a limit.

    Raises InfeasibleGoal: no plan meets the goal, or none was found with so few routes.
    """
    free = solve(transfer, goal)
    if route_count(free) <= routes_max:
        return free
    found = _found(transfer, goal, routes_max, solve)
    if not found:
        raise _infeasible(transfer, goal, routes_max, solve)
    return _with_gap(_best(found, goal), free, goal)


def route_count(plan: UnicastOverlay) -> int:
    """Return the number of routes between the gateways of a plan."""
    return len(assign_gateways(plan).routes)


def _found(transfer: Transfer, goal: Goal, routes_max: int, solve: Solve) -> list[UnicastOverlay]:
    """Return plans with few enough routes, for each number of machines. All solves share the work for one plan."""
    counts = range(min(routes_max, int(transfer.network.machines_max.max())), 0, -1)
    work_max = transfer.settings.work_max / len(counts) / len(CHOICES)
    less, found = replace(transfer, settings=replace(transfer.settings, work_max=work_max)), []
    for machines, allowed in itertools.product(counts, CHOICES):
        paths_max = routes_max // machines
        limited = _with_machines(less, machines)
        try:
            plan = _with_few_paths(allowed(limited, paths_max), goal, paths_max, solve)
        except (InfeasibleGoal, SolverLimitReached):
            continue
        if route_count(plan) <= routes_max:
            found.append(plan)
    return found


def _all(transfer: Transfer, _paths_max: int) -> Transfer:
    return transfer


def _widest(transfer: Transfer, paths_max: int) -> Transfer:
    """Return the transfer with the widest paths of at most one relay; of equally wide ones, the cheapest."""
    paths = sorted(_paths(transfer), key=lambda path: (-path.gbps, path.usd_per_gb))
    return _with_paths(transfer, paths[:paths_max])


def _cheapest(transfer: Transfer, paths_max: int) -> Transfer:
    """Return the transfer with the cheapest paths of at most one relay."""
    paths = sorted(_paths(transfer), key=lambda path: (path.usd_per_gb, -path.gbps))
    return _with_paths(transfer, paths[:paths_max])


CHOICES = (_all, _widest, _cheapest)
"""How the links of a limited plan are chosen."""


@dataclass(frozen=True, slots=True)
class _Path:
    """A path with at most one relay: its rate with one machine in each region, and its egress."""

    regions: tuple[Region, ...]
    gbps: float
    usd_per_gb: float


def _paths(transfer: Transfer) -> list[_Path]:
    network, whole = transfer.network, transfer.formulation
    egress, ingress = np.zeros(len(network.regions)), np.zeros(len(network.regions))
    for option in network.options:
        at = option.pool
        egress[at], ingress[at] = max(egress[at], option.egress_gbps), max(ingress[at], option.ingress_gbps)
    links = {(int(network.tail[e]), int(network.head[e])): int(e) for e in whole.links}
    ends = whole.source, whole.sink
    relays = range(len(network.regions))
    every = [ends, *((ends[0], relay, ends[1]) for relay in relays if relay not in ends)]
    found = []
    for path in every:
        hops = list(itertools.pairwise(path))
        if all(hop in links for hop in hops):
            gbps = min(min(network.link_gbps[links[u, v]], egress[u], ingress[v]) for u, v in hops)
            usd_per_gb = sum(float(network.usd_per_gb[links[hop]]) for hop in hops)
            found.append(_Path(tuple(network.regions[v] for v in path), float(gbps), usd_per_gb))
    return found


def _with_paths(transfer: Transfer, paths: Sequence[_Path]) -> Transfer:
    """Return the transfer with the links of these paths only; unchanged without any."""
    kept = {hop for path in paths for hop in itertools.pairwise(path.regions)}
    return _with_links(transfer, kept) if kept else transfer


def _with_machines(transfer: Transfer, machines_max: int) -> Transfer:
    """Return the transfer with at most `machines_max` machines in each region."""
    network = replace(transfer.network, machines_max=np.minimum(transfer.network.machines_max, machines_max))
    whole = transfer.formulation
    small = build_formulation(network, whole.source, whole.sink, links=whole.links)
    return replace(transfer, network=network, formulation=small)


def _with_few_paths(transfer: Transfer, goal: Goal, paths_max: int, solve: Solve) -> UnicastOverlay:
    """Return a plan with at most `paths_max` paths between regions. Each round closes a link, so the rounds end."""
    plan = solve(transfer, goal)
    while len(plan.routes) > paths_max:
        transfer = _with_links(transfer, _kept(plan, paths_max))
        plan = solve(transfer, goal)
    return plan


def _kept(plan: UnicastOverlay, paths_max: int) -> Collection[Edge]:
    """Return the links of the widest paths.

    If these are all that the plan uses, return them without the one of the narrowest path that carries least. The
    widest path always stays.
    """
    paths = [list(itertools.pairwise(route.regions)) for route in plan.routes]
    used = set(itertools.chain(*paths))
    kept = set(itertools.chain(*paths[:paths_max]))
    if kept != used:
        return kept
    flow = {(edge.src, edge.dst): edge.gbps for edge in plan.edges}
    return used - {min(set(paths[-1]) - set(paths[0]), key=lambda edge: flow[edge])}


def _with_links(transfer: Transfer, kept: Collection[Edge]) -> Transfer:
    """Return the transfer with the links between these pairs of regions only."""
    network, whole = transfer.network, transfer.formulation
    names = network.regions
    links = [e for e in whole.links if (names[network.tail[e]], names[network.head[e]]) in kept]
    small = build_formulation(network, whole.source, whole.sink, links=np.array(links, dtype=np.int64))
    return replace(transfer, formulation=small)


def _best(plans: Sequence[UnicastOverlay], goal: Goal) -> UnicastOverlay:
    """Return the best of some plans for a goal, which all of them meet."""
    if isinstance(goal, Soonest):
        least_s = min(plan.time_s for plan in plans)
        plans = [plan for plan in plans if plan.time_s <= least_s * (1 + TIE)]
    elif isinstance(goal, (Fastest, MaxCost)):
        most_gbps = max(plan.throughput_gbps for plan in plans)
        plans = [plan for plan in plans if plan.throughput_gbps >= most_gbps * (1 - TIE)]
    return min(plans, key=lambda plan: plan.cost.total_usd)


def _with_gap(plan: UnicastOverlay, free: UnicastOverlay, goal: Goal) -> UnicastOverlay:
    """Return the plan with its gap by the bound of the plan without a limit."""
    if isinstance(goal, Soonest):
        # Machines with a higher rate may start later, so the rates do not say which plan ends earlier.
        gap = plan.time_s / (free.boot_s + free.transfer_s / (1 + free.gap)) - 1.0
    elif isinstance(goal, (Fastest, MaxCost)):
        gap = free.throughput_gbps * (1 + free.gap) / plan.throughput_gbps - 1.0
    else:
        least_usd = free.cost.total_usd * (1 - free.gap)
        gap = 1.0 - least_usd / plan.cost.total_usd if plan.cost.total_usd > 0 else 0.0
    gap = max(0.0, gap)
    return replace(plan, gap=gap, optimal=gap <= PROVEN_GAP)


def _infeasible(transfer: Transfer, goal: Goal, routes_max: int, solve: Solve) -> InfeasibleGoal:
    """Return the error for a goal that only plans with more routes meet, with the nearest goal that works."""
    few = f"at most {format_count(routes_max, 'route')}"
    if isinstance(goal, Deadline):
        nearest = solve_within_routes(transfer, Soonest(), routes_max, solve)
        nearest = replace(nearest, goal=Deadline(nearest.time_s * (1 + NEAREST_SLACK)))
        because = f"{format_duration(goal.seconds)} is too short with {few}: the earliest finish is "
        because += format_duration(nearest.time_s)
    elif isinstance(goal, MinThroughput):
        nearest = solve_within_routes(transfer, Fastest(), routes_max, solve)
        nearest = replace(nearest, goal=MinThroughput(nearest.throughput_gbps * (1 - NEAREST_SLACK)))
        because = f"{format_gbps(goal.gbps, ASKED_DIGITS)} is out of reach with {few}: the fastest plan moves "
        because += format_gbps(nearest.throughput_gbps)
    elif isinstance(goal, MaxCost):
        nearest = solve_within_routes(transfer, Cheapest(), routes_max, solve)
        nearest = replace(nearest, goal=MaxCost(nearest.cost.total_usd * (1 + NEAREST_SLACK)))
        because = f"{format_usd(goal.usd)} is not enough with {few}: the cheapest plan costs "
        because += format_usd(nearest.cost.total_usd)
    else:
        return InfeasibleGoal(f"no plan was found with {few}", hint="allow more routes", nearest=None)
    return InfeasibleGoal(because, hint="allow more routes", nearest=nearest)
