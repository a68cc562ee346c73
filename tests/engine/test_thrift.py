"""The plan of a transfer through rented machines does not spend what gains nothing."""

from __future__ import annotations

from tradewind.catalog.load import load_catalog
from tradewind.engine.provisioning import BOOT_PART, RETRY_RESERVE, plan_gateways
from tradewind.model.goal import MaxCost
from tradewind.model.region import Region
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import prepare, solve_overlay

ENDS = Region.parse("gcp:us-central1"), Region.parse("gcp:europe-west4")


def test_a_small_transfer_does_not_rent_many_machines_for_the_last_second() -> None:
    catalog, limits = load_catalog(None), PlanningLimits()
    plan = plan_gateways(catalog, *ENDS, 0.04, MaxCost(5.0), limits)
    fastest = solve_overlay(prepare(catalog, *ENDS, 0.04, limits), MaxCost(5.0 * (1 - RETRY_RESERVE)))
    assert plan.overlay is not None
    assert sum(fastest.machine_counts.values()) > 4
    assert sum(plan.overlay.machine_counts.values()) == 2
    assert plan.overlay.time_s <= fastest.time_s + BOOT_PART * fastest.boot_s * (1 + 1e-6)
    assert plan.overlay.cost.total_usd < fastest.cost.total_usd / 2
