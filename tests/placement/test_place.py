"""All algorithms against the independent check and, on small problems, against every possible placement."""

from __future__ import annotations

import itertools

import pytest

from tests.placement.every_placement import least_total_s
from tests.placement.problems import one_region, problem
from tests.placement.test_extended_model import extended
from tradewind.errors import UsageError
from tradewind.model.records import replace
from tradewind.placement.assignment import Assignment
from tradewind.placement.check import placement_violations
from tradewind.placement.deadline import deadline_in
from tradewind.placement.exact import bound_by_counts
from tradewind.placement.flow_greedy import flow_greedy, preferences_of
from tradewind.placement.paths import paths_of
from tradewind.placement.place import ALGORITHMS, place
from tradewind.placement.relaxation import relax

SMALL = [problem(seed, flows=4, regions=3) for seed in range(25)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("number", range(len(SMALL)))
def test_every_plan_is_valid_and_never_slower_than_direct(algorithm: str, number: int) -> None:
    plan = place(SMALL[number], algorithm)
    assert placement_violations(plan, SMALL[number]) == []
    assert plan.acceleration >= 1 - 1e-9


@pytest.mark.parametrize("algorithm", ["exact", "auto"])
@pytest.mark.parametrize("number", range(len(SMALL)))
def test_small_problems_are_solved_to_the_proven_optimum(algorithm: str, number: int) -> None:
    plan, least_s = place(SMALL[number], algorithm), least_total_s(SMALL[number])
    assert plan.total_fct_s >= least_s * (1 - 1e-6)
    assert plan.gap is not None and plan.total_fct_s * (1 - plan.gap) <= least_s * (1 + 1e-6)
    allowed = 1e-6 if algorithm == "exact" else 2e-3
    assert plan.gap <= allowed and plan.total_fct_s <= least_s * (1 + allowed)


@pytest.mark.parametrize("seed", range(6))
def test_no_placement_beats_the_bound(seed: int) -> None:
    larger = problem(seed, flows=12, regions=6)
    paths = paths_of(larger)
    bound_s = relax(paths, deadline_in(10.0)).bound_s
    for algorithm in ("f-fct", "f-cost", "1p", "2p", "2p-rb"):
        assert place(larger, algorithm).total_fct_s >= bound_s * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_no_bound_exceeds_the_optimum(seed: int) -> None:
    """Neither the relaxation, nor branch and bound over the instances, from a good or a bad placement."""
    made = extended(seed, flows=5, regions=3) if seed % 4 == 3 else problem(seed, flows=6, regions=3)
    exact = place(made, "exact")
    assert exact.gap is not None and exact.gap <= 1e-6
    paths = paths_of(made)
    known = flow_greedy(preferences_of(paths, "gain per cost" if seed % 2 else "gain"))
    relaxation = relax(paths, deadline_in(10.0))
    by_counts_s = bound_by_counts(known, relaxation, deadline_in(10.0))
    assert relaxation.bound_s <= by_counts_s <= exact.total_fct_s * (1 + 1e-6)
    auto = place(made, "auto", time_limit_s=0.1)
    assert auto.gap is not None and auto.total_fct_s * (1 - auto.gap) <= exact.total_fct_s * (1 + 1e-6)


def test_more_money_never_makes_an_exact_plan_slower() -> None:
    base = problem(3, flows=5, regions=4, budget_cents=0)
    totals = [place(replace(base, budget_cents=cents), "exact").total_fct_s for cents in (0, 40, 80, 160, 320, 640)]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in itertools.pairwise(totals))
    assert totals[-1] < totals[0]


def test_flows_that_fit_together_only_by_their_sum_are_not_placed_together() -> None:
    """Three flows of 0.6 of an instance need three instances, though two would carry their sum."""
    flows = {name: {"size_bytes": 1e9, "mbps": 600} for name in ("a", "b", "c")}
    made = one_region(flows, 100, capacity_mbps=1000, setup_cents=0, egress_cents_per_gb=0, max_instances=2)
    for algorithm in ALGORITHMS:
        plan = place(made, algorithm)
        assert sorted(len(flow.path) for flow in plan.flows) == [0, 1, 1]


def test_a_setup_that_another_flow_has_paid_for_is_used() -> None:
    flows = {"small": {"size_bytes": 1e8, "mbps": 500}, "large": {"size_bytes": 2e9, "mbps": 500}}
    made = one_region(flows, 72, capacity_mbps=2000, setup_cents=50, egress_cents_per_gb=10, max_instances=1)
    for algorithm in ALGORITHMS:
        plan = place(made, algorithm)
        assert plan.cost_cents == pytest.approx(71) and len(plan.instances) == 1
        assert all(flow.path for flow in plan.flows)


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown algorithm 'best'"):
        place(SMALL[0], "best")


def test_an_assignment_forgets_what_it_released() -> None:
    paths = paths_of(problem(1, flows=6, regions=4, budget_cents=10_000))
    assignment = Assignment(paths)
    path = int(paths.gain_s[0].argmax())
    fit = assignment.fit(0, path)
    assert fit is not None
    assignment.place(0, path, fit)
    copy = assignment.copy()
    assert assignment.release(0) == (path, fit)
    assert assignment.spent_cents == pytest.approx(0.0, abs=1e-9) and not assignment.loads_mbps
    assert assignment.total_fct_s == pytest.approx(float(paths.fct_s[:, 0].sum()))
    assert copy.path_of[0] == path and copy.loads_mbps
