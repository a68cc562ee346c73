"""The cheapest whole machines for given flows: each pool (`FlowNetwork`) separately, with its cheapest machine type."""

from __future__ import annotations

import numpy as np

from tradewind.planner.formulation import CAPACITY_FAMILIES, Formulation
from tradewind.planner.network import FloatArray, IntArray

__all__ = ["MachineAllocator"]

WHOLE = 1e-7
"""Machines nearer than this to a whole number are that number."""
CAPACITY_MIN = 1e-9
"""Lower bound of a capacity [Gbit/s]; a machine without capacity would be needed infinitely often."""
FITS = 1e-8
"""Relative; flows that exceed a capacity by less are rounding of the solver."""


class MachineAllocator:
    """Whole machines for flows of one model (one destination). A pool has machines of one type."""

    def __init__(self, formulation: Formulation) -> None:
        self._formulation = formulation
        rows = formulation.rows
        capped = np.array([name.startswith(CAPACITY_FAMILIES) for name in rows.names])[rows.row]
        flows = capped & (rows.column < formulation.link_count)
        self._load = rows.row[flows], rows.column[flows], rows.value[flows]
        machines = capped & (rows.column >= formulation.link_count)
        self._capacity = rows.row[machines], rows.column[machines] - formulation.link_count, -rows.value[machines]
        self._limit = formulation.machine_max * (1 + FITS)

    def cheapest_for(self, flow_gbps: FloatArray, machines: FloatArray) -> FloatArray | None:
        """Return the cheapest whole machines of each pool that carry these flows.

        Args:
            flow_gbps: per flow column.
            machines: fractions, perhaps of several types, that carry them.

        Returns:
            ``None`` if a region may not have enough.
        """
        row, column, value = self._load
        load = np.zeros(len(self._formulation.rows.names))
        np.add.at(load, row, value * flow_gbps[column])
        needed = self._needed(load)
        network = self._formulation.network
        pools = network.pool_of_option
        whole = np.zeros(len(machines))
        for pool in np.unique(pools[machines > WHOLE]):
            options = np.flatnonzero(pools == pool)
            prices = self._prices(options, needed)
            best = int(np.argmin(prices))
            if not np.isfinite(prices[best]):
                return None
            whole[options[best]] = needed[options[best]]
        return None if network.has_tiers and network.exceeds_limits(whole) else whole

    def endpoints_usd_per_s(self, rate_gbps: float) -> float:
        """Return the minimum cost of the machines at source and destination at a rate."""
        formulation = self._formulation
        row, _, value = self._load
        lightest = np.full(len(formulation.rows.names), np.inf)
        np.minimum.at(lightest, row, value)
        load = np.where(np.isfinite(lightest), lightest, 0.0) * rate_gbps
        needed = self._needed(load)
        pools = formulation.network.pool_of_option
        if len(formulation.sources) > 1:
            # Two pools that share the flow may need less than one of them alone, but not less than these parts.
            here = np.isin(pools, formulation.sources)
            needed[here] = np.minimum(needed, self._parts(load))[here]
        ends = [np.flatnonzero(np.isin(pools, of)) for of in (formulation.sources, (formulation.sink,))]
        return float(sum(self._prices(options, needed).min(initial=np.inf) for options in ends))

    def strongest(self) -> IntArray | None:
        """Return all machines of the strongest type per region; ``None`` if no type is strongest in all respects.

        With a choice of network tiers, no type is: pools share the limit of their region.
        """
        if self._formulation.network.has_tiers:
            return None
        regions = self._formulation.network.pool_of_option
        machines = np.zeros(len(regions), dtype=np.int64)
        row, option, capacity = self._capacity
        per_machine = np.zeros((len(regions), len(self._formulation.rows.names)))
        per_machine[option, row] = capacity
        allowed = self._formulation.machine_max > 0.0
        for region in np.unique(regions[allowed]):
            options = np.flatnonzero((regions == region) & allowed)
            most = per_machine[options].max(axis=0)
            best = options[np.all(per_machine[options] >= most, axis=1)]
            if not len(best):
                return None
            machines[best[0]] = int(self._formulation.machine_max[best[0]])
        return machines

    def _needed(self, load: FloatArray) -> FloatArray:
        """Return per option how many of its machines alone would carry its region's load, at least one."""
        row, option, capacity = self._capacity
        needed = np.ones(self._formulation.option_count)
        np.maximum.at(needed, option, np.ceil(load[row] * (1 - FITS) / np.maximum(capacity, CAPACITY_MIN) - WHOLE))
        return needed

    def _parts(self, load: FloatArray) -> FloatArray:
        """Return the same as a fraction, which may be less than one."""
        row, option, capacity = self._capacity
        parts = np.zeros(self._formulation.option_count)
        np.maximum.at(parts, option, load[row] * (1 - FITS) / np.maximum(capacity, CAPACITY_MIN))
        return parts

    def _prices(self, options: IntArray, needed: FloatArray) -> FloatArray:
        """Return the prices of this many machines [USD/s]; infinite beyond the region's limit."""
        prices: FloatArray = self._formulation.machine_usd_per_s[options] * needed[options]
        return np.where(needed[options] <= self._limit[options], prices, np.inf)
