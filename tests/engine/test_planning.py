"""`tradewind.plan` and `tradewind.frontier`, as used by programs and notebooks."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import tradewind
from tests.render.small_world import TOKYO, TORONTO, small_world
from tradewind.catalog.user_files import import_table
from tradewind.cli.main import main
from tradewind.errors import InfeasibleGoal, UsageError
from tradewind.planner.baseline import direct, ron
from tradewind.planner.goals import SOONEST_TIE, SOONEST_TIE_S
from tradewind.render import plans
from tradewind.render.plans import trace
from tradewind.render.words import compare_lines

ENDS = (str(TORONTO), str(TOKYO))


def planned(**goal: Any) -> tradewind.TransferPlan:
    return tradewind.plan(*ENDS, volume_gb=50, max_vms=2, catalog=small_world(), **goal)


def test_a_plan_has_its_figures_with_units() -> None:
    plan = planned(min_throughput_gbps=10)
    assert plan.throughput_gbps >= 10
    assert plan.time_s == pytest.approx(8 * 50 / plan.throughput_gbps)
    assert plan.cost.total_usd == pytest.approx(plan.cost.egress_usd + plan.cost.machines_usd)
    assert sum(route.share for route in plan.routes) == pytest.approx(1.0)
    assert {m.region for m in plan.machines} >= {TORONTO, TOKYO}
    assert plan.edges
    assert plan.binding
    assert plan.to_document()["throughput_gbps"] == plan.throughput_gbps


def test_plans_are_immutable() -> None:
    plan = planned()
    picture = plan.plot()
    for thing in (plan, plan.frontier(), picture):
        for name in ("overlay", "cost", "svg", "no_such_figure"):
            with pytest.raises(FrozenInstanceError):
                setattr(thing, name, 1.0)
    assert len(repr(picture)) < 80


def test_goals_are_those_of_the_command_line() -> None:
    cheapest, fastest = planned(goal="cheapest"), planned(goal="fastest")
    assert cheapest.cost.total_usd < fastest.cost.total_usd
    assert cheapest.throughput_gbps < fastest.throughput_gbps
    soonest = planned()
    assert soonest.time_s <= fastest.time_s + max(SOONEST_TIE_S, SOONEST_TIE * fastest.time_s)
    assert soonest.cost.total_usd <= fastest.cost.total_usd
    ceiling_usd = (cheapest.cost.total_usd + fastest.cost.total_usd) / 2
    assert planned(max_cost_usd=ceiling_usd).cost.total_usd <= ceiling_usd * (1 + 1e-9)
    assert planned(deadline_s=60).time_s <= 60 * (1 + 1e-9)
    assert planned(min_throughput_gbps=9, exactly=True).throughput_gbps == pytest.approx(9)


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        ({"max_cost_usd": 5, "deadline_s": 60}, "one goal at a time, not max_cost_usd and deadline_s"),
        ({"goal": "cheapest", "deadline_s": 60}, "one goal at a time, not cheapest and deadline_s"),
        ({"goal": "best"}, "goal is one of soonest, cheapest, fastest, not 'best'"),
        ({"min_throughput_gbps": -1}, "min_throughput_gbps must be more than zero, and finite, not -1"),
        ({"max_cost_usd": -1}, "max_cost_usd must be more than zero, and finite, not -1"),
        ({"deadline_s": 0}, "deadline_s must be more than zero, and finite, not 0"),
        ({"exactly": True}, "exactly needs min_throughput_gbps"),
        ({"vm_types": ["m5.huge"]}, "unknown machine type m5.huge"),
    ],
)
def test_invalid_goals_are_refused(goal: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        planned(**goal)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"volume_gb": "5GB"}, "volume_gb is a number, not '5GB'"),
        ({"volume_gb": float("inf")}, "volume_gb must be more than zero, and finite, not inf"),
        ({"volume_gb": float("nan")}, "volume_gb must be more than zero, and finite, not nan"),
        ({"max_cost_usd": "5"}, "max_cost_usd is a number, not '5'"),
        ({"min_throughput_gbps": True}, "min_throughput_gbps is a number, not True"),
        ({"max_vms": 1.5}, "at least one machine per region is needed, in whole numbers, not 1.5"),
        ({"max_vms": 0}, "in whole numbers, not 0"),
        ({"max_vms": "2"}, "in whole numbers, not '2'"),
        ({"vm_types": "m5.xlarge"}, "vm_types is a list of machine types, not 'm5.xlarge'"),
        ({"vm_types": []}, r"vm_types is a list of machine types, not \[\]"),
        ({"source": 5}, "a region is a string like aws:us-east-1, not 5"),
        ({"destination": None}, "a region is a string like aws:us-east-1, not None"),
        ({"destination": "tokyo"}, "'tokyo' is not a region"),
        ({"destination": [str(TOKYO), None]}, "a region is a string like aws:us-east-1, not None"),
        ({"destination": [str(TOKYO), "azure:nowhere"]}, "unknown region azure:nowhere"),
        ({"destination": [str(TOKYO), str(TORONTO)]}, "source and destination are both"),
    ],
)
def test_arguments_of_a_wrong_type_are_refused_with_a_message(asked: dict[str, Any], words: str) -> None:
    usual = {"source": str(TORONTO), "destination": str(TOKYO), "volume_gb": 50, "max_vms": 2, "catalog": small_world()}
    with pytest.raises(UsageError, match=words) as refused:
        tradewind.plan(**{**usual, **asked})
    assert refused.value.hint


@pytest.mark.parametrize(
    "asked", [{"max_vms": 0}, {"volume_gb": -1}, {"vm_types": []}, {"destination": "tokyo"}, {"destination": TOKYO}]
)
def test_a_frontier_refuses_the_same_arguments_as_a_plan(asked: dict[str, Any]) -> None:
    usual = {"source": str(TORONTO), "destination": str(TOKYO), "volume_gb": 50, "catalog": small_world()}
    with pytest.raises(UsageError) as refused:
        tradewind.frontier(**{**usual, **asked})
    assert refused.value.hint


def test_python_errors_match_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InfeasibleGoal) as refused:
        tradewind.plan("aws:us-east-1", "aws:us-east-2", volume_gb=1, max_cost_usd=0.001, vm_types=["m5.xlarge"])
    assert refused.value.nearest is not None
    command = "plan aws:us-east-1 aws:us-east-2 --volume 1GB --max-cost 0.001USD --vm-type m5.xlarge"
    assert main(command.split()) == refused.value.exit_code == 1
    assert capsys.readouterr().err == f"error: {refused.value}\nhint: {refused.value.hint}\n"


@pytest.mark.parametrize("name", ["nowhere/plan.svg", "plan.pdf"])
def test_an_unwritable_picture_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=name):
        planned().plot(tmp_path / name)


def test_an_infeasible_goal_names_the_nearest_feasible_one() -> None:
    with pytest.raises(InfeasibleGoal, match="the cheapest plan costs") as dear:
        planned(max_cost_usd=0.5)
    assert dear.value.hint is not None
    nearest_usd = float(dear.value.hint.split()[-1].removesuffix("USD"))
    assert planned(max_cost_usd=nearest_usd).cost.total_usd <= nearest_usd
    with pytest.raises(InfeasibleGoal, match="the fastest plan moves") as fast:
        planned(min_throughput_gbps=500)
    assert fast.value.hint is not None
    nearest_gbps = float(fast.value.hint.split("at most ")[1].split("Gbit/s")[0])
    assert planned(min_throughput_gbps=nearest_gbps).throughput_gbps >= nearest_gbps * (1 - 1e-9)


def test_a_comparison_has_the_papers_rows() -> None:
    plan = planned(max_cost_usd=5.0)
    ways = {way.name: way for way in plan.compare()}
    straight = ways["direct"].plan
    assert list(ways) == [
        "gridftp (direct, 1 machine)",
        "direct",
        "ron",
        "this plan",
        "cost optimised",
        "throughput optimised",
        "cheapest at any rate",
        "fastest at any cost",
    ]
    assert ways["this plan"].plan == plan.overlay
    assert ways["this plan"].remark == "fastest for at most $5.00"
    assert ways["cost optimised"].plan.throughput_gbps >= straight.throughput_gbps * (1 - 1e-9)
    assert ways["cost optimised"].plan.cost.total_usd <= straight.cost.total_usd * (1 + 1e-9)
    assert ways["cost optimised"].remark == "cheapest at direct's rate, 8 Gbit/s or more"
    assert ways["throughput optimised"].plan.cost.total_usd <= straight.cost.total_usd * (1 + 1e-9)
    assert ways["throughput optimised"].plan.throughput_gbps >= straight.throughput_gbps * (1 - 1e-9)
    assert ways["throughput optimised"].remark == f"fastest for direct's cost, ${straight.cost.total_usd:.2f} or less"


def test_a_comparison_lists_the_requested_plan_below_its_line() -> None:
    lines = compare_lines(planned(goal="cheapest").compare(), 80)
    names = [line.split("  ")[1] for line in lines if line.startswith("  ") and line[2] != " "]
    assert names[4:] == ["this plan", "cost optimised", "throughput optimised", "fastest at any cost"]
    at = next(n for n, line in enumerate(lines) if "cost optimised" in line)
    assert lines[at + 1] == "      cheapest at direct's rate, 8 Gbit/s or more"
    assert all(len(line) <= 80 for line in lines)


def test_a_plan_reads_as_text_and_as_html() -> None:
    plan = planned(goal="fastest")
    text = repr(plan)
    assert text.startswith("azure:canadacentral → gcp:asia-northeast1, 50.0 GB: fastest at any cost")
    assert "azure:westus2" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    html = plan._repr_html_()
    assert "<svg" in html
    assert "<table>" in html
    ElementTree.fromstring(html)


def test_a_frontier_is_a_function_both_ways() -> None:
    frontier = tradewind.frontier(*ENDS, volume_gb=50, max_vms=2, catalog=small_world())
    assert frontier.proven
    costs, rates = zip(*frontier.points, strict=True)
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(costs))
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(rates))
    middle_usd = (costs[0] + costs[-1]) / 2
    rate_gbps = frontier.throughput_gbps(middle_usd)
    assert frontier.cost_usd(rate_gbps) == pytest.approx(middle_usd, rel=1e-6)
    assert planned(max_cost_usd=middle_usd).throughput_gbps == pytest.approx(rate_gbps, rel=1e-5)
    assert frontier.cost_usd(rates[-1] * 2) == float("inf")
    assert "frontier" in repr(frontier)
    ElementTree.fromstring(frontier._repr_html_())


def test_no_plan_beats_its_own_frontier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds even if the frontier is stopped early."""
    monkeypatch.setattr(plans, "FRONTIER_SOLVES_MAX", 0)
    ends, middle = planned(goal="cheapest"), planned(min_throughput_gbps=10)
    assert trace(middle.transfer).cost_usd(middle.throughput_gbps) > middle.cost.total_usd * (1 + 1e-9), (
        "the ends of the frontier alone do not contain this plan"
    )
    assert middle.frontier().cost_usd(middle.throughput_gbps) <= middle.cost.total_usd * (1 + 1e-6)
    assert ends.frontier().points[0][0] == pytest.approx(ends.cost.total_usd)


