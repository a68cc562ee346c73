"""Plans for several destinations: entry points, the plan from an answer, and the alternatives it is compared with."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from tradewind.errors import InfeasibleGoal, InvalidPlan, SolverLimitReached, UsageError
from tradewind.model.catalog import Catalog
from tradewind.model.goal import Cheapest, Fastest, Goal, MaxCost, MinThroughput
from tradewind.model.overlay import DistributionTree, MulticastOverlay, RegionMachines
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region
from tradewind.planner.budget import WORK_MAX
from tradewind.planner.check import multicast_violations
from tradewind.planner.explain import binding_limits
from tradewind.planner.frontier import SOLVES_MAX, Frontier
from tradewind.planner.multicast_formulation import build_multicast_formulation, flow_columns
from tradewind.planner.network import FlowNetwork, PlanningLimits, build_network
from tradewind.planner.plan import (
    Transfer,
    demand_of,
    prepare,
    refuse_ends,
    solve_checked,
    solve_overlay,
    trace_transfer,
)
from tradewind.planner.points import Point
from tradewind.planner.routes import FLOW_MIN_RELATIVE, figures, fitting_part, tier_of_pool
from tradewind.planner.solver import WHOLE_COLUMNS_MAX, SolverSettings
from tradewind.planner.steiner import SINKS_MAX, Edge, Tree

__all__ = ["MulticastAlternative", "compare_multicast", "prepare_multicast", "solve_multicast", "trace_multicast"]

SETTINGS = SolverSettings(time_limit_s=20.0, windows_max=6, work_max=12 * WORK_MAX)
"""A question takes up to 40 CPU-s here; the best answer by then is shown with its gap."""
SAMPLES = 4
"""Number of plans between the cheapest and the fastest whose machines start a large frontier."""
RIVAL_SOLVE_S = 3.0
"""Limit of one solve for a plan to a single destination, which is only a comparison."""
RIVAL_WORK = 1 / 12
"""Share of a plan's work for each plan that is only a comparison: that of one destination."""
SEPARATE_WORK = 1 / 4
"""The same for all plans to single destinations together."""
RIVAL_GAP_SAID = 5e-3
"""A comparison states its gap if it may cost more than this above the best."""


def prepare_multicast(
    catalog: Catalog,
    source: Region,
    destinations: Sequence[Region],
    volume_gb: float,
    limits: PlanningLimits | None = None,
    *,
    network: FlowNetwork | None = None,
    boot_s: float | None = None,
    settings: SolverSettings | None = None,
    objects: int | None = None,
) -> Transfer:
    """Prepare a transfer to several destinations; arguments as in `plan.prepare`.

    Raises:
        UsageError: unknown region, a destination named twice, or too many.
    """
    limits = limits or PlanningLimits()
    if not 2 <= len(destinations) <= SINKS_MAX:
        raise UsageError(
            f"a plan has 1 to {SINKS_MAX} destinations, not {len(destinations)}", hint="plan the others separately"
        )
    twice = next((d for number, d in enumerate(destinations) if d in destinations[:number]), None)
    if twice is not None:
        raise UsageError(f"{twice} is named twice among the destinations", hint="name each destination once")
    network = network or build_network(catalog, limits)
    for destination in destinations:
        refuse_ends(catalog, network, source, destination, volume_gb, limits)
    formulation = build_multicast_formulation(
        network, network.index[source], tuple(network.index[d] for d in destinations)
    )
    demand = demand_of(catalog, network, source, destinations, volume_gb, limits, boot_s, objects)
    return Transfer(catalog, limits, network, formulation, demand, settings or SETTINGS)


def solve_multicast(transfer: Transfer, goal: Goal) -> MulticastOverlay:
    """Return the plan for one goal, checked. ``transfer`` comes from `prepare_multicast`.

    Raises:
        InfeasibleGoal: no plan meets the goal.
        InvalidPlan: the check refused the plan.
    """
    return solve_checked(transfer, goal, _checked)


