"""From two regions, a volume and a goal to the gateways of an overlay."""

from __future__ import annotations

from tradewind.model.catalog import Catalog
from tradewind.model.goal import Goal, MaxCost
from tradewind.model.plan import Plan
from tradewind.model.region import Region
from tradewind.planner.gateways import gateway_plan
from tradewind.planner.network import Limits
from tradewind.planner.plan import answer_goal, prepare

__all__ = ["RETRY_RESERVE", "plan_overlay"]

#: Of a ceiling on cost this part is kept back for bytes that must be sent twice, so that a ceiling that was planned for
#: is not what stops the transfer.
RETRY_RESERVE = 0.01


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