def test_neither_direct_nor_ron_beats_the_frontier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "FRONTIER_SOLVES_MAX", 0)
    cheapest = planned(goal="cheapest")
    for rival in (direct(cheapest.transfer), ron(cheapest.transfer)):
        assert rival is not None
        assert cheapest.frontier().cost_usd(rival.throughput_gbps) <= rival.cost.total_usd * (1 + 1e-6)


def test_the_users_catalog_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("src,dst,gbps\naws:us-east-1,aws:us-east-2,0.25\n")
    import_table(table, tmp_path / "state" / "tradewind" / "catalog", date="2999-01-01")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tiny: dict[str, Any] = {"volume_gb": 1.0, "max_vms": 1, "vm_types": ["m5.xlarge"], "goal": "cheapest"}
    seen = tradewind.plan("aws:us-east-1", "aws:us-east-2", **tiny)
    link = seen.transfer.catalog.grid.link(seen.overlay.source, seen.overlay.destination)
    assert link is not None
    assert link.gbps == 0.25
    other = tradewind.plan("aws:us-east-1", "aws:us-east-2", catalog=tmp_path, **tiny)
    other_link = other.transfer.catalog.grid.link(other.overlay.source, other.overlay.destination)
    assert other_link is not None
    assert other_link.origin.kind == "modelled"


def test_only_planning_loads_the_solver() -> None:
    code = (
        "import sys, tradewind; tradewind.Options; tradewind.copy; tradewind.plan\n"
        "assert 'numpy' not in sys.modules and 'highspy' not in sys.modules\n"
        "tradewind.plan('aws:us-east-1', 'gcp:us-east1', volume_gb=1, goal='cheapest'); assert 'numpy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
