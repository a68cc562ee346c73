"""The placement problem as a linear model with instance counts by region (CloudPilot, Fig. 5, corrected).

Columns are u_fo, one per flow f and path o, then n_l, the number of instances in region l. Minimise Σ T_fo u_fo with

    Σ_o u_fo = 1                                     each flow takes one path
    Σ_fo w_k(rate_fo / capacity_l) u_fo [l on o] ≤ n_l    the instances of a region carry its flows, for each k
    Σ_o u_fo [l on o] ≤ n_l                          a flow over l needs an instance there; per flow, not summed
    Σ_fo egress_fo u_fo + Σ_l setup_l n_l ≤ budget

With w_0(x) = x, the second row is about the sum of the rates. Whole flows fit worse: an instance never carries two
flows of 0.6 of its capacity, nor three of 0.4. The other w_k are dual feasible functions: the w_k of flows that fit one
instance never add up to more than 1 (Fekete and Schepers, New classes of fast lower bounds for bin packing problems,
Mathematical Programming 91, 2001, Theorem 2). If the flows of an answer still do not fit, `packing.py` finds out, and
`exact.py` adds a row that forbids it. Paths that gain nothing are left out, except the direct one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from tradewind.model.records import dataclass
from tradewind.placement.deadline import CpuDeadline
from tradewind.placement.paths import DIRECT, IntArray, Paths
from tradewind.placement.problem import FloatArray

#: The w_k of the model, besides the sum of the rates.
PACKINGS = (1, 2, 3, 4, 5)
#: A rate nearer than this to a fraction of a capacity is that fraction.
SAME = 1e-9

__all__ = ["Columns", "CountModel", "Cut", "Duals", "Fractions", "columns_of", "lagrangian_bound", "loads", "priced"]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The flow columns of a model: the flow and the path of each."""

    flow: IntArray
    path: IntArray

    def __len__(self) -> int:
        return len(self.flow)


def columns_of(paths: Paths, keep: NDArray[np.bool_]) -> Columns:
    """Return the columns with a true flag, by flow and path, and the direct path of each flow."""
    kept = keep.copy()
    kept[:, DIRECT] = True
    flow, path = np.nonzero(kept)
    return Columns(flow, path)


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """A row that forbids a set of flows in a region unless it has more instances than `count`.

    Σ u_fo over the flows' paths through the region − |flows| · (n_l − count) ≤ |flows| − 1.
    """

    region: int
    count: int
    rate_min_mbps: Mapping[int, float]
    """The flows, and the lowest rate of each for which the set does not fit."""


@dataclass(frozen=True, slots=True, eq=False)
class Duals:
    """Prices of the constraints, 0 or more: per cent of budget, per instance's capacity, per use of a region [s]."""

    budget: float
    capacity: FloatArray
    """By packing row (the sum of the rates first) and region."""
    links: FloatArray
    """By flow and region."""


@dataclass(frozen=True, slots=True, eq=False)
class Fractions:
    """An answer in which flows and instances may be divided."""

    use: FloatArray
    """Per flow column, 0 to 1."""
    counts: FloatArray
    """Instances per region, not whole."""


def loads(paths: Paths, ends: IntArray) -> list[FloatArray]:
    """Return what each flow takes of one instance's capacity on each path, by packing row: 0 to 1.

    `ends` is `paths.first` or `paths.second`, the proxies in question. Without a proxy the figure means nothing.
    """
    capacity_mbps = np.append([region.capacity_mbps for region in paths.problem.regions], math.inf)
    share = paths.rate_mbps / capacity_mbps[ends]
    found = [share]
    for k in PACKINGS:
        scaled = share * (k + 1)
        whole = np.round(scaled)
        is_whole = np.abs(scaled - whole) <= SAME * (k + 1)
        found.append(np.where(is_whole, whole / (k + 1), np.floor(scaled) / k))
    return found


def lagrangian_bound(paths: Paths, duals: Duals) -> float:
    """Return a total completion time that no placement can beat, for any prices of the constraints.

    Each flow takes its best path at these prices, and each region the best number of instances.
    """
    problem = paths.problem
    if not len(paths.fct_s):
        return 0.0
    total_s = float(priced(paths, duals).min(axis=1).sum()) - duals.budget * problem.budget_cents
    for number, region in enumerate(problem.regions):
        instance = duals.budget * region.setup_cents - float(duals.capacity[:, number].sum())
        instance -= float(duals.links[:, number].sum())
        total_s += min(0.0, instance) * region.max_instances
    return total_s


def priced(paths: Paths, duals: Duals) -> FloatArray:
    """Return the completion time of each flow on each path plus the price of what it uses [s]."""
    capacity = np.concatenate([duals.capacity, np.zeros((len(duals.capacity), 1))], axis=1)
    links = np.concatenate([duals.links, np.zeros((len(paths.fct_s), 1))], axis=1)
    priced_s: FloatArray = paths.fct_s + duals.budget * paths.egress_cents
    for ends in (paths.first, paths.second):
        priced_s += links[:, ends]
        for load, price in zip(loads(paths, ends), capacity, strict=True):
            if price.any():
                priced_s += load * price[ends]
    return priced_s


