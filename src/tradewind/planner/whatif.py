"""Gain from a looser limit: one more machine where all are in use, or 10% more money.

Machines are whole, so duals would mislead; each question is one more exact solve.
"""

from __future__ import annotations

from collections.abc import Collection

from tradewind.errors import InfeasibleGoal
from tradewind.model.catalog import Catalog
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.overlay import MulticastOverlay, UnicastOverlay
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region
from tradewind.model.units import format_gbps, format_usd
from tradewind.planner.multicast import prepare_multicast, solve_multicast
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import Transfer, prepare, solve_overlay

__all__ = ["Improvement", "find_improvements"]

REGIONS_ASKED_MAX = 4
"""Regions for which one more machine is tried: those with the most of the flow."""
WORTH_MENTIONING = 1e-3
"""Relative; smaller gains are not shown."""


AnyPlan = UnicastOverlay | MulticastOverlay


@dataclass(frozen=True)
class Improvement:
    """A change and its gain."""

    change: str
    plan: AnyPlan
    gain: str


def find_improvements(transfer: Transfer, plan: AnyPlan) -> list[Improvement]:
    """Return changes that would make the plan faster or cheaper, the largest gain first."""
    offers = []
    full = [r for r in plan.machine_counts if plan.machine_counts[r] >= _limit(transfer, r)]
    asked = [(f"one more machine at {region}", [region]) for region in full[:REGIONS_ASKED_MAX]]
    if len(full) > 1:
        setting = transfer.limits.machines_setting
        asked.append((f"one more machine in every region ({setting})", list(transfer.network.regions)))
    for change, regions in asked:
        better = _with_one_more(transfer, plan, regions)
        if better is not None and (gain := _gain(plan, better)):
            offers.append(Improvement(change, better, gain))
    costlier = _with_more_money(transfer, plan)
    if costlier is not None and costlier.throughput_gbps > plan.throughput_gbps * (1 + WORTH_MENTIONING):
        offers.append(Improvement("10% more money", costlier, _figures(plan, costlier, by_cost=False)))
    return sorted(offers, key=lambda offer: offer.plan.cost.total_usd / offer.plan.throughput_gbps)


def _limit(transfer: Transfer, region: Region) -> int:
    return int(transfer.network.machines_max[transfer.network.index[region]])


def _with_one_more(transfer: Transfer, plan: AnyPlan, regions: Collection[Region]) -> AnyPlan | None:
    more = {region: _limit(transfer, region) + 1 for region in regions}
    limits = replace(transfer.limits, per_region={**transfer.limits.per_region, **more})
    catalog = replace(transfer.catalog, quotas={r: n + (r in more) for r, n in transfer.catalog.quotas.items()})
    try:
        return _answered(_prepared(transfer, plan, catalog, limits), _fair(plan.goal))
    except InfeasibleGoal:
        return None


def _prepared(transfer: Transfer, plan: AnyPlan, catalog: Catalog, limits: PlanningLimits) -> Transfer:
    """Return the same transfer with another catalog and other limits."""
    boot_s = transfer.boot_given_s
    settings = transfer.settings
    objects = transfer.demand.object_count
    if isinstance(plan, MulticastOverlay):
        return prepare_multicast(
            catalog,
            plan.source,
            plan.destinations,
            plan.volume_gb,
            limits,
            boot_s=boot_s,
            settings=settings,
            objects=objects,
        )
    return prepare(
        catalog,
        plan.source,
        plan.destination,
        plan.volume_gb,
        limits,
        boot_s=boot_s,
        settings=settings,
        objects=objects,
    )


def _answered(transfer: Transfer, goal: Goal) -> AnyPlan:
    several = len(transfer.formulation.sinks) > 1
    return solve_multicast(transfer, goal) if several else solve_overlay(transfer, goal)


def _fair(goal: Goal) -> Goal:
    return MinThroughput(goal.gbps) if isinstance(goal, MinThroughput) else goal


def _with_more_money(transfer: Transfer, plan: AnyPlan) -> AnyPlan | None:
    if isinstance(plan.goal, (Fastest, Soonest)):
        return None
    try:
        return _answered(transfer, MaxCost(plan.cost.total_usd * 1.1))
    except InfeasibleGoal:
        return None


def _gain(plan: AnyPlan, better: AnyPlan) -> str:
    """Return the gain of the better plan, by the goal's own measure; empty if there is none."""
    faster = better.throughput_gbps > plan.throughput_gbps * (1 + WORTH_MENTIONING)
    cheaper = better.cost.total_usd < plan.cost.total_usd * (1 - WORTH_MENTIONING)
    by_cost = isinstance(plan.goal, (MinThroughput, Deadline, Cheapest))
    if (by_cost and not cheaper) or (not by_cost and not faster):
        return ""
    return _figures(plan, better, by_cost=by_cost)


def _figures(plan: AnyPlan, better: AnyPlan, *, by_cost: bool) -> str:
    """Return rate and cost with their changes; the figure that the goal is about comes first."""
    faster = better.throughput_gbps / plan.throughput_gbps - 1
    rate = f"{format_gbps(better.throughput_gbps)} ({faster:+.0%})" if abs(faster) >= 0.005 else "the same rate"
    more_usd = better.cost.total_usd - plan.cost.total_usd
    shown = format_usd(abs(more_usd))
    cost = f"{format_usd(better.cost.total_usd)} ({'+' if more_usd > 0 else '-'}{shown})"
    if shown.strip("$0.") == "" or abs(more_usd) < WORTH_MENTIONING * plan.cost.total_usd:
        cost = "the same cost"
    return f"{cost}, {rate}" if by_cost else f"{rate}, {cost}"
