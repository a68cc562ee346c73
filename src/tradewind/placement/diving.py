"""Whole instances and flows from the relaxation: round the instances region by region, then search for whole flows."""

from __future__ import annotations

import numpy as np

from tradewind.model.records import replace
from tradewind.placement.assignment import Assignment
from tradewind.placement.deadline import CpuDeadline
from tradewind.placement.exact import repaired
from tradewind.placement.flow_greedy import Preferences
from tradewind.placement.model import Columns, CountModel, Duals, Relaxed, columns_of
from tradewind.placement.paths import Paths
from tradewind.placement.relaxation import Relaxation, reduced_costs

__all__ = ["dive"]

WHOLE = 1e-6
"""Counts nearer than this to a whole number are that number."""
COLUMNS_PER_FLOW = 6
"""Average number of paths that a flow may take once the instances are fixed."""
ROUNDED_COLUMNS_PER_FLOW = 40
"""Average number of paths of a flow while the instances are rounded."""
ROUGH_GAP = 2e-3


def dive(
    by_gain: Preferences, relaxation: Relaxation, capacity_part: float, deadline: CpuDeadline
) -> Assignment | None:
    """Return a placement near to the relaxation; None if there is none, or no time for one.

    Whole flows rarely fill an instance. With `capacity_part` below 1, less of each instance is filled on paper, so that
    the flows are more likely to fit.
    """
    paths = by_gain.paths
    regions = tuple(
        replace(region, capacity_mbps=region.capacity_mbps * capacity_part) for region in paths.problem.regions
    )
    smaller = replace(paths, problem=replace(paths.problem, regions=regions))
    answer = _with_whole_counts(smaller, relaxation, deadline)
    if answer is None or deadline.is_over:
        return None
    model = CountModel(smaller, _cheapest(smaller, answer.duals, COLUMNS_PER_FLOW), whole=True)
    for region, count in enumerate(np.round(answer.counts).tolist()):
        model.set_counts(region, count, count)
    path_of, counts, _ = model.whole(deadline, ROUGH_GAP)
    return None if path_of is None else repaired(by_gain, path_of, counts)


def _cheapest(paths: Paths, duals: Duals, per_flow: int) -> Columns:
    """Return the columns with the least reduced costs, so many for each flow on average."""
    costs_s = np.where(paths.gain_s > 0, reduced_costs(paths, duals), np.inf)
    most = min(costs_s.size, per_flow * len(costs_s)) - 1
    limit_s = float(np.partition(costs_s, most, axis=None)[most])
    return columns_of(paths, (costs_s <= limit_s) & np.isfinite(costs_s))


def _with_whole_counts(paths: Paths, relaxation: Relaxation, deadline: CpuDeadline) -> Relaxed | None:
    """Fix the instances of one region after the other, the one nearest to a whole number first."""
    columns = relaxation.columns
    if relaxation.duals is not None:
        columns = _cheapest(paths, relaxation.duals, ROUNDED_COLUMNS_PER_FLOW)
    model = CountModel(paths, columns, whole=False)
    answer = _relaxed(model, deadline)
    open_regions = set(range(len(paths.problem.regions)))
    while answer is not None and open_regions:
        counts = answer.counts.tolist()
        distance = {region: abs(counts[region] - round(counts[region])) for region in open_regions}
        if max(distance.values()) <= WHOLE:
            return answer
        region = min(open_regions, key=lambda one: distance[one])
        model.set_counts(region, float(round(counts[region])), float(round(counts[region])))
        open_regions.discard(region)
        answer = _relaxed(model, deadline)
    return answer


def _relaxed(model: CountModel, deadline: CpuDeadline) -> Relaxed | None:
    return None if deadline.is_over else model.relaxed(deadline)
