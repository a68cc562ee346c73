"""The cheapest whole machines for given flows: each region on its own, from the list of all sets it may have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement

import numpy as np

from tradewind.planner.formulation import CAPACITY_FAMILIES, Formulation
from tradewind.planner.network import FloatArray, IntArray

__all__ = ["Staff"]

SETS_MAX = 4000
"""Sets of machines listed per region (five types and eight machines: 1287); beyond it each type is rounded up."""
WHOLE = 1e-7
"""Machines nearer than this to a whole number are that number."""
FITS = 1e-8
"""Relative; flows that pass a capacity by less are rounding of the solver."""


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """What one region may have."""

    options: IntArray
    rows: IntArray
    sets: FloatArray | None
    """Numbers of machines per option, the cheapest set first; ``None`` if there are too many sets to list."""
    capacity: FloatArray
    """Per set and row."""
    limit: int


class Staff:
    """Whole machines for flows of one programme (one destination)."""

    def __init__(self, formulation: Formulation) -> None:
        self._formulation = formulation
        rows = formulation.rows
        capped = np.array([name.startswith(CAPACITY_FAMILIES) for name in rows.names])[rows.row]
        flows = capped & (rows.column < formulation.link_count)
        self._load = rows.row[flows], rows.column[flows], rows.value[flows]
        machines = capped & (rows.column >= formulation.link_count)
        self._capacity = rows.row[machines], rows.column[machines] - formulation.link_count, -rows.value[machines]
        self._region = np.array([o.region_index for o in formulation.network.options], dtype=np.int64)
        self._choices: dict[int, _Choice] = {}

    def cheapest_for(self, flow_gbps: FloatArray, machines: FloatArray) -> FloatArray | None:
        """Whole machines that carry these flows, each region's as cheap as can be.

        Args:
            flow_gbps: per flow column.
            machines: fractions that carry them.

        Returns:
            ``None`` if a region may not have enough.
        """
        row, column, value = self._load
        load = np.bincount(row, value * flow_gbps[column], len(self._formulation.rows.names))
        whole = np.zeros(len(machines))
        for region in np.unique(self._region[machines > WHOLE]):
            choice = self._choice(int(region))
            if choice.sets is None:
                numbers = np.ceil(machines[choice.options] - WHOLE)
                if numbers.sum() > choice.limit:
                    return None
            else:
                need = load[choice.rows]
                enough = np.all(choice.capacity >= need - FITS * np.abs(need), axis=1)
                first = int(np.argmax(enough))
                if not enough[first]:
                    return None
                numbers = choice.sets[first]
            whole[choice.options] = numbers
        return whole

    def ends_usd_per_s(self, rate_gbps: float) -> float:
        """What the machines at source and destination cost at least at a rate."""
        formulation = self._formulation
        total = 0.0
        for region in (formulation.source, formulation.sink):
            choice = self._choice(region)
            if choice.sets is None:
                continue
            need = np.array([rate_gbps * self._least_weight(int(row)) for row in choice.rows])
            enough = np.all(choice.capacity >= need * (1 - FITS), axis=1)
            prices = choice.sets @ formulation.machine_usd_per_s[choice.options]
            total += float(np.min(prices, initial=np.inf, where=enough))
        return total

    def strongest(self) -> IntArray | None:
        """All machines of the type that carries most, per region; ``None`` where no type does in all respects."""
        machines = np.zeros(len(self._region), dtype=np.int64)
        rows = len(self._formulation.rows.names)
        row, option, capacity = self._capacity
        per_machine = np.zeros((len(self._region), rows))
        per_machine[option, row] = capacity
        for region in np.unique(self._region):
            options = np.flatnonzero(self._region == region)
            most = per_machine[options].max(axis=0)
            best = options[np.all(per_machine[options] >= most, axis=1)]
            if not len(best):
                return None
            machines[best[0]] = int(self._formulation.network.machines_max[region])
        return machines

    def _least_weight(self, row: int) -> float:
        rows, _, value = self._load
        return float(value[rows == row].min(initial=np.inf)) if np.any(rows == row) else 0.0

    def _choice(self, region: int) -> _Choice:
        if region not in self._choices:
            self._choices[region] = self._listed(region)
        return self._choices[region]

    def _listed(self, region: int) -> _Choice:
        options = np.flatnonzero(self._region == region)
        limit = int(self._formulation.network.machines_max[region])
        row, option, capacity = self._capacity
        here = np.isin(option, options)
        rows, of_row = np.unique(row[here], return_inverse=True)
        per_machine = np.zeros((len(options), len(rows)))
        per_machine[np.searchsorted(options, option[here]), of_row] = capacity[here]
        if math.comb(limit + len(options), len(options)) > SETS_MAX:
            return _Choice(options, rows, None, per_machine, limit)
        sets = _sets(len(options), limit)
        order = np.argsort(sets @ self._formulation.machine_usd_per_s[options], kind="stable")
        return _Choice(options, rows, sets[order], sets[order] @ per_machine, limit)


@lru_cache(maxsize=64)
def _sets(types: int, limit: int) -> FloatArray:
    """All numbers of machines of so many types that are at most ``limit`` together."""
    chosen = combinations_with_replacement(range(types + 1), limit)
    return np.array([np.bincount(kinds, minlength=types + 1)[:types] for kinds in chosen], dtype=np.float64)
