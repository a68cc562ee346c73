"""Machines and links that cost nothing, such as a user's own hosts: each goal has a plan."""

from __future__ import annotations

import pytest

from tradewind.catalog.load import load_catalog
from tradewind.errors import InfeasibleGoal
from tradewind.fleet.provider import Offer
from tradewind.fleet.site_catalog import Supply, site_catalog
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.records import replace
from tradewind.model.region import Region
from tradewind.planner.baseline import compare
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import Transfer, prepare, solve_overlay, trace_transfer
from tradewind.render.plans import TransferPlan

A, B, RELAY = (Region("site", name) for name in ("a", "b", "relay"))
GOALS: list[Goal] = [Cheapest(), Fastest(), Soonest(), MaxCost(1.0), MinThroughput(0.5), Deadline(600.0)]


def free_transfer(*boots_s: float) -> Transfer:
    offers = [Offer("", f"type-{boot_s:g}", boot_s=boot_s) for boot_s in boots_s]
    supplies = {
        region: Supply(tuple(replace(offer, region=str(region)) for offer in offers), 1) for region in (A, B, RELAY)
    }
    return prepare(site_catalog(supplies, load_catalog()), A, B, 0.06, PlanningLimits())


@pytest.mark.parametrize("boots_s", [(0.0,), (2.0,), (40.0,), (2.0, 40.0)], ids=str)
@pytest.mark.parametrize("goal", GOALS, ids=str)
def test_each_goal_has_a_plan(goal: Goal, boots_s: tuple[float, ...]) -> None:
    plan = solve_overlay(free_transfer(*boots_s), goal)
    assert plan.cost.egress_usd == plan.cost.machines_usd == 0.0
    assert plan.throughput_gbps > 0


def test_out_of_reach_is_out_of_reach_also_for_nothing() -> None:
    for goal in (MinThroughput(50.0), Deadline(0.1)):
        with pytest.raises(InfeasibleGoal):
            solve_overlay(free_transfer(2.0), goal)


def test_a_free_plan_can_be_compared_explained_and_traced() -> None:
    transfer = free_transfer(2.0)
    plan = TransferPlan(solve_overlay(transfer, Fastest()), transfer)
    assert plan.would_help() is not None and compare(transfer, plan.overlay)
    assert trace_transfer(transfer).segments
