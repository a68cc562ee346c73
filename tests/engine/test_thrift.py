"""The plan of a transfer through rented machines does not spend what gains nothing."""

from __future__ import annotations

import pytest

from tradewind.catalog.load import load_catalog
from tradewind.engine.provisioning import BOOT_PART, RETRY_RESERVE, plan_gateways, usual_goal
from tradewind.engine.replan import PlanRequest, TransferState, revise_plan
from tradewind.model.goal import Fastest, MaxCost
from tradewind.model.region import Region
from tradewind.planner.check import violations
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import prepare, solve_overlay

ENDS = Region.parse("gcp:us-central1"), Region.parse("gcp:europe-west4")


@pytest.mark.slow
def test_a_small_transfer_does_not_rent_many_machines_for_the_last_second() -> None:
    catalog, limits = load_catalog(None), PlanningLimits()
    plan = plan_gateways(catalog, *ENDS, 0.04, MaxCost(5.0), limits)
    fastest = solve_overlay(prepare(catalog, *ENDS, 0.04, limits), MaxCost(5.0 * (1 - RETRY_RESERVE)))
    assert plan.overlay is not None
    assert sum(fastest.machine_counts.values()) > 4
    assert sum(plan.overlay.machine_counts.values()) == 2
    assert plan.overlay.time_s <= fastest.time_s + BOOT_PART * fastest.boot_s * (1 + 1e-6)
    assert plan.overlay.cost.total_usd < fastest.cost.total_usd / 2


@pytest.mark.slow
def test_without_a_goal_many_small_objects_are_planned_for_what_their_requests_cost() -> None:
    catalog, limits, objects = load_catalog(None), PlanningLimits(), 1_000_000
    goal = usual_goal(catalog, *ENDS, 1.0, limits, objects=objects)
    plan = plan_gateways(catalog, *ENDS, 1.0, goal, limits, objects=objects)
    assert plan.overlay is not None and plan.overlay.cost.requests_usd > 1.0
    assert isinstance(goal, MaxCost) and plan.overlay.cost.total_usd <= goal.usd


def test_without_a_goal_a_transfer_whose_machines_were_refused_is_planned_with_fewer() -> None:
    """Those that did come cost their minimum, and the rest of the transfer must not be held to what that leaves."""
    catalog, limits = load_catalog(None), PlanningLimits()
    asked = PlanRequest(catalog, *ENDS, None, limits, 1 << 24, None, None)
    nothing_moved = TransferState(
        left_bytes=100_000_000_000,
        total_bytes=100_000_000_000,
        elapsed_s=0.0,
        carried_gbps=0.0,
        egress_usd=0.0,
        machines_usd=0.5,
        links={},
        dead={},
        available={ENDS[0]: 1, ENDS[1]: 1},
    )
    found = revise_plan(asked, nothing_moved)
    assert found is not None and found.ceiling_usd_per_gb is None
    assert [gateway.region for gateway in found.plan.machines].count(str(ENDS[0])) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("limit_gbps", "has_goal"), [(2.0, True), (0.01, False)])
def test_a_plan_that_the_user_limits_is_no_faster_and_has_a_ceiling_that_it_can_meet(
    limit_gbps: float, has_goal: bool
) -> None:
    catalog, limits = load_catalog(None), PlanningLimits(machines_per_region=2, rate_max_gbps=limit_gbps)
    goal = Fastest() if has_goal else usual_goal(catalog, *ENDS, 1.0, limits)
    plan = plan_gateways(catalog, *ENDS, 1.0, goal, limits)
    assert plan.overlay is not None and violations(plan.overlay, catalog, limits) == []
    assert plan.overlay.throughput_gbps == pytest.approx(limit_gbps)
