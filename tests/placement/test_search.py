"""Rounding of the relaxation by dives, and moves of flows: both give placements that can be carried out."""

from __future__ import annotations

import pytest

from tests.placement.problems import problem
from tradewind.placement.assignment import Assignment
from tradewind.placement.check import placement_violations
from tradewind.placement.deadline import deadline_in
from tradewind.placement.diving import DIVES, Dive, dive
from tradewind.placement.flow_greedy import Preferences, flow_greedy, preferences_of
from tradewind.placement.local_search import PATHS_MAX, SHORTER_S, improve
from tradewind.placement.paths import DIRECT, paths_of
from tradewind.placement.plan import plan_of
from tradewind.placement.problem import PlacementProblem
from tradewind.placement.relaxation import relax

SIZES = [(seed, 3 + seed % 12, 2 + seed % 6) for seed in range(12)]
"""Seed, flows and regions."""


def violations(assignment: Assignment, made: PlacementProblem) -> list[str]:
    """Return what the independent check says about an assignment."""
    return placement_violations(plan_of(assignment, "auto", None, 0.0), made)


@pytest.mark.parametrize("how", DIVES)
def test_a_dive_gives_a_valid_placement_that_does_not_beat_the_bound(how: Dive) -> None:
    for seed, flows, regions in SIZES:
        made = problem(seed, flows=flows, regions=regions)
        paths = paths_of(made)
        relaxation = relax(paths, deadline_in(10.0))
        placed = dive(preferences_of(paths, "gain"), relaxation, how, deadline_in(10.0))
        assert placed is not None
        assert violations(placed, made) == []
        assert placed.total_fct_s >= relaxation.bound_s * (1 - 1e-9)


def test_dives_find_placements_that_are_better_than_greedy_ones() -> None:
    better = 0
    for seed in range(6):
        paths = paths_of(problem(seed, flows=30, regions=10))
        by_gain = preferences_of(paths, "gain")
        relaxation = relax(paths, deadline_in(10.0))
        found = [dive(by_gain, relaxation, how, deadline_in(10.0)) for how in DIVES[:4]]
        best_s = min(placed.total_fct_s for placed in found if placed is not None)
        better += best_s < flow_greedy(by_gain).total_fct_s
    assert better >= 4


def test_a_dive_without_time_gives_no_placement() -> None:
    paths = paths_of(problem(1, flows=8, regions=4))
    relaxation = relax(paths, deadline_in(10.0))
    assert dive(preferences_of(paths, "gain"), relaxation, DIVES[0], deadline_in(0.0)) is None


@pytest.mark.parametrize(("seed", "flows", "regions"), SIZES)
def test_moves_end_where_no_exchange_of_two_flows_helps(seed: int, flows: int, regions: int) -> None:
    made = problem(seed, flows=flows, regions=regions)
    by_gain = preferences_of(paths_of(made), "gain")
    assignment = flow_greedy(by_gain)
    before_s = assignment.total_fct_s
    improve(by_gain, assignment, 1_000_000)
    assert violations(assignment, made) == []
    assert assignment.total_fct_s <= before_s
    assert best_exchange_s(by_gain, assignment) <= SHORTER_S * 2


def best_exchange_s(by_gain: Preferences, assignment: Assignment) -> float:
    """Return the most that is gained if a flow takes any path, and another one, made direct, its best one after it."""
    best_s = 0.0
    flows = range(len(assignment.path_of))
    for flow in flows:
        for other in flows:
            if other == flow or assignment.path_of[other] == DIRECT:
                continue
            for path in by_gain.best(flow, PATHS_MAX):
                tried = assignment.copy()
                tried.release(flow)
                tried.release(other)
                if not _placed(tried, flow, path):
                    continue
                for next_path in by_gain.best(other, PATHS_MAX):
                    if _placed(tried, other, next_path):
                        break
                best_s = max(best_s, assignment.total_fct_s - tried.total_fct_s)
    return best_s


def _placed(assignment: Assignment, flow: int, path: int) -> bool:
    fit = assignment.fit(flow, path)
    if fit is None or not assignment.affords(fit.cents):
        return False
    assignment.place(flow, path, fit)
    return True