def trace_multicast(
    transfer: Transfer, *, solves_max: int = SOLVES_MAX, known: Sequence[MulticastOverlay] = ()
) -> Frontier:
    """Return the frontier between cost and rate, as `plan.trace_transfer` does.

    If the model is too large to prove pieces, the frontier starts with the machines of some plans between cheapest and
    fastest: a proof would find these machines one by one.

    Raises:
        InfeasibleGoal: a destination cannot be reached.
    """
    samples: list[MulticastOverlay] = []
    if transfer.formulation.link_count > WHOLE_COLUMNS_MAX:
        low, high = (solve_multicast(transfer, goal).cost.total_usd for goal in (Cheapest(), Fastest()))
        # Squares, because additional money has the largest effect near the cheapest plan.
        parts = [(number / (SAMPLES + 1)) ** 2 for number in range(1, SAMPLES + 1)]
        for part in parts:
            with suppress(SolverLimitReached):
                samples.append(solve_multicast(transfer, MaxCost(low + part * max(0.0, high - low))))
    return trace_transfer(transfer, solves_max=solves_max, known=[*known, *samples])


def _checked(transfer: Transfer, goal: Goal, point: Point) -> MulticastOverlay:
    plan = _build_overlay(transfer, goal, point)
    wrong = multicast_violations(plan, transfer.catalog, transfer.limits, boot_s=transfer.boot_given_s)
    if wrong:
        raise InvalidPlan(f"the plan failed its check: {wrong[0]}", hint="report this with the problem file")
    return plan


def _build_overlay(transfer: Transfer, goal: Goal, point: Point) -> MulticastOverlay:
    """Write an answer as trees; all figures are calculated from the trees."""
    formulation, demand = transfer.formulation, transfer.demand
    name = formulation.network.regions
    trees = point.solution.trees
    part = fitting_part(formulation, point, flow_columns(formulation, trees))
    trees = tuple(sorted(((tree, gbps * part) for tree, gbps in trees), key=lambda item: -item[1]))
    rate, edges, machines, cost = figures(formulation, demand, point, trees)
    return MulticastOverlay(
        source=name[formulation.source],
        destinations=tuple(name[v] for v in formulation.sinks),
        volume_gb=demand.volume_gb,
        goal=goal,
        throughput_gbps=rate,
        boot_s=demand.boot_of(machines),
        cost=cost,
        objects=demand.objects,
        machines=machines,
        edges=edges,
        trees=tuple(
            _tree(formulation.network, _outwards(tree, formulation.sources), machines, gbps, gbps / rate)
            for tree, gbps in trees
        ),
        connections_per_machine=formulation.network.connections_per_machine,
        optimal=point.proven and abs(rate - point.rate_gbps) <= FLOW_MIN_RELATIVE * 10 * rate,
        gap=point.gap,
        binding=binding_limits(formulation, demand, point, goal),
    )


def _tree(
    network: FlowNetwork, hops: Sequence[Edge], machines: tuple[RegionMachines, ...], gbps: float, share: float
) -> DistributionTree:
    name = network.regions
    tiers = tuple((tier_of_pool(network, u, machines), tier_of_pool(network, v, machines)) for u, v in hops)
    return DistributionTree(
        tuple((name[u], name[v]) for u, v in hops), gbps, share, tiers if any(map(any, tiers)) else ()
    )


def _outwards(tree: Tree, sources: Sequence[int]) -> list[Edge]:
    """Return the hops in an order that reaches each pool before leaving it."""
    out: dict[int, list[int]] = defaultdict(list)
    for u, v in sorted(tree):
        out[u].append(v)
    hops: list[Edge] = []
    reached = list(sources)
    for u in reached:
        hops += [(u, v) for v in out[u]]
        reached += out[u]
    return hops


@dataclass(frozen=True)
class MulticastAlternative:
    """One alternative for serving all destinations, for the comparison."""

    name: str
    throughput_gbps: float
    """Rate at which each destination receives."""
    average_gbps: float
    """Average rate until the last destination has everything, without the start of machines. It is below
    ``throughput_gbps`` if plans run one after another."""
    time_s: float
    """Time until the last destination has everything."""
    cost_usd: float
    machines: int
    source_machines: int
    remark: str = ""


