"""The best placement, by branch and bound over instance counts, and rows where whole flows do not fit the instances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tradewind.model.records import dataclass
from tradewind.placement.assignment import Assignment, flows_by_region
from tradewind.placement.deadline import CpuDeadline
from tradewind.placement.flow_greedy import Preferences, upgrade
from tradewind.placement.model import Columns, CountModel, Cut, columns_of
from tradewind.placement.packing import PackingUndecided, packed, smallest_misfit
from tradewind.placement.paths import DIRECT, Paths
from tradewind.placement.relaxation import COLUMNS_MAX, Relaxation, reduced_costs

__all__ = ["Polished", "bound_by_counts", "polish", "repaired"]

CUTS_MAX = 500
"""Most rows for flows that do not fit."""
REPAIR_STEPS_MAX = 500
"""Most steps of a search for instances that carry certain flows, where another placement will do as well."""
CLOSED = 1e-9
"""Relative; a bound this near to the total proves it."""


@dataclass(frozen=True, slots=True, eq=False)
class Polished:
    """The best assignment, and a bound of the total that no placement beats [s]."""

    assignment: Assignment
    bound_s: float


def polish(
    preferences: Preferences, known: Assignment, relaxation: Relaxation, deadline: CpuDeadline, gap: float
) -> Polished:
    """Improve a known assignment by branch and bound, until its gap is at most `gap` or the deadline.

    Columns that cannot be part of a better assignment are left out first (reduced-cost fixing). If the relaxation knows
    no prices, or too many columns are left, the bound stays that of the relaxation.
    """
    paths = preferences.paths
    best, bound_s = known, relaxation.bound_s
    columns, all_columns = _columns(paths, best, relaxation)
    cuts: list[Cut] = []
    while best.total_fct_s * (1 - max(gap, CLOSED)) > bound_s and len(cuts) < CUTS_MAX:
        if deadline.is_over:
            break
        model = CountModel(paths, columns, cuts, whole=True)
        path_of, counts, found_bound_s = model.whole(deadline, gap, best.path_of, _counts(best))
        if all_columns:
            bound_s = max(bound_s, min(found_bound_s, best.total_fct_s))
        if path_of is None:
            break
        fresh, decided = _misfits(paths, path_of, counts)
        made = repaired(preferences, path_of, counts)
        if made.total_fct_s < best.total_fct_s:
            best = made
        if not fresh:
            # A question that was not decided proves nothing: the answer may be better than any real placement.
            if decided and all_columns:
                bound_s = max(bound_s, min(found_bound_s, best.total_fct_s))
            break
        cuts += fresh
    return Polished(best, min(bound_s, best.total_fct_s))


def bound_by_counts(known: Assignment, relaxation: Relaxation, deadline: CpuDeadline) -> float:
    """Return a bound of the total by branch and bound over the instances, while flows may be divided [s].

    The relaxation pays for parts of instances. Whole ones leave less money, which raises the bound.
    """
    columns, all_columns = _columns(known.paths, known, relaxation)
    if not all_columns or deadline.is_over:
        return relaxation.bound_s
    model = CountModel(known.paths, columns, whole=False, whole_counts=True)
    return max(relaxation.bound_s, min(model.bound_s(deadline), known.total_fct_s))


def repaired(preferences: Preferences, path_of: Sequence[int], counts: Sequence[int] | None = None) -> Assignment:
    """Return an assignment near to these paths: flows that do not fit are direct, or on the best path with room.

    `counts` is the number of instances by region within which they should fit; None for as few as possible.
    """
    paths = preferences.paths
    if counts is None:
        made = _placed(paths, path_of)
    else:
        kept = _without_misfits(paths, path_of, counts)
        made = _packed(paths, kept, counts) or _placed(paths, kept)
    made.available = [region.max_instances for region in paths.problem.regions]
    upgrade(preferences, made)
    return made


def _packed(paths: Paths, path_of: Sequence[int], counts: Sequence[int]) -> Assignment | None:
    try:
        return Assignment.packed(paths, path_of, counts, REPAIR_STEPS_MAX)
    except PackingUndecided:
        return None


def _placed(paths: Paths, path_of: Sequence[int]) -> Assignment:
    """Place flow by flow, those that gain most first, while there is room and money."""
    made = Assignment(paths)
    gain_s = paths.gain_s
    for flow in sorted(range(len(path_of)), key=lambda one: -float(gain_s[one, path_of[one]])):
        fit = made.fit(flow, path_of[flow])
        if path_of[flow] != DIRECT and fit is not None and made.affords(fit.cents):
            made.place(flow, path_of[flow], fit)
    return made


def _without_misfits(paths: Paths, path_of: Sequence[int], counts: Sequence[int]) -> list[int]:
    """Return the paths with flows made direct, those that lose least first, until each region's flows fit."""
    kept, gain_s = list(path_of), paths.gain_s
    for region in flows_by_region(paths, kept):
        capacity_mbps = paths.problem.regions[region].capacity_mbps
        while True:
            flows = flows_by_region(paths, kept).get(region, [])
            try:
                rates_mbps = [float(paths.rate_mbps[flow, kept[flow]]) for flow in flows]
                if packed(rates_mbps, capacity_mbps, counts[region], REPAIR_STEPS_MAX) is not None:
                    break
            except PackingUndecided:
                pass
            kept[min(flows, key=lambda flow: float(gain_s[flow, kept[flow]]))] = DIRECT
    return kept


def _columns(paths: Paths, known: Assignment, relaxation: Relaxation) -> tuple[Columns, bool]:
    """Return the columns of the search, and whether they include all that a better assignment could use."""
    keep = np.zeros(paths.fct_s.shape, dtype=bool)
    complete = False
    if relaxation.duals is not None:
        spare_s = max(0.0, known.total_fct_s - relaxation.priced_s) * (1 + CLOSED) + CLOSED
        keep = (reduced_costs(paths, relaxation.duals) <= spare_s) & (paths.gain_s > 0)
        complete = int(keep.sum()) <= COLUMNS_MAX
    if not complete:
        keep = np.zeros(paths.fct_s.shape, dtype=bool)
        keep[relaxation.columns.flow, relaxation.columns.path] = True
    for flow, path in enumerate(known.path_of):
        keep[flow, path] = True
    return columns_of(paths, keep), complete


def _counts(assignment: Assignment) -> list[int]:
    return list(assignment.counts)


def _misfits(paths: Paths, path_of: Sequence[int], counts: Sequence[int]) -> tuple[list[Cut], bool]:
    """Return a row for each region whose flows do not fit its instances, and whether each region was decided."""
    cuts, decided = [], True
    for region, flows in flows_by_region(paths, path_of).items():
        rates_mbps = [float(paths.rate_mbps[flow, path_of[flow]]) for flow in flows]
        capacity_mbps = paths.problem.regions[region].capacity_mbps
        try:
            if packed(rates_mbps, capacity_mbps, counts[region]) is not None:
                continue
            misfit = smallest_misfit(rates_mbps, capacity_mbps, counts[region])
        except PackingUndecided:
            decided = False
            continue
        least = {flows[position]: rates_mbps[position] for position in misfit}
        cuts.append(Cut(region, counts[region], least))
    return cuts, decided
