"""Drop routes with a tiny share from a plan if it is as good without them.

Exact flows use every link that saves a cent. A route with a thousandth of the bytes gains nothing and costs each of its
gateways connections and queues. The links that only such routes use are closed, and the flows for the same machines are
solved again. The result is accepted if it meets the goal at no higher cost. Trees to several destinations are treated
like routes.
"""

from __future__ import annotations

import itertools

import numpy as np

from tradewind.errors import SolverLimitReached
from tradewind.model.goal import Cheapest, Deadline, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.records import dataclass, replace
from tradewind.planner.formulation import Formulation, Subproblem
from tradewind.planner.multicast_formulation import shared_links
from tradewind.planner.network import IntArray
from tradewind.planner.points import Demand, Point, cost_rate
from tradewind.planner.routes import decompose
from tradewind.planner.solver import SolverSettings, solve_flows
from tradewind.planner.steiner import Edge

__all__ = ["SMALL_FLOW_SHARE", "drop_small_flows"]

SMALL_FLOW_SHARE = 0.005
"""A route or tree with a smaller share of the bytes is a small flow."""
AS_GOOD = 1e-6
"""Relative; a plan whose cost is higher by less counts as equally cheap."""
SLACK = 1e-4
"""The same for goals without a promised figure (cheapest, soonest); the loss is part of the plan's gap."""
RATE_SLACK = 1e-9
"""Relative; lets the flows reach the rate of the plan in spite of rounding."""
WORK_PART = 0.1
"""Share of a question's work for dropping small flows."""
ROUNDS_MAX = 5
"""Maximum rounds: closed links can cause other small flows; those that remain after the last round stay."""


def drop_small_flows(
    formulation: Formulation, demand: Demand, goal: Goal, point: Point, settings: SolverSettings
) -> Point:
    """Return the point without small flows if it is as good for the goal, else with as few as possible."""
    settings = settings.with_new_budget(WORK_PART)
    best = point
    use = fewest = _path_use(formulation, point)
    flow_max = formulation.flow_max.copy()
    for _ in range(ROUNDS_MAX):
        if not len(use.spare) or settings.budget.spent:
            break
        flow_max[use.spare] = 0.0
        without = _flows(replace(formulation, flow_max=flow_max), demand, goal, point, settings)
        if without is None:
            break
        use = _path_use(formulation, without)
        if use.small_flows < fewest.small_flows:
            best, fewest = without, use
    return best


def _flows(
    formulation: Formulation, demand: Demand, goal: Goal, point: Point, settings: SolverSettings
) -> Point | None:
    """Return the cheapest flows for the machines of ``point``; ``None`` if they do not meet the goal as well."""
    low, high = _rates(demand, goal, point)
    ratio = cost_rate(formulation, point.solution, 1.0) / point.rate_gbps
    try:
        solution = solve_flows(
            formulation, Subproblem(low, high, usd_per_gbit=ratio), point.solution.machines, settings
        )
    except SolverLimitReached:
        return None
    if solution is None:
        return None
    found = Point.of(formulation, demand, solution)
    extra_cost = max(0.0, found.cost_usd / point.cost_usd - 1.0) if point.cost_usd > 0 else 0.0
    promises_nothing = isinstance(goal, Cheapest | Soonest)
    too_dear = isinstance(goal, MaxCost) and found.cost_usd > goal.usd
    if too_dear or extra_cost > (SLACK if promises_nothing else AS_GOOD):
        return None
    optimal = point.solution.optimal and extra_cost <= AS_GOOD
    solution = replace(solution, objective=point.solution.objective, bound=point.solution.bound, optimal=optimal)
    return replace(found, solution=solution, gap=point.gap + (extra_cost if extra_cost > AS_GOOD else 0.0))


def _rates(demand: Demand, goal: Goal, point: Point) -> tuple[float, float]:
    """Return the lowest and highest rate at which the goal is met as well as by ``point``."""
    if isinstance(goal, Cheapest):
        return 0.0, demand.rate_max_gbps
    if isinstance(goal, MinThroughput):
        return goal.gbps, goal.gbps if goal.exactly else demand.rate_max_gbps
    if isinstance(goal, Deadline):
        return demand.gbit / (goal.seconds - demand.boot_s), demand.rate_max_gbps
    return point.rate_gbps * (1 - RATE_SLACK), demand.rate_max_gbps


@dataclass(frozen=True, slots=True)
class _PathUse:
    """Links that a point's routes or trees use."""

    small_flows: int
    spare: IntArray
    """Columns of the links that only small flows use."""


def _path_use(formulation: Formulation, point: Point) -> _PathUse:
    network, links = formulation.network, formulation.links
    paths: list[tuple[frozenset[Edge], float]]
    if formulation.shared is None:
        routes = decompose(formulation, point.solution.flow_gbps)
        paths = [(frozenset(itertools.pairwise(path)), gbps) for path, gbps in routes]
    else:
        links = shared_links(formulation)
        paths = list(point.solution.trees)
    least = SMALL_FLOW_SHARE * point.rate_gbps
    small_flows = [edges for edges, gbps in paths if gbps < least]
    needed = frozenset[Edge]().union(*(edges for edges, gbps in paths if gbps >= least))
    spare = frozenset[Edge]().union(*small_flows) - needed
    ends = zip(network.tail[links], network.head[links], strict=True)
    columns = [c for c, (u, v) in enumerate(ends) if (int(u), int(v)) in spare] if spare else []
    return _PathUse(len(small_flows), np.array(columns, dtype=np.int64))
