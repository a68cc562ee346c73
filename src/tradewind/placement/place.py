"""The entry point of placement: one algorithm for one problem, with a checked plan."""

from __future__ import annotations

import time
from typing import Literal, get_args

from tradewind.errors import InvalidPlan, UsageError
from tradewind.placement.assignment import Assignment
from tradewind.placement.best import best_placement
from tradewind.placement.check import placement_violations
from tradewind.placement.deadline import WALL_MORE_S, deadline_in
from tradewind.placement.exact import polish
from tradewind.placement.flow_greedy import flow_greedy, preferences_of, upgrade
from tradewind.placement.paths import Paths, paths_of
from tradewind.placement.plan import PlacementPlan, plan_of
from tradewind.placement.problem import PlacementProblem
from tradewind.placement.proxy_greedy import ProxySets, one_proxy, two_proxies, two_proxies_with_rollback
from tradewind.placement.relaxation import relax

__all__ = ["ALGORITHMS", "Algorithm", "place"]

Algorithm = Literal["f-fct", "f-cost", "1p", "2p", "2p-rb", "exact", "auto"]
ALGORITHMS: tuple[str, ...] = get_args(Algorithm)

TIME_LIMITS_S = {"auto": 4.0, "exact": 60.0}
"""Default limits of CPU time. See `deadline.py` for the limit of wall time."""
LARGE_FLOWS_PER_S = 10.0
"""`auto` gets a second more for each so many flows beyond the first hundred."""
RELAXING_PART = 0.5
"""Part of the time of `exact` that its first relaxation may take."""


def place(
    problem: PlacementProblem,
    algorithm: str,
    time_limit_s: float | None = None,
    wall_more_s: float = WALL_MORE_S,
) -> PlacementPlan:
    """Return a checked plan. `time_limit_s` is the CPU time of `auto` and `exact`; None for their defaults.

    They end `wall_more_s` later at the latest, in wall time: a benchmark that shares the CPU gives more.

    Raises UsageError for an unknown algorithm, InvalidPlan if the check refuses the plan.
    """
    if algorithm not in ALGORITHMS:
        raise UsageError(f"unknown algorithm {algorithm!r}", hint=f"known: {', '.join(ALGORITHMS)}")
    began_s = time.monotonic()
    paths = paths_of(problem)
    assignment, bound_s = _placed(paths, algorithm, _limit_s(problem, algorithm, time_limit_s), wall_more_s)
    plan = plan_of(assignment, algorithm, bound_s, time.monotonic() - began_s)
    if wrong := placement_violations(plan, problem):
        raise InvalidPlan(f"the plan failed its check: {wrong[0]}", hint="report this with the problem file")
    return plan


def _limit_s(problem: PlacementProblem, algorithm: str, asked_s: float | None) -> float:
    if asked_s is not None:
        return asked_s
    more = max(0, len(problem.flows) - 100) / LARGE_FLOWS_PER_S
    return TIME_LIMITS_S.get(algorithm, 0.0) + (more if algorithm == "auto" else 0.0)


def _placed(paths: Paths, algorithm: str, time_limit_s: float, wall_more_s: float) -> tuple[Assignment, float | None]:
    """Return the assignment of an algorithm, and the bound that it proves, if any."""
    if not paths.problem.flows:
        return Assignment(paths), 0.0
    if algorithm == "auto":
        found = best_placement(paths, time_limit_s, wall_more_s)
        return found.assignment, found.bound_s
    by_gain = preferences_of(paths, "gain")
    if algorithm in ("f-fct", "f-cost", "exact"):
        preferences = preferences_of(paths, "gain per cost") if algorithm == "f-cost" else by_gain
        assignment = flow_greedy(preferences)
        upgrade(by_gain, assignment)
        if algorithm != "exact":
            return assignment, None
        deadline = deadline_in(time_limit_s, wall_more_s)
        relaxation = relax(paths, deadline.part(RELAXING_PART))
        found = polish(by_gain, assignment, relaxation, deadline, 0.0)
        return found.assignment, found.bound_s
    grow = {"1p": one_proxy, "2p": two_proxies, "2p-rb": two_proxies_with_rollback}[algorithm]
    return grow(ProxySets(by_gain)), None
