"""`auto` against the paper's algorithms, which it must never be worse than, and sets of proxies compared together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.placement.problems import problem
from tests.placement.test_extended_model import extended
from tradewind.model.records import replace
from tradewind.placement.check import placement_violations
from tradewind.placement.flow_greedy import flow_greedy, preferences_of
from tradewind.placement.many_sets import SetSearch
from tradewind.placement.paths import paths_of
from tradewind.placement.place import place
from tradewind.placement.problem import PlacementProblem
from tradewind.placement.proxy_greedy import Counts, ProxySets

PAPER = ("f-fct", "f-cost", "1p", "2p", "2p-rb")


def problems() -> Iterator[PlacementProblem]:
    """Yield small and middle problems, some with all options or without a binding budget."""
    for seed in range(24):
        yield problem(seed, flows=2 + seed % 9, regions=1 + seed % 6)
    for seed in range(6):
        yield extended(seed, flows=7, regions=4, slow_start=seed % 2 == 1)
    for seed in range(4):
        yield replace(problem(seed, flows=12, regions=6), budget_cents=1e6 if seed % 2 else 150.0)


PROBLEMS = list(problems())


@pytest.mark.parametrize("made", PROBLEMS)
def test_auto_is_never_worse_than_the_algorithms_of_the_paper_without_any_time(made: PlacementProblem) -> None:
    plan = place(made, "auto", time_limit_s=0.0)
    assert placement_violations(plan, made) == []
    for algorithm in PAPER:
        assert plan.total_fct_s <= place(made, algorithm).total_fct_s * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_auto_is_never_worse_on_larger_problems(seed: int) -> None:
    made = problem(seed, flows=40, regions=12)
    plan = place(made, "auto")
    assert all(plan.total_fct_s <= place(made, algorithm).total_fct_s * (1 + 1e-9) for algorithm in PAPER)


@pytest.mark.parametrize("made", PROBLEMS)
def test_sets_compared_together_score_as_one_by_one(made: PlacementProblem) -> None:
    preferences = preferences_of(paths_of(made), "gain")
    sets = ProxySets(preferences)
    one = list(sets.with_one_more(sets.empty))
    candidates = list(dict.fromkeys(more for fewer in one for more in sets.with_rollback(fewer)))
    totals_s = [flow_greedy(preferences, counts).total_fct_s for counts in candidates]
    direct_s = flow_greedy(preferences, sets.empty).total_fct_s
    number, best_s = SetSearch(preferences).best(candidates, direct_s)
    if min(totals_s, default=direct_s) >= direct_s:
        assert number == -1
    else:
        assert number == totals_s.index(min(totals_s)) and best_s == totals_s[number]


def test_the_first_of_equal_sets_is_taken() -> None:
    preferences = preferences_of(paths_of(problem(2, flows=5, regions=3)), "gain")
    same: list[Counts] = [(0, 0, 0), (1, 1, 1), (1, 1, 1)]
    assert SetSearch(preferences).best(same, 1e9)[0] == 1
