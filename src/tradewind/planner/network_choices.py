"""The best point for a goal where regions have a choice of network tiers: never worse than with one tier everywhere.

With a choice, no machines of a region are the strongest in all respects, so that the search has no good first answer.
The plans with one tier everywhere are problems without a choice, which the search proves quickly. They compete with the
answer of the whole problem, whose bound holds for them too. Then another tier is tried in one region at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tradewind.model.goal import Fastest, Goal, MaxCost, Soonest
from tradewind.model.network_tier import NetworkTier
from tradewind.model.records import replace
from tradewind.model.region import Region
from tradewind.planner.best import RATE_TIE, solve_over_boot_times
from tradewind.planner.formulation import build_formulation
from tradewind.planner.goals import SOONEST_TIE, SOONEST_TIE_S
from tradewind.planner.multicast_formulation import build_multicast_formulation
from tradewind.planner.network import build_network
from tradewind.planner.points import PROVEN_GAP, Point
from tradewind.planner.transfer import Transfer, with_boot_within

__all__ = ["solve_over_network_tiers"]

Found = tuple[Transfer, Point]

FLIPS_MAX = 8
"""Maximum choices of tiers that differ from a better one in one region, each with this part of an answer's work."""
COST_TIE = 1e-9
"""Relative; of two plans whose costs differ by less, that of the whole problem wins."""


def solve_over_network_tiers(transfer: Transfer, goal: Goal) -> Found | None:
    """Return the best point, and the transfer with the machines, tiers and prices among which it was found.

    `None` if nothing meets the goal.
    """
    if not transfer.network.has_tiers:
        return solve_over_boot_times(transfer, goal)
    whole = solve_over_boot_times(transfer, goal)
    if whole is not None and whole[1].proven:
        return whole
    tiers: tuple[NetworkTier, ...] = ("premium", "standard")
    alone = [solve_over_boot_times(_with_one_tier(transfer, tier), goal) for tier in tiers]
    found = [each for each in (whole, *alone) if each is not None]
    if not found:
        return None
    part, point = _with_flips(transfer, found, goal)
    if whole is not None and part is whole[0]:
        return whole
    gap = _gap(transfer, goal, whole, point)
    return part, replace(point, gap=gap, solution=replace(point.solution, optimal=gap <= PROVEN_GAP))


def _with_flips(transfer: Transfer, found: list[Found], goal: Goal) -> Found:
    """Return the best of some answers, improved by another tier in one region at a time, with work as for one answer.

    Only regions that an answer uses are tried, the source first.
    """
    found, best, tried = list(found), _better(found, goal), set[frozenset[tuple[Region, NetworkTier]]]()
    regions = _regions_to_flip(transfer, found)
    less = replace(transfer, settings=replace(transfer.settings, work_max=transfer.settings.work_max / FLIPS_MAX))
    waiting = list(regions)
    while waiting and len(tried) < FLIPS_MAX:
        region, tiers = waiting.pop(0), _tiers_of(best, regions)
        tiers[region] = "premium" if tiers[region] == "standard" else "standard"
        if frozenset(tiers.items()) in tried:
            continue
        tried.add(frozenset(tiers.items()))
        flipped = solve_over_boot_times(_with_one_tier(less, "premium", tiers), goal)
        if flipped is None:
            continue
        found.append(flipped)
        before, best = best, _better(found, goal)
        if best is not before:
            waiting = [each for each in regions if each != region]
    return best


def _regions_to_flip(transfer: Transfer, found: list[Found]) -> list[Region]:
    """Return the regions with a choice that send in an answer, the source first."""
    network, ends = transfer.network, transfer.formulation
    free = set(network.regions[network.region_count :])
    source, sink = network.regions[ends.source], None if ends.shared else network.regions[ends.sink]
    used = dict.fromkeys(region for part, point in found for region in _machines_at(part, point))
    return [region for region in dict.fromkeys((source, *used)) if region in free and region != sink]


def _tiers_of(found: Found, regions: list[Region]) -> dict[Region, NetworkTier]:
    """Return the tiers of an answer in these regions; premium where it has no machines."""
    tiers = _machines_at(*found)
    return {region: tiers.get(region) or "premium" for region in regions}


def _machines_at(transfer: Transfer, point: Point) -> dict[Region, NetworkTier | None]:
    network = transfer.network
    options = (network.options[k] for k in np.flatnonzero(point.solution.machines))
    return {network.regions[option.pool]: option.network_tier for option in options}


def _with_one_tier(
    transfer: Transfer, tier: NetworkTier, tiers: Mapping[Region, NetworkTier] | None = None
) -> Transfer:
    """Return the transfer with one network tier in all regions that have it and are free to choose, but for `tiers`."""
    limits = transfer.limits
    limits = replace(limits, network_tiers=tier, network_tier_of={**(tiers or {}), **limits.network_tier_of})
    network = build_network(transfer.catalog, limits)
    names, whole = transfer.network.regions, transfer.formulation
    source, *sinks = (network.index[names[end]] for end in (whole.source, *whole.sinks))
    if whole.shared is None:
        formulation = build_formulation(network, source, sinks[0])
    else:
        formulation = build_multicast_formulation(network, source, tuple(sinks))
    single = replace(transfer, limits=limits, network=network, formulation=formulation)
    return single if transfer.demand.boot_given else with_boot_within(single, transfer.demand.boot_s)


def _better(found: list[Found], goal: Goal) -> Found:
    """Return the best of some answers to one goal; of equals the first."""
    if isinstance(goal, MaxCost | Fastest):
        highest = max(point.rate_gbps for _, point in found)
        found = [of for of in found if of[1].rate_gbps >= highest * (1 - RATE_TIE)]
    elif isinstance(goal, Soonest):
        earliest_s = min(map(_end_s, found))
        # No later than the first, so that its bound, which holds for plans as early as it, holds for the answer.
        latest_s = min(_end_s(found[0]), earliest_s + max(SOONEST_TIE_S, SOONEST_TIE * earliest_s))
        found = [of for of in found if _end_s(of) <= latest_s]
    least_usd = min(point.cost_usd for _, point in found)
    return next(of for of in found if of[1].cost_usd <= least_usd * (1 + COST_TIE))


def _end_s(found: Found) -> float:
    transfer, point = found
    return transfer.demand.boot_s + transfer.demand.gbit / point.rate_gbps


def _gap(transfer: Transfer, goal: Goal, whole: Found | None, point: Point) -> float:
    """Return the gap of a point by the bound of the whole problem, in which it is one of the plans."""
    if isinstance(goal, MaxCost | Fastest):
        # If the whole problem has no answer, it still has a fastest plan.
        top = whole or solve_over_boot_times(transfer, Fastest())
        return math.inf if top is None else max(0.0, top[1].rate_gbps * (1 + top[1].gap) / point.rate_gbps - 1.0)
    if whole is None:
        return 1.0
    lower_bound_usd = whole[1].cost_usd * (1 - whole[1].gap)
    return max(0.0, 1.0 - lower_bound_usd / point.cost_usd) if point.cost_usd > 0 else 0.0