def _quiet_highs() -> Any:
    highs: Any = highspy.Highs
    made = highs()
    made.setOptionValue("output_flag", False)
    made.setOptionValue("threads", 1)
    return made


class _Rows:
    """Coefficients and limits of rows, family by family."""

    def __init__(self) -> None:
        self.count = 0
        self._row: list[IntArray] = []
        self._column: list[IntArray] = []
        self._value: list[FloatArray] = []
        self._lower: list[FloatArray] = []
        self._upper: list[FloatArray] = []

    def family(self, count: int, lower: float, upper: float) -> int:
        """Add rows with these limits, and return the number of the first."""
        first, self.count = self.count, self.count + count
        self._lower.append(np.full(count, lower))
        self._upper.append(np.full(count, upper))
        return first

    def add(self, row: IntArray, column: IntArray, value: FloatArray) -> None:
        """Add coefficients."""
        self._row.append(row)
        self._column.append(column)
        self._value.append(value)

    def write(self, model: Any) -> None:
        """Write all rows into a model of HiGHS."""
        row, column = np.concatenate(self._row), np.concatenate(self._column)
        order = np.lexsort((column, row))
        model.num_row_ = self.count
        model.row_lower_, model.row_upper_ = np.concatenate(self._lower), np.concatenate(self._upper)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.searchsorted(row[order], np.arange(self.count + 1))
        model.a_matrix_.index_ = column[order]
        model.a_matrix_.value_ = np.concatenate(self._value)[order]