def compare_multicast(transfer: Transfer, plan: MulticastOverlay) -> list[MulticastAlternative]:
    """Return the plan, direct copies to each destination, and one plan per destination, all at the plan's rate."""
    lines = [_line("one plan, shared links", plan)]
    straight = _direct_copies(transfer, plan)
    if straight is not None:
        slower = straight.throughput_gbps < plan.throughput_gbps * (1 - 1e-6)
        remark = "the fastest possible" if slower else ""
        lines.append(replace(_line("direct to each, at once", straight), remark=remark))
    separate = _separate_plans(transfer, plan)
    if separate is not None:
        lines.append(separate)
    return lines


def _line(name: str, plan: MulticastOverlay) -> MulticastAlternative:
    machines = sum(m.count for m in plan.machines)
    source = plan.machine_counts[plan.source]
    rate = plan.throughput_gbps
    return MulticastAlternative(name, rate, rate, plan.time_s, plan.cost.total_usd, machines, source)


def _direct_copies(transfer: Transfer, plan: MulticastOverlay) -> MulticastOverlay | None:
    """Plan all direct links from the source at once, at the plan's rate or the highest possible one below it."""
    network, formulation = transfer.network, transfer.formulation
    links = np.flatnonzero(np.isin(network.tail, formulation.sources) & np.isin(network.head, formulation.sink_pools))
    star = build_multicast_formulation(network, formulation.source, formulation.sinks, links=links)
    settings = _rival_settings(transfer)
    for goal in (MinThroughput(plan.throughput_gbps * (1 - 1e-9)), Fastest()):
        try:
            return solve_multicast(replace(transfer, formulation=star, settings=settings), goal)
        except InfeasibleGoal:
            continue
        except SolverLimitReached:
            return None
    return None


def _rival_settings(transfer: Transfer, share: float = RIVAL_WORK) -> SolverSettings:
    settings = transfer.settings
    return replace(settings, time_limit_s=RIVAL_SOLVE_S, work_max=settings.work_max * share)


def _separate_plans(transfer: Transfer, plan: MulticastOverlay) -> MulticastAlternative | None:
    """Return the cheapest plan per destination, each at the shared plan's rate, and each with all allowed machines."""
    goal = MinThroughput(plan.throughput_gbps * (1 - 1e-9))
    settings = _rival_settings(transfer, min(RIVAL_WORK, SEPARATE_WORK / len(plan.destinations)))
    plans = []
    for destination in plan.destinations:
        alone = prepare(
            transfer.catalog,
            plan.source,
            destination,
            plan.volume_gb,
            transfer.limits,
            network=transfer.network,
            boot_s=transfer.boot_given_s,
            settings=settings,
            objects=transfer.demand.object_count,
        )
        try:
            plans.append(solve_overlay(alone, goal))
        except (InfeasibleGoal, SolverLimitReached):
            return None
    counts: dict[Region, int] = defaultdict(int)
    for made in plans:
        for region, count in made.machine_counts.items():
            counts[region] += count
    network = transfer.network
    crowded = [r for r, n in counts.items() if n > int(network.machines_max[network.index[r]])]
    together = not crowded
    rate = min(made.throughput_gbps for made in plans)
    one_by_one = transfer.demand.gbit / math.fsum(made.transfer_s for made in plans)
    remarks = [] if together else [f"one after another: {crowded[0]} has too few machines for all at once"]
    gap = max(made.gap for made in plans)
    remarks += [f"each within {gap:.1%} of its best"] if gap > RIVAL_GAP_SAID else []
    return MulticastAlternative(
        f"{len(plans)} plans, one per destination",
        rate,
        rate if together else one_by_one,
        max(made.time_s for made in plans) if together else math.fsum(made.time_s for made in plans),
        math.fsum(made.cost.total_usd for made in plans),
        sum(counts.values()),
        counts[plan.source],
        "; ".join(remarks),
    )
