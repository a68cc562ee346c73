"""Problems on the packaged catalog that used to take minutes are answered within their work limit, or state a gap."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

from tradewind.catalog.load import load_catalog
from tradewind.cli.main import main
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput
from tradewind.model.overlay import plan_document
from tradewind.model.region import parse_region
from tradewind.planner.linear import WORK_MAX, SolverSettings, WorkBudget
from tradewind.planner.plan import Transfer, prepare, solve_overlay
from tradewind.render.words import plan_lines

SPENT = 1.2
"""Permitted work as a multiple of the limit: first answers and clean-up also come after the limit."""
PROVEN = 1e-6


@cache
def transfer_of(volume_gb: float) -> Transfer:
    source, sink = parse_region("azure:canadacentral"), parse_region("gcp:asia-northeast1")
    return prepare(load_catalog(), source, sink, volume_gb)


def meters(monkeypatch: pytest.MonkeyPatch) -> list[WorkBudget]:
    """The meters of all problems from now on."""
    seen: list[WorkBudget] = []
    with_new_budget = SolverSettings.with_new_budget

    def noted(settings: SolverSettings, part: float = 1.0) -> SolverSettings:
        fresh = with_new_budget(settings, part)
        seen.append(fresh.budget)
        return fresh

    monkeypatch.setattr(SolverSettings, "with_new_budget", noted)
    return seen


@pytest.mark.parametrize(
    ("volume_gb", "goal"),
    [
        (0.003, Cheapest()),
        *(
            pytest.param(*problem, marks=pytest.mark.slow)
            for problem in (
                (50.0, MaxCost(4.421)),
                (50.0, MaxCost(5.46)),
                (50.0, MinThroughput(16.0)),
                (50.0, Deadline(90.0)),
                (0.003, MaxCost(0.012)),
                (0.003, MaxCost(0.05)),
                (0.003, MinThroughput(60.0)),
            )
        ),
    ],
)
def test_a_problem_is_answered_within_its_work_limit(
    monkeypatch: pytest.MonkeyPatch, volume_gb: float, goal: Goal
) -> None:
    asked = meters(monkeypatch)
    plan = solve_overlay(transfer_of(volume_gb), goal)
    assert asked
    assert all(budget.done <= WORK_MAX * SPENT for budget in asked)
    assert plan.optimal == (plan.gap <= PROVEN), "a proven plan has no gap"


def test_an_unproven_plan_states_its_gap() -> None:
    """3 MB as fast as possible is the hardest problem: nearly all of the cost is whole machines while they boot."""
    limited = replace(transfer_of(0.003), settings=SolverSettings(work_max=WORK_MAX / 10))
    plan = solve_overlay(limited, Fastest())
    assert plan.gap > PROVEN
    document = plan_document(plan)
    assert (document["status"], document["gap"]) == ("feasible", plan.gap)
    assert any(f"within {plan.gap:.2%} of the best" in line for line in plan_lines(plan))
    longer = solve_overlay(transfer_of(0.003), Fastest())
    assert longer.cost.total_usd >= plan.cost.total_usd * (1 - plan.gap)
    assert longer.gap <= plan.gap


@pytest.mark.slow
def test_more_effort_closes_gaps(capsys: pytest.CaptureFixture[str]) -> None:
    gaps = []
    for effort in ("0.1", "2"):
        words = [
            "azure:canadacentral",
            "gcp:asia-northeast1",
            "--volume",
            "50GB",
            "--max-vms",
            "2",
            "--max-cost",
            "4.60USD",
        ]
        assert main(["plan", *words, "--effort", effort, "--json"]) == 0
        gaps.append(json.loads(capsys.readouterr().out)["gap"])
    assert gaps[1] < gaps[0]
    for effort in ("0", "1000", "nan", "much"):
        assert main(["plan", "aws:us-east-1", "gcp:us-east1", "--effort", effort]) == 2
        assert "hint: " in capsys.readouterr().err


@pytest.mark.slow
def test_a_ceiling_just_above_the_cheapest_gives_the_cheapest_or_faster() -> None:
    transfer = transfer_of(50.0)
    cheapest = solve_overlay(transfer, Cheapest())
    plan = solve_overlay(transfer, MaxCost(cheapest.cost.total_usd * 1.0005))
    assert plan.throughput_gbps >= cheapest.throughput_gbps * (1 - 1e-9)
    assert plan.gap <= PROVEN
