"""Whole instances and flows from the relaxation: round both, the nearest to a whole number first.

After each step the relaxation is solved again, which takes some milliseconds because it starts from the last answer. So
one dive takes a tenth of the time that branch and bound needs for an equally good answer. The best of several slightly
different dives is better still.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tradewind.model.records import dataclass, replace
from tradewind.placement.assignment import Assignment
from tradewind.placement.deadline import CpuDeadline
from tradewind.placement.exact import repaired
from tradewind.placement.flow_greedy import Preferences
from tradewind.placement.model import Columns, CountModel, Duals, Fractions, columns_of, loads
from tradewind.placement.paths import Paths
from tradewind.placement.problem import FloatArray
from tradewind.placement.relaxation import Relaxation, reduced_costs

__all__ = ["DIVES", "Dive", "dive"]

WHOLE = 1e-6
"""Figures nearer than this to a whole number are that number."""
COLUMNS_PER_FLOW = 40
"""Average number of paths that a flow may take."""


@dataclass(frozen=True, slots=True)
class Dive:
    """How to round the relaxation."""

    capacity_part: float
    """Part of each capacity that the relaxation may fill. Whole flows rarely fill an instance: with less than 1, they
    are more likely to fit."""
    sure: float
    """Flows of which a path carries at least this part take this path at once, without solving again in between."""


DIVES = tuple(
    Dive(capacity_part, sure)
    for capacity_part, sure in (
        (0.925, 0.6),
        (0.975, 0.95),
        (0.95, 0.6),
        (1.0, 0.95),
        (0.9, 0.95),
        (0.975, 0.6),
        (0.95, 0.95),
        (0.9, 0.6),
        (0.85, 0.95),
        (1.0, 0.6),
    )
)
"""Dives in the order in which they are tried. None is best for all problems."""


def dive(by_gain: Preferences, relaxation: Relaxation, how: Dive, deadline: CpuDeadline) -> Assignment | None:
    """Return a placement near the relaxation; None if time ends before its instances are fixed.

    At the deadline, flows that are still divided take the path that carries most of them.
    """
    paths = by_gain.paths
    regions = tuple(
        replace(region, capacity_mbps=region.capacity_mbps * how.capacity_part) for region in paths.problem.regions
    )
    smaller = replace(paths, problem=replace(paths.problem, regions=regions))
    columns = relaxation.columns if relaxation.duals is None else _cheapest(smaller, relaxation.duals)
    model = CountModel(smaller, columns, whole=False)
    answer = _with_whole_counts(model, len(regions), deadline)
    if answer is None:
        return None
    answer = _FlowRounding(smaller, model, answer.counts, deadline).rounded(answer, how.sure)
    return repaired(by_gain, _paths_of(columns, answer.use, len(paths.fct_s)), _whole(answer.counts))


def _cheapest(paths: Paths, duals: Duals) -> Columns:
    """Return the columns with the least reduced costs, COLUMNS_PER_FLOW for each flow on average."""
    costs_s = np.where(paths.gain_s > 0, reduced_costs(paths, duals), np.inf)
    most = min(costs_s.size, COLUMNS_PER_FLOW * len(costs_s)) - 1
    limit_s = float(np.partition(costs_s, most, axis=None)[most])
    return columns_of(paths, (costs_s <= limit_s) & np.isfinite(costs_s))


def _with_whole_counts(model: CountModel, regions: int, deadline: CpuDeadline) -> Fractions | None:
    """Fix the instances of one region after the other, the one nearest to a whole number first.

    If the budget cannot pay for one more, there is one less.
    """
    answer = model.fractions(deadline)
    open_regions = set(range(regions))
    while answer is not None and open_regions:
        counts = answer.counts.tolist()
        region = min(open_regions, key=lambda one: abs(counts[one] - round(counts[one])))
        open_regions.discard(region)
        count = float(round(counts[region]))
        model.set_counts(region, count, count)
        if abs(counts[region] - count) <= WHOLE:
            continue
        answer = model.fractions(deadline)
        if answer is None and count > counts[region]:
            model.set_counts(region, count - 1, count - 1)
            answer = model.fractions(deadline)
    return answer


class _FlowRounding:
    """Flows of a model take whole paths, one after the other. Paths without room or money for them are left out."""

    def __init__(self, paths: Paths, model: CountModel, counts: FloatArray, deadline: CpuDeadline) -> None:
        columns = model.columns
        self._model, self._columns, self._deadline = model, columns, deadline
        self._is_fixed: NDArray[np.bool_] = np.zeros(len(paths.fct_s), dtype=np.bool_)
        self._is_out: NDArray[np.bool_] = np.zeros(len(columns), dtype=np.bool_)
        #: Regions of each column's proxies (the last one has room for all), and what it takes there by packing row.
        self._ends = [ends[columns.path] for ends in (paths.first, paths.second)]
        self._loads = [
            np.where(ends >= 0, np.array([load[columns.flow, columns.path] for load in loads(paths, of_paths)]), 0.0)
            for ends, of_paths in zip(self._ends, (paths.first, paths.second), strict=True)
        ]
        self._room = np.append(
            np.tile(_whole(counts), (len(self._loads[0]), 1)), np.ones((len(self._loads[0]), 1)), axis=1
        )
        self._egress_cents = paths.egress_cents[columns.flow, columns.path]
        setup = np.array([region.setup_cents for region in paths.problem.regions])
        self._left_cents = paths.problem.budget_cents - float(setup @ _whole(counts))

    def rounded(self, answer: Fractions, sure: float) -> Fractions:
        """Return an answer in which no flow is divided, or the last one before the deadline."""
        while not self._deadline.is_over:
            largest = _largest_of_each(self._columns, answer.use, len(self._is_fixed))
            use = answer.use[largest]
            divided = np.flatnonzero(~self._is_fixed & (use < 1 - WHOLE))
            if not len(divided):
                break
            for flow in np.flatnonzero(~self._is_fixed & (use >= 1 - WHOLE)):
                self._fix(int(flow), int(largest[flow]))
            self._leave_out()
            chosen = divided[use[divided] >= sure]
            most = divided[np.argmax(use[divided])]
            found = self._with(chosen if len(chosen) else np.array([most]), largest)
            if found is None and len(chosen) > 1:
                found = self._with(np.array([most]), largest)
            if found is None:  # This path cannot carry the whole flow, as the others are.
                self._model.set_use(int(largest[most]), 0.0, 0.0)
                self._is_out[largest[most]] = True
                found = self._model.fractions(self._deadline)
            if found is None:
                break
            answer = found
        return answer

    def _with(self, flows: NDArray[np.int64], largest: NDArray[np.int64]) -> Fractions | None:
        """Return the answer if some flows take their paths. If there is none, they need not take them."""
        if self._is_out[largest[flows]].any():
            return None
        for flow in flows:
            self._fix(int(flow), int(largest[flow]))
        found = self._model.fractions(self._deadline)
        if found is None:
            for flow in flows:
                self._model.set_use(int(largest[flow]), 0.0, 1.0)
                self._take(int(largest[flow]), -1.0)
                self._is_fixed[flow] = False
        return found

    def _fix(self, flow: int, column: int) -> None:
        self._model.set_use(column, 1.0, 1.0)
        self._take(column, 1.0)
        self._is_fixed[flow] = True

    def _take(self, column: int, times: float) -> None:
        for ends, loads_of in zip(self._ends, self._loads, strict=True):
            self._room[:, ends[column]] -= times * loads_of[:, column]
        self._left_cents -= times * float(self._egress_cents[column])

    def _leave_out(self) -> None:
        """Leave out the paths that do not fit beside the flows that are fixed."""
        out = self._egress_cents > self._left_cents + WHOLE
        for ends, loads_of in zip(self._ends, self._loads, strict=True):
            out |= (loads_of > self._room[:, ends] + WHOLE).any(axis=0)
        fresh = np.flatnonzero(out & ~self._is_out & ~self._is_fixed[self._columns.flow])
        self._is_out[fresh] = True
        self._model.forbid(fresh)


def _largest_of_each(columns: Columns, use: FloatArray, flows: int) -> NDArray[np.int64]:
    """Return the column that carries most of each flow."""
    order = np.lexsort((-use, columns.flow))
    first: NDArray[np.int64] = order[np.searchsorted(columns.flow[order], np.arange(flows))]
    return first


def _paths_of(columns: Columns, use: FloatArray, flows: int) -> list[int]:
    """Return the path of each flow that carries most of it."""
    found: list[int] = columns.path[_largest_of_each(columns, use, flows)].tolist()
    return found


def _whole(counts: FloatArray) -> Sequence[int]:
    found: list[int] = np.round(counts).astype(np.int64).tolist()
    return found
