"""Distribution trees as columns: a bound with fractions of machines, and the exact flows for machines that are given.

One column per tree, generated as needed: the most promising missing tree is the cheapest under prices plus duals
(`steiner.py`). A bound exists before the last column is found: the value of the restricted model, less the maximum
gain from its most promising missing tree at the highest rate (Lagrange). Every model and every search for a tree
counts as work of the question (`budget.py`).

The bound relaxes nothing but whole machines, so no plan is better; and the regions that have machines in the
relaxation are worth a closer look. With machines fixed the answer is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from tradewind.errors import SolverLimitReached
from tradewind.model.records import dataclass
from tradewind.model.units import BITS_PER_BYTE
from tradewind.planner.budget import WorkBudget
from tradewind.planner.formulation import RelaxedTrees, RowWriter, Subproblem, pool_name, write_machine_rows
from tradewind.planner.network import FloatArray, FlowNetwork, IntArray
from tradewind.planner.steiner import Edge, Tree, cheapest_tree

BoolArray = NDArray[np.bool_]

__all__ = ["ColumnFlows", "TreeColumns"]

PRICINGS_MAX = 400
"""Maximum trees generated per question; then the answer is the best so far, not marked as optimal."""
TREES_KEPT_MAX = 2000
"""Trees kept from one question for the next; the oldest are dropped."""
BOUND_TOLERANCE = 1e-4
"""Relative; a bound this close to the restricted model's value is good enough."""
FLOWS_TOLERANCE = 1e-9
"""The same for flows of given machines, which become part of a plan."""
MISSED = 1e-8
"""Relative; a rate missed by less counts as reached."""
RATE_MIN_RELATIVE = 1e-7
"""A tree with a smaller share of the rate is rounding of the solver."""
COST_SCALE = 1e3
MISSING_RATE_USD = 1e3
"""Price of a Gbit/s that no tree carries: far above real prices, so that it is used only if no tree can carry more."""
ARTIFICIAL = 2
"""Columns after those of the machines: the missed rate, and the cost above the ceiling."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnFlows:
    """Trees for given machines."""

    trees: tuple[tuple[Tree, float], ...]
    bound: float
    """Bound for these machines: no trees are better (USD/s, or Gbit/s when the rate is maximised)."""
    complete: bool
    duals: dict[str, float]
    """Per capacity row, by name."""
    rate_dual: float
    ceiling_dual: float


@dataclass(frozen=True, slots=True, eq=False)
class _Generated:
    """A restricted model for which column generation has ended."""

    trees: tuple[Tree, ...]
    values: FloatArray
    duals: FloatArray
    bound: float
    """Lower bound of its objective, which is minimised."""
    complete: bool
    weights: FloatArray
    """Cost of each link under the duals."""
    least_weight: float
    """Least weight of any tree; infinite if there is no tree."""

    def artificial(self, options: int) -> float:
        """Return how far rate and ceiling are missed."""
        return float(self.values[options : options + ARTIFICIAL].max())


@dataclass(frozen=True, slots=True)
class _StoreEnd:
    """The link between a store and a pool that reads or writes there: a tree leads from store to stores."""

    link: Edge
    pool: int
    reads: bool
    row: str
    """Name of the row that limits it."""


class TreeColumns:
    """The relaxation of one source and its destinations; keeps the trees of one question for the next."""

    def __init__(self, network: FlowNetwork, links: IntArray, source: int, sinks: tuple[int, ...]) -> None:
        self._network = network
        self._sources, self._sinks = network.pools_of(source), sinks
        self._store_ends = _store_ends(network, source, sinks)
        self._link_count = len(links)
        tails, heads = zip(*(end.link for end in self._store_ends), strict=True)
        self._tails = np.concatenate([network.tail[links], np.array(tails, dtype=np.int64)])
        self._heads = np.concatenate([network.head[links], np.array(heads, dtype=np.int64)])
        self._position = {(int(u), int(v)): e for e, (u, v) in enumerate(zip(self._tails, self._heads, strict=True))}
        self._egress = self._with_store_links(network.usd_per_gb[links] / BITS_PER_BYTE)
        self._usd_per_gbit = 0.0
        writer = RowWriter(len(links))
        write_machine_rows(writer, network, links, self._sources)
        self._rows = writer.rows()
        self._kept_trees: list[Tree] = []
        stores = np.arange(len(self._store_ends))
        of_link = self._rows.column < len(links)
        columns = np.concatenate([self._rows.column[of_link], len(links) + stores])
        rows = np.concatenate([self._rows.row[of_link], len(self._rows.names) + stores])
        values = np.concatenate([self._rows.value[of_link], np.ones(len(stores))])
        order = np.argsort(columns, kind="stable")
        self._link_rows, self._link_values = rows[order], values[order]
        self._link_start = np.searchsorted(columns[order], np.arange(len(self._tails) + 1))

    def _with_store_links(self, per_link: FloatArray) -> FloatArray:
        """Return figures of the links, followed by zero for each store."""
        return np.concatenate([per_link, np.zeros(len(self._store_ends))])

    def priced(self, egress_usd_per_s: FloatArray, usd_per_gbit: float) -> TreeColumns:
        """Return the same with other prices: per Gbit/s on each link, and per Gbit/s of the rate."""
        columns = copy(self)
        columns._egress, columns._usd_per_gbit = self._with_store_links(egress_usd_per_s), usd_per_gbit
        return columns

    def relax(self, subproblem: Subproblem, budget: WorkBudget) -> RelaxedTrees:
        """Solve a question with fractional machines."""
        every = np.ones(len(self._tails), dtype=bool)
        most = self._machines_max()
        made = self._generate(subproblem, np.zeros(len(most)), most, every, BOUND_TOLERANCE, budget)
        options = len(self._network.options)
        reached = bool(np.isfinite(made.least_weight) and np.isfinite(made.bound))
        feasible = reached and made.artificial(options) <= 1e-6 * max(subproblem.rate_min_gbps, 1e-9)
        if not made.complete and not feasible:  # not infeasible: generation is incomplete
            rate_most = self._rate_most(subproblem)
            bound = rate_most if subproblem.maximise_rate else -subproblem.usd_per_gbit * rate_most
            return RelaxedTrees(bound, True, made.values[:options])
        return RelaxedTrees(_unscaled(made.bound, subproblem), feasible, made.values[:options])

    def flows(
        self, subproblem: Subproblem, machines: IntArray, closed: BoolArray, budget: WorkBudget
    ) -> ColumnFlows | None:
        """Return the best trees for these machines; ``None`` if none exist.

        Args:
            subproblem: the question.
            machines: per option.
            closed: per link whether it may not be used.
            budget: of the question; at its limit the best so far is returned.

        Raises:
            SolverLimitReached: the work limit was reached before any trees were found.
        """
        network = self._network
        manned = np.zeros(len(network.regions), dtype=bool)
        manned[network.pool_of_option[machines > 0]] = True
        real = slice(self._link_count)
        open_links = manned[self._tails[real]] & manned[self._heads[real]] & ~closed
        open_links = np.concatenate([open_links, manned[[end.pool for end in self._store_ends]]])
        fixed = machines.astype(np.float64)
        made = self._generate(subproblem, fixed, fixed, open_links, FLOWS_TOLERANCE, budget)
        options = len(network.options)
        rates = made.values[options + ARTIFICIAL :]
        rate = float(rates.sum())
        if made.artificial(options) > MISSED * max(subproblem.rate_min_gbps, 1e-9):
            if made.complete:
                return None
            raise SolverLimitReached(
                f"no distribution trees found in {budget.work_max:.0f} units of work",
                hint="plan for fewer destinations at a time, or search longer with --effort",
            )
        used: dict[Tree, float] = {}
        for tree, gbps in zip(made.trees, rates, strict=True):
            hops = frozenset(edge for edge in tree if self._position[edge] < self._link_count)
            used[hops] = used.get(hops, 0.0) + float(gbps)
        trees = tuple((tree, gbps) for tree, gbps in used.items() if gbps > RATE_MIN_RELATIVE * rate)
        scale = 1.0 if subproblem.maximise_rate else COST_SCALE
        duals = dict(zip(self._row_names(), made.duals / scale, strict=False))
        *_, rate_dual, ceiling_dual = made.duals / scale
        return ColumnFlows(
            trees, _unscaled(made.bound, subproblem), made.complete, duals, float(rate_dual), float(ceiling_dual)
        )

    def tree_weights(
        self, subproblem: Subproblem, machines: IntArray, spare: float, budget: WorkBudget
    ) -> FloatArray | None:
        """Return weights per link that give every tree at least weight one, from duals of the best trees.

        Each region may also have ``spare`` additional machines, so that unused links get a small weight each instead of
        the weight of a whole tree. ``None`` if all trees weigh nothing.
        """
        every = np.ones(len(self._tails), dtype=bool)
        low = machines.astype(np.float64)
        high = np.minimum(low + spare, np.maximum(self._machines_max(), low))
        made = self._generate(subproblem, low, high, every, BOUND_TOLERANCE, budget)
        found = self._cheapest(self._with_store_links(made.weights[: self._link_count]), every, budget)
        if found is None or found[0] <= 0.0:
            return None
        weights: FloatArray = np.minimum(made.weights[: self._link_count] / found[0], 1.0)
        return weights

    def _machines_max(self) -> FloatArray:
        network = self._network
        most: FloatArray = network.machines_max[network.pool_of_option].astype(np.float64)
        return most

    def _row_names(self) -> list[str]:
        return [*self._rows.names, *(end.row for end in self._store_ends)]

    def _generate(
        self,
        subproblem: Subproblem,
        low: FloatArray,
        high: FloatArray,
        usable: BoolArray,
        tolerance: float,
        budget: WorkBudget,
    ) -> _Generated:
        """Generate columns until no missing tree would improve the objective, or the work limit is reached."""
        highs = self._master(subproblem, low, high)
        trees = [tree for tree in self._kept_trees if all(usable[self._position[edge]] for edge in tree)]
        for tree in trees:
            self._add(highs, tree, subproblem)
        known = set(trees)
        bound, most, complete, least = -np.inf, self._rate_most(subproblem), False, np.inf
        weights = np.zeros(len(self._tails))
        for _ in range(PRICINGS_MAX):
            highs.run()
            info = highs.getInfo()
            budget.count(max(0, int(info.simplex_iteration_count)), len(trees))
            solution = highs.getSolution()
            value, duals = float(info.objective_function_value), np.array(solution.row_dual)
            weights = self._weights(duals, subproblem)
            found = self._cheapest(weights, usable, budget)
            if found is None:
                bound, complete = value, True
                break
            least, tree = found
            reduced = least + self._constant(duals, subproblem)
            bound = max(bound, value + min(0.0, reduced) * most)
            scale = abs(value) + abs(subproblem.usd_per_gbit) * COST_SCALE * min(most, subproblem.rate_min_gbps)
            if value - bound <= tolerance * scale or reduced >= -tolerance or tree in known:
                complete = True
                break
            if budget.spent:
                break
            trees.append(tree)
            known.add(tree)
            self._add(highs, tree, subproblem)
        self._kept_trees = list(dict.fromkeys([*self._kept_trees, *trees]))[-TREES_KEPT_MAX:]
        values = np.array(highs.getSolution().col_value)
        return _Generated(tuple(trees), values, np.array(highs.getSolution().row_dual), bound, complete, weights, least)

    def _cheapest(self, weights: FloatArray, usable: BoolArray, budget: WorkBudget) -> tuple[float, Tree] | None:
        """Return the tree of least weight over usable links, among the pools and stores that these join."""
        links = np.flatnonzero(usable)
        ends = [len(self._network.regions) + number for number in range(1 + len(self._sinks))]
        pools = np.unique(np.concatenate([self._tails[links], self._heads[links], ends]))
        place = np.full(ends[-1] + 1, -1)
        place[pools] = np.arange(len(pools))
        matrix = np.full((len(pools),) * 2, np.inf)
        matrix[place[self._tails[links]], place[self._heads[links]]] = weights[links]
        budget.count_tree(len(pools), len(self._sinks))
        root, *sinks = (int(place[v]) for v in ends)
        found = cheapest_tree(matrix, root, tuple(sinks))
        if found is None:
            return None
        return found[0], frozenset((int(pools[u]), int(pools[v])) for u, v in found[1])

    def _rate_most(self, subproblem: Subproblem) -> float:
        """Return an upper bound on the rate: the egress of all machines allowed at the source."""
        caps = [o.egress_gbps for o in self._network.options if o.pool in self._sources]
        most = float(self._network.machines_max[self._sources[0]])
        return min(subproblem.rate_max_gbps, max(caps, default=0.0) * most)

    def _master(self, subproblem: Subproblem, low: FloatArray, high: FloatArray) -> Any:
        """Build rows for the machines, stores, rate and ceiling, and columns for the machines."""
        network = self._network
        highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("threads", 1)
        highs.setOptionValue("primal_feasibility_tolerance", 1e-9)
        highs.setOptionValue("dual_feasibility_tolerance", 1e-9)
        inf = highspy.kHighsInf
        for least, most in zip(self._rows.lower, self._rows.upper, strict=True):
            highs.addRow(max(float(least), -inf), float(most), 0, [], [])
        first_store = len(self._rows.names)
        for _ in self._store_ends:
            highs.addRow(-inf, 0.0, 0, [], [])
        highs.addRow(subproblem.rate_min_gbps, subproblem.rate_max_gbps, 0, [], [])
        highs.addRow(-inf, 0.0, 0, [], [])
        ceiling_row = self._rate_row + 1
        for k, option in enumerate(network.options):
            mine = np.flatnonzero(self._rows.column == self._link_count + k)
            rows, values = list(self._rows.row[mine]), list(self._rows.value[mine])
            for number, end in enumerate(self._store_ends):
                rate = option.read_gbps if end.reads else option.write_gbps
                if end.pool == option.pool:
                    rows.append(first_store + number)
                    values.append(-min(rate, 1e4))
            usd_per_s = option.usd_per_s * subproblem.machine_factor
            if subproblem.ceiling_usd_per_gbit is not None:
                rows.append(ceiling_row)
                values.append(usd_per_s * COST_SCALE)
            cost = 0.0 if subproblem.maximise_rate else usd_per_s * COST_SCALE
            highs.addCol(
                cost, float(low[k]), float(high[k]), len(rows), np.array(rows, dtype=np.int32), np.array(values)
            )
        rate_row = np.array([self._rate_row], dtype=np.int32)
        highs.addCol(MISSING_RATE_USD * COST_SCALE, 0.0, inf, 1, rate_row, np.ones(1))
        over = np.array([ceiling_row], dtype=np.int32)
        highs.addCol(MISSING_RATE_USD * COST_SCALE, 0.0, inf, 1, over, -np.ones(1))
        return highs

    def _add(self, highs: Any, tree: Tree, subproblem: Subproblem) -> None:
        coefficients: dict[int, float] = {}
        usd_per_s = self._usd_per_gbit
        for edge in tree:
            e = self._position[edge]
            usd_per_s += float(self._egress[e])
            for at in range(self._link_start[e], self._link_start[e + 1]):
                row = int(self._link_rows[at])
                coefficients[row] = coefficients.get(row, 0.0) + float(self._link_values[at])
        coefficients[self._rate_row] = 1.0
        if subproblem.ceiling_usd_per_gbit is not None:
            coefficients[self._rate_row + 1] = (usd_per_s - subproblem.ceiling_usd_per_gbit) * COST_SCALE
        cost = -1.0 if subproblem.maximise_rate else (usd_per_s - subproblem.usd_per_gbit) * COST_SCALE
        rows = np.array(list(coefficients), dtype=np.int32)
        highs.addCol(cost, 0.0, highspy.kHighsInf, len(rows), rows, np.array(list(coefficients.values())))

    @property
    def _rate_row(self) -> int:
        """Row of the rate, in which every tree counts once; that of the ceiling is next."""
        return len(self._rows.names) + len(self._store_ends)

    def _weights(self, duals: FloatArray, subproblem: Subproblem) -> FloatArray:
        """Return the cost of a tree's use of each link: at least zero, as no dual of a capacity row is positive."""
        priced = 0.0 if subproblem.maximise_rate else COST_SCALE
        per_link = np.add.reduceat(-duals[self._link_rows] * self._link_values, self._link_start[:-1])
        weights: FloatArray = np.maximum(
            per_link + self._egress * (priced + self._ceiling_dual(duals, subproblem) * COST_SCALE), 0.0
        )
        return weights

    def _constant(self, duals: FloatArray, subproblem: Subproblem) -> float:
        """Return the part of a tree's reduced cost that does not depend on its links."""
        constant = -1.0 if subproblem.maximise_rate else (self._usd_per_gbit - subproblem.usd_per_gbit) * COST_SCALE
        constant -= float(duals[self._rate_row])
        if subproblem.ceiling_usd_per_gbit is not None:
            above = subproblem.ceiling_usd_per_gbit - self._usd_per_gbit
            constant -= self._ceiling_dual(duals, subproblem) * above * COST_SCALE
        return constant

    def _ceiling_dual(self, duals: FloatArray, subproblem: Subproblem) -> float:
        if subproblem.ceiling_usd_per_gbit is None:
            return 0.0
        return max(0.0, -float(duals[self._rate_row + 1]))


def _store_ends(network: FlowNetwork, source: int, sinks: Sequence[int]) -> tuple[_StoreEnd, ...]:
    """Return the links between stores and pools. The stores are numbered after the pools, that of the source first."""
    first = len(network.regions)
    found = [
        _StoreEnd((first, pool), pool, True, f"object-store read rate at {pool_name(network, pool)}")
        for pool in network.pools_of(source)
    ]
    for number, sink in enumerate(sinks, first + 1):
        found += [
            _StoreEnd((pool, number), pool, False, f"object-store write rate at {pool_name(network, pool)}")
            for pool in network.pools_of(sink)
        ]
    return tuple(found)


def _unscaled(objective: float, subproblem: Subproblem) -> float:
    return -objective if subproblem.maximise_rate else objective / COST_SCALE
