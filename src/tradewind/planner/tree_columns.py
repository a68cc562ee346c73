"""A bound on multicast plans in large networks: the linear relaxation with one column per distribution tree.

Machines may be fractions here and nothing else is relaxed, so no plan is better; and the regions in which the
relaxation puts machines are those worth a closer look. Columns are made as needed: the tree that is missing most is the
cheapest one under prices plus duals (`steiner.py`). Before the last column is found the bound is already one: what the
restricted programme reaches, less what its most promising missing tree could add at the highest rate (Lagrange).
"""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np

from tradewind.model.amounts import BITS_PER_BYTE
from tradewind.planner.formulation import Ask, RelaxedTrees, RowWriter, write_machine_rows
from tradewind.planner.network import FloatArray, IntArray, Network
from tradewind.planner.steiner import Tree, cheapest_tree

__all__ = ["TreeColumns"]

PRICINGS_MAX = 400
"""Trees looked for per bound."""
BOUND_TOLERANCE = 1e-4
"""Relative; a bound this close to the restricted programme's value is good enough."""
COST_SCALE = 1e3
MISSING_RATE_USD = 1e3
"""Price of a Gbit/s that no tree carries; far above any real one, so that it is left only where nothing else goes."""


class TreeColumns:
    """The relaxation of one source and its destinations; trees found for one question are kept for the next."""

    def __init__(self, network: Network, links: IntArray, source: int, sinks: tuple[int, ...]) -> None:
        self._network = network
        self._source, self._sinks = source, sinks
        self._tails, self._heads = network.tail[links], network.head[links]
        self._position = {(int(u), int(v)): e for e, (u, v) in enumerate(zip(self._tails, self._heads, strict=True))}
        self._egress = network.usd_per_gb[links] / BITS_PER_BYTE
        writer = RowWriter(len(links))
        write_machine_rows(writer, network, links, source)
        self._rows = writer.rows()
        self._trees: list[Tree] = []
        self._known: set[Tree] = set()
        of_link = self._rows.column < len(links)
        order = np.argsort(self._rows.column[of_link], kind="stable")
        self._link_rows = self._rows.row[of_link][order]
        self._link_values = self._rows.value[of_link][order]
        self._link_start = np.searchsorted(self._rows.column[of_link][order], np.arange(len(links) + 1))

    def relax(self, ask: Ask) -> RelaxedTrees:
        """Answer a question with machines in fractions."""
        highs = self._master(ask)
        for tree in self._trees:
            self._add(highs, tree, ask)
        best_bound = -np.inf
        most = self._rate_most(ask)
        for _ in range(PRICINGS_MAX):
            highs.run()
            solution = highs.getSolution()
            value = float(highs.getInfo().objective_function_value)
            missing = self._missing_tree(np.array(solution.row_dual), ask)
            if missing is None:
                break
            tree, reduced = missing
            best_bound = max(best_bound, value + min(0.0, reduced) * most)
            if value - best_bound <= BOUND_TOLERANCE * abs(value) or tree in self._known:
                break
            self._trees.append(tree)
            self._known.add(tree)
            self._add(highs, tree, ask)
        values = np.array(highs.getSolution().col_value)
        options = len(self._network.options)
        feasible = bool(np.isfinite(best_bound)) and values[options] <= 1e-6 * max(ask.rate_min_gbps, 1e-9)
        bound = -best_bound if ask.maximise_rate else best_bound / COST_SCALE
        return RelaxedTrees(bound, feasible, values[:options])

    def _rate_most(self, ask: Ask) -> float:
        """No plan moves more: what the machines allowed at the source let out."""
        caps = [o.egress_gbps for o in self._network.options if o.region_index == self._source]
        return min(ask.rate_max_gbps, max(caps, default=0.0) * float(self._network.machines_max[self._source]))

    def _master(self, ask: Ask) -> Any:
        """Rows of the machines, of the stores, of the rate and of the ceiling; columns of the machines."""
        network = self._network
        highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("threads", 1)
        inf = highspy.kHighsInf
        for low, high in zip(self._rows.lower, self._rows.upper, strict=True):
            highs.addRow(max(float(low), -inf), float(high), 0, [], [])
        first_store = len(self._rows.names)
        ends = (self._source, *self._sinks)
        for _ in ends:
            highs.addRow(-inf, 0.0, 0, [], [])
        highs.addRow(ask.rate_min_gbps, ask.rate_max_gbps, 0, [], [])
        highs.addRow(-inf, 0.0, 0, [], [])
        ceiling_row = first_store + len(ends) + 1
        for k, option in enumerate(network.options):
            mine = np.flatnonzero(self._rows.column == len(self._tails) + k)
            rows, values = list(self._rows.row[mine]), list(self._rows.value[mine])
            for number, region in enumerate(ends):
                rate = option.read_gbps if number == 0 else option.write_gbps
                if region == option.region_index:
                    rows.append(first_store + number)
                    values.append(-min(rate, 1e4))
            usd_per_s = option.usd_per_s * ask.machine_factor
            if ask.ceiling_usd_per_gbit is not None:
                rows.append(ceiling_row)
                values.append(usd_per_s * COST_SCALE)
            most = float(network.machines_max[option.region_index])
            cost = 0.0 if ask.maximise_rate else usd_per_s * COST_SCALE
            highs.addCol(cost, 0.0, most, len(rows), np.array(rows, dtype=np.int32), np.array(values))
        rate_row = np.array([first_store + len(ends)], dtype=np.int32)
        highs.addCol(MISSING_RATE_USD * COST_SCALE, 0.0, inf, 1, rate_row, np.ones(1))
        return highs

    def _add(self, highs: Any, tree: Tree, ask: Ask) -> None:
        coefficients: dict[int, float] = {}
        usd_per_s = 0.0
        for edge in tree:
            e = self._position[edge]
            usd_per_s += float(self._egress[e])
            for at in range(self._link_start[e], self._link_start[e + 1]):
                row = int(self._link_rows[at])
                coefficients[row] = coefficients.get(row, 0.0) + float(self._link_values[at])
        for row in self._rate_rows():
            coefficients[row] = 1.0
        if ask.ceiling_usd_per_gbit is not None:
            coefficients[len(self._rows.names) + len(self._sinks) + 2] = (
                usd_per_s - ask.ceiling_usd_per_gbit
            ) * COST_SCALE
        cost = -1.0 if ask.maximise_rate else (usd_per_s - ask.usd_per_gbit) * COST_SCALE
        rows = np.array(list(coefficients), dtype=np.int32)
        highs.addCol(cost, 0.0, highspy.kHighsInf, len(rows), rows, np.array(list(coefficients.values())))

    def _rate_rows(self) -> range:
        """Every tree counts once in each store's row and in the rate's."""
        first_store = len(self._rows.names)
        return range(first_store, first_store + len(self._sinks) + 2)

    def _missing_tree(self, duals: FloatArray, ask: Ask) -> tuple[Tree, float] | None:
        """The tree of least reduced cost. Capacity rows have duals of at most zero, so weights are at least zero."""
        rows = len(self._rows.names)
        ceiling = -float(duals[rows + len(self._sinks) + 2]) if ask.ceiling_usd_per_gbit is not None else 0.0
        priced = 0.0 if ask.maximise_rate else COST_SCALE
        per_link = np.add.reduceat(-duals[self._link_rows] * self._link_values, self._link_start[:-1])
        weights = np.full((len(self._network.regions),) * 2, np.inf)
        weights[self._tails, self._heads] = np.maximum(
            per_link + self._egress * (priced + max(ceiling, 0.0) * COST_SCALE), 0.0
        )
        found = cheapest_tree(weights, self._source, self._sinks)
        if found is None:
            return None
        constant = -1.0 if ask.maximise_rate else -ask.usd_per_gbit * COST_SCALE
        constant -= float(duals[self._rate_rows()].sum())
        if ask.ceiling_usd_per_gbit is not None:
            constant -= max(ceiling, 0.0) * ask.ceiling_usd_per_gbit * COST_SCALE
        return found[1], found[0] + constant
