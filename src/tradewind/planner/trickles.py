"""Routes that carry next to nothing are left out of a plan, where it is as good without them.

Exact flows use every link that saves a cent. A route with a thousandth of the bytes costs each gateway on it
connections and queues, and is worth nothing; so the links that only such routes use are closed, the flows for the same
machines are solved again, and the answer is taken if it meets the goal and costs no more. Trees to several destinations
are treated as routes are.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from tradewind.errors import SolverLimitReached
from tradewind.model.goal import Cheapest, Deadline, Goal, MaxCost, MinThroughput, Soonest
from tradewind.planner.formulation import Ask, Formulation
from tradewind.planner.multicast import shared_links
from tradewind.planner.network import IntArray
from tradewind.planner.point import RATE_UNBOUNDED_GBPS, Job, Point, cost_rate
from tradewind.planner.routes import decompose
from tradewind.planner.solver import SolverSettings, solve_flows
from tradewind.planner.steiner import Edge

__all__ = ["TRICKLE_SHARE", "without_trickles"]

TRICKLE_SHARE = 0.005
"""A route or tree that carries a smaller part of the bytes is a trickle."""
AS_GOOD = 1e-6
"""Relative; a plan whose cost is higher by less counts as equally cheap."""
SLACK = 1e-4
"""The same for goals without a promised figure (cheapest, soonest); the loss is part of the plan's gap."""
RATE_SLACK = 1e-9
"""Relative; lets the flows reach the rate of the plan in spite of rounding."""
WORK_PART = 0.1
"""Share of a question's work for removing trickles."""
ROUNDS_MAX = 5
"""Maximum rounds: closed links can cause other trickles; those that remain after the last round stay."""


def without_trickles(formulation: Formulation, job: Job, goal: Goal, point: Point, settings: SolverSettings) -> Point:
    """The point without trickles if it is as good for the goal without them, else with as few as were had."""
    settings = settings.afresh(WORK_PART)
    best = point
    ways = fewest = _ways(formulation, point)
    flow_max = formulation.flow_max.copy()
    for _ in range(ROUNDS_MAX):
        if not len(ways.spare) or settings.meter.spent:
            break
        flow_max[ways.spare] = 0.0
        without = _flows(replace(formulation, flow_max=flow_max), job, goal, point, settings)
        if without is None:
            break
        ways = _ways(formulation, without)
        if ways.trickles < fewest.trickles:
            best, fewest = without, ways
    return best


def _flows(formulation: Formulation, job: Job, goal: Goal, point: Point, settings: SolverSettings) -> Point | None:
    """The cheapest flows for the machines of ``point``; ``None`` where they are not as good for the goal."""
    low, high = _rates(job, goal, point)
    ratio = cost_rate(formulation, point.answer, 1.0) / point.rate_gbps
    try:
        answer = solve_flows(formulation, Ask(low, high, usd_per_gbit=ratio), point.answer.machines, settings)
    except SolverLimitReached:
        return None
    if answer is None:
        return None
    found = Point.of(formulation, job, answer)
    given_away = max(0.0, found.cost_usd / point.cost_usd - 1.0)
    promises_nothing = isinstance(goal, Cheapest | Soonest)
    too_dear = isinstance(goal, MaxCost) and found.cost_usd > goal.usd
    if too_dear or given_away > (SLACK if promises_nothing else AS_GOOD):
        return None
    optimal = point.answer.optimal and given_away <= AS_GOOD
    answer = replace(answer, objective=point.answer.objective, bound=point.answer.bound, optimal=optimal)
    return replace(found, answer=answer, gap=point.gap + (given_away if given_away > AS_GOOD else 0.0))


def _rates(job: Job, goal: Goal, point: Point) -> tuple[float, float]:
    """Between which the goal is met as well as by ``point``."""
    if isinstance(goal, Cheapest):
        return 0.0, RATE_UNBOUNDED_GBPS
    if isinstance(goal, MinThroughput):
        return goal.gbps, goal.gbps if goal.exactly else RATE_UNBOUNDED_GBPS
    if isinstance(goal, Deadline):
        return job.gbit / (goal.seconds - job.boot_s), RATE_UNBOUNDED_GBPS
    return point.rate_gbps * (1 - RATE_SLACK), RATE_UNBOUNDED_GBPS


@dataclass(frozen=True, slots=True)
class _Ways:
    """Links that a point's routes or trees use."""

    trickles: int
    spare: IntArray
    """Columns of the links that only trickles use."""


def _ways(formulation: Formulation, point: Point) -> _Ways:
    network, links = formulation.network, formulation.links
    ways: list[tuple[frozenset[Edge], float]]
    if formulation.shared is None:
        routes = decompose(formulation, point.answer.flow_gbps)
        ways = [(frozenset(itertools.pairwise(path)), gbps) for path, gbps in routes]
    else:
        links = shared_links(formulation)
        ways = list(point.answer.trees)
    least = TRICKLE_SHARE * point.rate_gbps
    trickles = [edges for edges, gbps in ways if gbps < least]
    needed = frozenset[Edge]().union(*(edges for edges, gbps in ways if gbps >= least))
    spare = frozenset[Edge]().union(*trickles) - needed
    ends = zip(network.tail[links], network.head[links], strict=True)
    columns = [c for c, (u, v) in enumerate(ends) if (int(u), int(v)) in spare] if spare else []
    return _Ways(len(trickles), np.array(columns, dtype=np.int64))
