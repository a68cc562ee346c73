"""Reasons name the limit of a flow, and why it does not take a faster path."""

from __future__ import annotations

import pytest

from tests.placement.problems import one_region
from tradewind.placement.explain import FlowReason, reasons_of
from tradewind.placement.place import place
from tradewind.render.placement import PlacementReport


def reasons(budget_cents: float, capacity_mbps: float, max_instances: int) -> dict[str, FlowReason]:
    """Return the reasons of two flows over one region, of which the larger one gains more."""
    flows = {"small": {"size_bytes": 1e9, "mbps": 500}, "large": {"size_bytes": 2e9, "mbps": 500}}
    region = {"setup_cents": 50, "egress_cents_per_gb": 10, "max_instances": max_instances}
    made = one_region(flows, budget_cents, capacity_mbps=capacity_mbps, **region)
    return {reason.id: reason for reason in reasons_of(place(made, "exact"), made)}


def test_a_flow_on_its_fastest_path_has_no_obstacle() -> None:
    found = reasons(200, 1000, 1)
    assert [(reason.obstacle, reason.more_cents) for reason in found.values()] == [(None, 0.0)] * 2
    assert found["small"].limit == "the last mile"


def test_the_budget_is_an_obstacle_and_the_missing_cost_is_known() -> None:
    small = reasons(75, 1000, 1)["small"]
    assert small.obstacle == "budget" and small.more_cents == pytest.approx(10)
    assert small.limit == "the distance to the destination" and small.fastest_path == ("r",)
    other = reasons(75, 500, 2)["small"]
    assert other.obstacle == "budget" and other.more_cents == pytest.approx(60)


def test_full_proxies_are_an_obstacle() -> None:
    found = reasons(500, 500, 1)
    assert found["large"].obstacle is None and found["small"].obstacle == "room"


def test_the_report_names_the_flows_that_one_dollar_more_changes() -> None:
    flows = {"small": {"size_bytes": 1e9, "mbps": 500}, "large": {"size_bytes": 2e9, "mbps": 500}}
    region = {"capacity_mbps": 1000, "setup_cents": 50, "egress_cents_per_gb": 10, "max_instances": 1}
    made, richer = one_region(flows, 75, **region), one_region(flows, 175, **region)
    plan = place(made, "exact")
    report = PlacementReport(plan, reasons_of(plan, made), place(richer, "exact"))
    lines = list(report.lines())
    assert any("r would take 16.0 s, for $0.10 more, but only $0.05 of the budget is left" in line for line in lines)
    assert lines[-2].startswith("one dollar more saves") and lines[-1].startswith("  small  16.0 s instead of ")
    explained = report.document()["explain"]
    assert [flow["id"] for flow in explained["next_dollar_flows"]] == ["small"]
    assert explained["flows"][0]["obstacle"] == "budget"


def test_a_dollar_that_buys_nothing_is_said_so() -> None:
    flows = {"only": {"size_bytes": 1e9, "mbps": 500}}
    made = one_region(flows, 100, capacity_mbps=1000, setup_cents=0, egress_cents_per_gb=0, max_instances=1)
    plan = place(made, "exact")
    assert list(PlacementReport(plan, reasons_of(plan, made), plan).lines())[-1] == "one dollar more saves nothing"


def test_a_gap_of_zero_is_called_optimal() -> None:
    flows = {"only": {"size_bytes": 1e9, "mbps": 500}}
    made = one_region(flows, 100, capacity_mbps=1000, setup_cents=0, egress_cents_per_gb=0, max_instances=1)
    assert "proven    optimal" in list(PlacementReport(place(made, "exact")).lines())
