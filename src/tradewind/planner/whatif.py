"""What loosening a limit would buy: one more machine where machines are all in use, or a tenth more money.

Machines are whole, so duals would mislead; each question is one more exact solve.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tradewind.model.amounts import format_gbps, format_usd
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.overlay import OverlayPlan
from tradewind.model.region import Region
from tradewind.planner.plan import InfeasibleGoal, Transfer, answer_goal, prepare

__all__ = ["Offer", "what_would_help"]

REGIONS_ASKED_MAX = 4
"""Regions for which one more machine is tried: those with the most of the flow."""
WORTH_MENTIONING = 1e-3
"""Relative; gains below it are not worth a line."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A change and what it would give."""

    change: str
    plan: OverlayPlan
    gain: str


def what_would_help(transfer: Transfer, plan: OverlayPlan) -> list[Offer]:
    """Changes that would make the plan faster or cheaper, the greatest first."""
    offers = []
    full = [r for r in plan.machine_counts if plan.machine_counts[r] >= _limit(transfer, r)]
    for region in full[:REGIONS_ASKED_MAX]:
        better = _with_one_more(transfer, plan, region)
        if better is not None and (gain := _gain(plan, better)):
            offers.append(Offer(f"one more machine at {region}", better, gain))
    costlier = _with_more_money(transfer, plan)
    if costlier is not None and costlier.throughput_gbps > plan.throughput_gbps * (1 + WORTH_MENTIONING):
        more_usd = costlier.cost.total_usd - plan.cost.total_usd
        gain = f"{format_gbps(costlier.throughput_gbps)} for {format_usd(more_usd)} more"
        offers.append(Offer("10% more money", costlier, gain))
    return sorted(offers, key=lambda offer: -offer.plan.throughput_gbps / offer.plan.cost.total_usd)


def _limit(transfer: Transfer, region: Region) -> int:
    return int(transfer.network.machines_max[transfer.network.index[region]])


def _with_one_more(transfer: Transfer, plan: OverlayPlan, region: Region) -> OverlayPlan | None:
    limits = replace(transfer.limits, per_region={**transfer.limits.per_region, region: _limit(transfer, region) + 1})
    catalog = replace(transfer.catalog, quotas={r: n + (r == region) for r, n in transfer.catalog.quotas.items()})
    wider = prepare(
        catalog,
        plan.source,
        plan.destination,
        plan.volume_gb,
        limits,
        boot_s=transfer.job.boot_s,
        settings=transfer.settings,
    )
    try:
        return answer_goal(wider, _fair(plan.goal))
    except InfeasibleGoal:
        return None


def _fair(goal: Goal) -> Goal:
    return MinThroughput(goal.gbps) if isinstance(goal, MinThroughput) else goal


def _with_more_money(transfer: Transfer, plan: OverlayPlan) -> OverlayPlan | None:
    if isinstance(plan.goal, (Fastest, Soonest)):
        return None
    try:
        return answer_goal(transfer, MaxCost(plan.cost.total_usd * 1.1))
    except InfeasibleGoal:
        return None


def _gain(plan: OverlayPlan, better: OverlayPlan) -> str:
    """What the better plan gives, by the goal's own measure; empty if nothing."""
    faster = better.throughput_gbps > plan.throughput_gbps * (1 + WORTH_MENTIONING)
    cheaper = better.cost.total_usd < plan.cost.total_usd * (1 - WORTH_MENTIONING)
    by_cost = isinstance(plan.goal, (MinThroughput, Deadline, Cheapest))
    if (by_cost and not cheaper) or (not by_cost and not faster):
        return ""
    difference = better.cost.total_usd - plan.cost.total_usd
    sign = "+" if difference >= 0 else "-"
    return f"{format_gbps(better.throughput_gbps)} for {sign}{format_usd(abs(difference))}"