class CountModel:
    """The model over some columns, in HiGHS."""

    def __init__(
        self, paths: Paths, columns: Columns, cuts: Sequence[Cut] = (), *, whole: bool, whole_counts: bool = False
    ) -> None:
        self.paths, self.columns = paths, columns
        problem, count = paths.problem, len(columns)
        self._flows, self._regions = len(problem.flows), len(problem.regions)
        #: Number of the first column of instances.
        self._instances_at = count
        rows = _Rows()
        rows.add(columns.flow + rows.family(self._flows, 1.0, 1.0), np.arange(count), np.ones(count))
        self._write_packings(rows)
        self._write_budget(rows)
        self._links = self._write_links(rows)
        for cut in cuts:
            self._write_cut(rows, cut)
        model = highspy.HighsLp()
        model.num_col_ = count + self._regions
        model.col_cost_ = np.append(paths.fct_s[columns.flow, columns.path], np.zeros(self._regions))
        model.col_lower_ = np.zeros(count + self._regions)
        model.col_upper_ = np.append(np.ones(count), [float(region.max_instances) for region in problem.regions])
        rows.write(model)
        if whole or whole_counts:
            flows = highspy.HighsVarType.kInteger if whole else highspy.HighsVarType.kContinuous
            model.integrality_ = [flows] * count + [highspy.HighsVarType.kInteger] * self._regions
        self._highs = _quiet_highs()
        self._highs.passModel(model)

    def _via(self) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
        """Yield the regions of the columns' first proxies, then of their second ones, with the columns that have one,
        and `Paths.first` or `Paths.second`.
        """
        for ends in (self.paths.first, self.paths.second):
            region = ends[self.columns.path]
            via = np.flatnonzero(region >= 0)
            yield region[via], via, ends

    def _write_packings(self, rows: _Rows) -> None:
        """Σ w_k(rate / capacity) u − n ≤ 0 for each k and region."""
        every, packings = np.arange(self._regions), 1 + len(PACKINGS)
        first = rows.family(packings * self._regions, -math.inf, 0.0)
        for region, via, ends in self._via():
            flow, path = self.columns.flow[via], self.columns.path[via]
            for number, load in enumerate(loads(self.paths, ends)):
                rows.add(first + number * self._regions + region, via, load[flow, path])
        instances = self._instances_at + np.tile(every, packings)
        rows.add(first + np.arange(packings * self._regions), instances, -np.ones(packings * self._regions))

    def _write_budget(self, rows: _Rows) -> None:
        """Σ egress u + Σ setup n ≤ budget."""
        problem, columns = self.paths.problem, self.columns
        row = rows.family(1, -math.inf, problem.budget_cents)
        egress = self.paths.egress_cents[columns.flow, columns.path]
        rows.add(np.full(len(columns), row), np.arange(len(columns)), egress)
        instances = self._instances_at + np.arange(self._regions)
        setup = np.array([region.setup_cents for region in problem.regions])
        rows.add(np.full(self._regions, row), instances, setup)

    def _write_links(self, rows: _Rows) -> list[tuple[int, int]]:
        """Σ_o u_fo − n_l ≤ 0 for each flow and region that a column joins; return these pairs, in order."""
        link = np.full((self._flows, self._regions), -1, dtype=np.int64)
        for region, via, _ in self._via():
            link[self.columns.flow[via], region] = 0
        flow_of, region_of = np.nonzero(link == 0)
        first = rows.family(len(flow_of), -math.inf, 0.0)
        link[flow_of, region_of] = first + np.arange(len(flow_of))
        for region, via, _ in self._via():
            rows.add(link[self.columns.flow[via], region], via, np.ones(len(via)))
        rows.add(first + np.arange(len(flow_of)), self._instances_at + region_of, -np.ones(len(flow_of)))
        return list(zip(flow_of.tolist(), region_of.tolist(), strict=True))

    def _write_cut(self, rows: _Rows, cut: Cut) -> None:
        flow, path = self.columns.flow, self.columns.path
        via = (self.paths.first[path] == cut.region) | (self.paths.second[path] == cut.region)
        least = np.array([cut.rate_min_mbps.get(number, math.inf) for number in range(self._flows)])
        hit = np.flatnonzero(via & (self.paths.rate_mbps[flow, path] >= least[flow]))
        size = len(cut.rate_min_mbps)
        row = rows.family(1, -math.inf, size - 1.0 - size * cut.count)
        rows.add(np.full(len(hit), row), hit, np.ones(len(hit)))
        rows.add(np.array([row]), np.array([self._instances_at + cut.region]), np.array([-float(size)]))

    def _run(self, deadline: CpuDeadline) -> None:
        """Solve until a deadline. HiGHS itself knows only wall time."""
        self._highs.setOptionValue("time_limit", self._highs.getRunTime() + deadline.wall_left_s)
        stop = [self._highs.cbSimplexInterrupt, self._highs.cbMipInterrupt]
        for callback in stop:
            callback.subscribe(lambda event: event.interrupt() if deadline.is_over else None)
        self._highs.run()
        for callback in stop:
            callback.clear()

    def fractions(self, deadline: CpuDeadline) -> Fractions | None:
        """Solve with fractions; None if there is no answer or the deadline is reached first."""
        self._run(deadline)
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        values = np.array(self._highs.getSolution().col_value)
        return Fractions(values[: len(self.columns)], values[len(self.columns) :])

    def duals(self, deadline: CpuDeadline) -> Duals | None:
        """Solve with fractions, and return the prices; None if the deadline is reached first."""
        if self.fractions(deadline) is None:
            return None
        prices = np.array(self._highs.getSolution().row_dual)
        flows, regions = self._flows, self._regions
        budget_row = flows + (1 + len(PACKINGS)) * regions
        links = np.zeros((flows, regions))
        for number, (flow, region) in enumerate(self._links):
            links[flow, region] = max(0.0, -prices[budget_row + 1 + number])
        capacity = np.maximum(0.0, -prices[flows:budget_row]).reshape(1 + len(PACKINGS), regions)
        return Duals(max(0.0, -float(prices[budget_row])), capacity, links)

    def bound_s(self, deadline: CpuDeadline) -> float:
        """Return a lower bound of the total, the better the later the deadline; for a model with whole counts."""
        self._run(deadline)
        return float(self._highs.getInfo().mip_dual_bound)

    def set_counts(self, region: int, least: float, most: float) -> None:
        """Restrict the instances of a region. The next solve starts from the answer of the last one."""
        self._highs.changeColBounds(len(self.columns) + region, least, most)

    def set_use(self, column: int, least: float, most: float) -> None:
        """Restrict the use of a flow column."""
        self._highs.changeColBounds(column, least, most)

    def forbid(self, columns: IntArray) -> None:
        """Let no flow use these flow columns."""
        nothing = np.zeros(len(columns))
        self._highs.changeColsBounds(len(columns), columns.astype(np.int32), nothing, nothing)

    def whole(
        self, deadline: CpuDeadline, gap: float, start: Sequence[int] | None = None, counts: Sequence[int] = ()
    ) -> tuple[list[int] | None, tuple[int, ...], float]:
        """Solve with whole flows and instances. `start` is a known path per flow, and `counts` its instances.

        Returns the path per flow (None if none was found), the instances per region, and a lower bound of the total.
        """
        highs, columns = self._highs, self.columns
        highs.setOptionValue("mip_rel_gap", gap)
        highs.setOptionValue("mip_abs_gap", 1e-9)
        if start is not None:
            solution = highspy.HighsSolution()
            taken = np.asarray(start)[columns.flow] == columns.path
            solution.col_value = np.append(taken.astype(np.float64), np.asarray(counts, dtype=np.float64))
            highs.setSolution(solution)
        self._run(deadline)
        info = highs.getInfo()
        bound = float(info.mip_dual_bound)
        if highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            bound = min(bound, float(info.objective_function_value)) if gap > 0 else bound
        if info.primal_solution_status != highspy.kSolutionStatusFeasible:
            return None, (), bound
        values = np.array(highs.getSolution().col_value)
        chosen = np.flatnonzero(values[: len(columns)] > 0.5)
        path_of = [DIRECT] * len(self.paths.problem.flows)
        for column in chosen.tolist():
            path_of[int(columns.flow[column])] = int(columns.path[column])
        whole = tuple(round(value) for value in values[len(columns) :])
        return path_of, whole, bound
