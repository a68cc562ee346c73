"""From two regions, a volume and a goal to the gateways of an overlay."""

from __future__ import annotations

from tradewind.model.catalog import Catalog
from tradewind.model.goal import Goal, MaxCost
from tradewind.model.plan import Plan
from tradewind.model.region import Region
from tradewind.planner.gateways import gateway_plan
from tradewind.planner.network import Limits
from tradewind.planner.plan import answer_goal, prepare

__all__ = ["PACE", "RETRY_RESERVE", "pace_bytes_per_s", "plan_overlay"]

#: Of a ceiling on cost this part is kept back for bytes that must be sent twice and machines that run longer, so that a
#: ceiling that was planned for is not what stops the transfer.
RETRY_RESERVE = 0.02
#: A plan whose routes differ in price is run at most so much faster than it says. With nothing to hold them back its
#: routes carry all they can, whatever their shares, and the cost is no longer the predicted one.
PACE = 1.05


def plan_overlay(
    catalog: Catalog, source: Region, destination: Region, volume_gb: float, goal: Goal, limits: Limits
) -> Plan:
    """Plans, and cuts the answer into gateways. The lead stands in the source's region, beside its first gateway.

    Raises UsageError, InfeasibleGoal.
    """
    if isinstance(goal, MaxCost):
        goal = MaxCost(goal.usd * (1 - RETRY_RESERVE))
    overlay = answer_goal(prepare(catalog, source, destination, volume_gb, limits), goal)
    return gateway_plan(overlay, lead_region=str(source))


def pace_bytes_per_s(plan: Plan) -> int | None:
    """The rate at which the routes keep their shares; None where it does not matter which of them carries what."""
    if plan.prediction is None or len({route.usd_per_gb for route in plan.routes}) == 1:
        return None
    return round(plan.prediction.throughput_gbps * PACE * 1e9 / 8)
