"""The MILP of one source and several destinations.

Columns: y_uv [Gbit/s], the traffic of a link, paid once for all destinations that it serves; then x_uv^d, the part of
it that serves destination d; then N_vk. Per destination x^d is a flow of the rate T, and y ≥ x^d. Relays and
destinations duplicate, so y need not be conserved. Machine limits apply to y.

This alone is a relaxation: y has to be a packing of distribution trees (`steiner.py`). By linear programming duality
it is one if and only if Σ w y ≥ T for all weights w under which every tree weighs at least one. For fixed machines
the best trees are found by column generation (`tree_columns.py`), and their duals are such weights: if the model
promises more for these machines than trees carry, its flows violate that row. `Trees` adds such rows until model
and trees agree. The answer is then exact; until then the model is a bound.

A region that may have both network tiers has two pools (`FlowNetwork`). A tree may start in either pool of the source,
and reaches a destination in either of its pools, which then writes there.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from tradewind.model.records import replace
from tradewind.model.units import BITS_PER_BYTE
from tradewind.planner.budget import WorkBudget
from tradewind.planner.formulation import (
    Formulation,
    RelaxedTrees,
    Rows,
    RowWriter,
    Subproblem,
    TreeFlows,
    pool_name,
    write_machine_rows,
    write_store_row,
)
from tradewind.planner.network import FloatArray, FlowNetwork, IntArray
from tradewind.planner.steiner import Tree
from tradewind.planner.tree_columns import TreeColumns

__all__ = ["Trees", "build_multicast_formulation", "flow_columns", "shared_links"]

SPARE_MACHINES = (1e-3, 1e-5, 1e-7, 1e-9)
"""Fractions of a machine that each region may have in addition, tried in turn, when searching weights for a row."""
VIOLATED = 1e-7
"""Relative; flows that violate a row by less are rounding of the solver."""


class Trees:
    """Known trees of one model: violated rows Σ w y − T ≥ 0, and columns of a bound."""

    def __init__(self, network: FlowNetwork, links: IntArray, source: int, sinks: tuple[int, ...]) -> None:
        self._rows: Rows | None = None
        self._columns = TreeColumns(network, links, source, sinks)
        self._within: dict[frozenset[int], tuple[Formulation, IntArray]] = {}
        self._usd_per_gbit = 0.0

    def priced(self, egress_usd_per_s: FloatArray, usd_per_gbit: float) -> Trees:
        """Return the same with other prices: per Gbit/s on each shared column, and per Gbit/s of the rate."""
        trees = copy(self)
        trees._columns, trees._usd_per_gbit = self._columns.priced(egress_usd_per_s, usd_per_gbit), usd_per_gbit
        trees._within = {}
        return trees

    def relax(self, subproblem: Subproblem, budget: WorkBudget) -> RelaxedTrees:
        """Return a bound, and the machines of the relaxation."""
        return self._columns.relax(subproblem, budget)

    def flows(
        self, formulation: Formulation, subproblem: Subproblem, machines: IntArray, budget: WorkBudget
    ) -> TreeFlows | None:
        """Return the best trees for these machines; ``None`` if none exist. Raises SolverLimitReached."""
        closed = formulation.flow_max[: len(shared_links(formulation))] <= 0.0
        found = self._columns.flows(subproblem, machines, closed, budget)
        if found is None:
            return None
        tail = [found.rate_dual] if subproblem.ceiling_usd_per_gbit is None else [found.rate_dual, found.ceiling_dual]
        duals = [found.duals.get(name, 0.0) for name in formulation.rows.names]
        columns = flow_columns(formulation, found.trees)
        return TreeFlows(found.trees, columns, found.bound, found.complete, np.array([*duals, *tail]))

    def within(self, formulation: Formulation, regions: frozenset[int]) -> tuple[Formulation, IntArray]:
        """Return the model of these regions alone, and which flow columns of the whole model it keeps."""
        if regions not in self._within:
            network, every = formulation.network, shared_links(formulation)
            inside = np.isin(network.tail[every], list(regions)) & np.isin(network.head[every], list(regions))
            self._within[regions] = self._part(formulation, regions, np.flatnonzero(inside))
        return self._within[regions]

    def direct(self, formulation: Formulation) -> tuple[Formulation, IntArray]:
        """Return the same for the links from the source to each destination, and no others."""
        network, every = formulation.network, shared_links(formulation)
        ends = formulation.sink_pools
        direct = np.isin(network.tail[every], formulation.sources) & np.isin(network.head[every], ends)
        return self._part(formulation, frozenset({*formulation.sources, *ends}), np.flatnonzero(direct))

    def _part(self, formulation: Formulation, regions: frozenset[int], kept: IntArray) -> tuple[Formulation, IntArray]:
        """Return the model of these regions, restricted to the given shared links."""
        network, every = formulation.network, shared_links(formulation)
        small = build_multicast_formulation(network, formulation.source, formulation.sinks, links=every[kept])
        offered = np.array([option.pool in regions for option in network.options])
        columns = np.concatenate([kept + len(every) * n for n in range(1 + len(formulation.sinks))])
        prices = formulation.egress_usd_per_s
        small = replace(
            small,
            machine_max=np.where(offered, small.machine_max, 0.0),
            egress_usd_per_s=prices[columns],
            shared=small.shared and small.shared.priced(prices[kept], self._usd_per_gbit),
        )
        return small, columns

    def rows(self) -> Rows | None:
        """Return the rows found so far."""
        return self._rows

    def add_violated(
        self,
        formulation: Formulation,
        subproblem: Subproblem,
        machines: IntArray,
        flow_gbps: FloatArray,
        budget: WorkBudget,
    ) -> bool:
        """Add the row that these flows violate, proven by the best trees for these machines."""
        rate = float(flow_gbps[formulation.out_of_source].sum())
        shared_gbps = flow_gbps[: len(shared_links(formulation))]
        for spare in SPARE_MACHINES:
            if rate <= 0.0 or budget.spent:
                return False
            weights = self._columns.tree_weights(subproblem, machines, spare, budget)
            if weights is not None and float(weights @ shared_gbps) < rate * (1 - VIOLATED):
                row = _tree_row(formulation, weights)
                self._rows = row if self._rows is None else self._rows.joined(row)
                return True
        return False


def _tree_row(formulation: Formulation, weights: FloatArray) -> Rows:
    """Σ w y − T ≥ 0."""
    out, kept = formulation.out_of_source, np.flatnonzero(weights)
    return Rows(
        ("distribution trees",),
        np.zeros(len(kept) + len(out), dtype=np.int64),
        np.concatenate([kept, out]),
        np.concatenate([weights[kept], -np.ones(len(out))]),
        np.array([0.0]),
        np.array([np.inf]),
    )


def shared_links(formulation: Formulation) -> IntArray:
    """Return the positions in the network of the columns y, which come first."""
    return formulation.links[: len(formulation.links) // (1 + len(formulation.sinks))]


def flow_columns(formulation: Formulation, trees: Sequence[tuple[Tree, float]]) -> FloatArray:
    """Return the flow of trees on each column: shared, and per destination along its path."""
    network, links = formulation.network, shared_links(formulation)
    column = {(int(network.tail[e]), int(network.head[e])): c for c, e in enumerate(links)}
    flow = np.zeros(formulation.link_count)
    for tree, gbps in trees:
        before = {v: u for u, v in tree}
        for edge in tree:
            flow[column[edge]] += gbps
        for number, sink in enumerate(formulation.sinks):
            at = next(pool for pool in network.pools_of(sink) if pool in before)
            while at in before:
                flow[len(links) * (1 + number) + column[before[at], at]] += gbps
                at = before[at]
    return flow


def build_multicast_formulation(
    network: FlowNetwork, source: int, sinks: tuple[int, ...], *, links: IntArray | None = None
) -> Formulation:
    """Write the model down.

    Args:
        network: what can be used.
        source: index of the source region.
        sinks: indices of the destination regions, at least two.
        links: restricts the overlay to these links; ``None`` for all.
    """
    chosen = np.arange(len(network.tail)) if links is None else links
    sources = network.pools_of(source)
    chosen = chosen[~np.isin(network.head[chosen], sources)]
    width = len(chosen)
    writer = RowWriter(width * (1 + len(sinks)))
    write_machine_rows(writer, network, chosen, sources)
    leaving = np.flatnonzero(np.isin(network.tail[chosen], sources))
    for number, sink in enumerate(sinks):
        first, pools = width * (1 + number), network.pools_of(sink)
        _conserve_flow_to(writer, network, chosen, sources, pools, first)
        _share_links(writer, network, chosen, pools, first)
        if number:
            _same_rate(writer, network, leaving, sink, width, first)
        for pool in pools:
            write_store_row(writer, network, first + np.flatnonzero(network.head[chosen] == pool), pool, "write")
    for pool in sources:
        # With two pools, this is a lower bound: what a pool must read for the first destination. Trees give the amount.
        write_store_row(writer, network, width + np.flatnonzero(network.tail[chosen] == pool), pool, "read")
    ends = np.minimum(network.machines_max[network.tail[chosen]], network.machines_max[network.head[chosen]])
    flow_max = network.link_gbps[chosen] * ends
    onward = [np.where(np.isin(network.tail[chosen], network.pools_of(sink)), 0.0, flow_max) for sink in sinks]
    return Formulation(
        network=network,
        source=source,
        sinks=sinks,
        links=np.tile(chosen, 1 + len(sinks)),
        egress_usd_per_s=np.concatenate([network.usd_per_gb[chosen] / BITS_PER_BYTE, np.zeros(width * len(sinks))]),
        machine_usd_per_s=np.array([o.usd_per_s for o in network.options]),
        machine_max=network.machines_max[network.pool_of_option].astype(np.float64),
        flow_max=np.concatenate([flow_max, *onward]),
        out_of_source=width + leaving,
        rows=writer.rows(),
        shared=Trees(network, chosen, source, sinks),
    )


def _conserve_flow_to(
    writer: RowWriter, network: FlowNetwork, links: IntArray, sources: Sequence[int], ends: Sequence[int], first: int
) -> None:
    """Σ_u x_uv^d − Σ_w x_vw^d = 0 for every v except source and d; the outflow of d is zero by its bound."""
    relays = [v for v in range(len(network.regions)) if v not in (*sources, *ends)]
    position = np.full(len(network.regions), -1)
    position[relays] = np.arange(len(relays))
    into, out = position[network.head[links]], position[network.tail[links]]
    columns = first + np.arange(len(links))
    writer.family(
        [f"conservation towards {network.regions[ends[0]]} at {pool_name(network, v)}" for v in relays],
        np.concatenate([into[into >= 0], out[out >= 0]]),
        np.concatenate([columns[into >= 0], columns[out >= 0]]),
        np.concatenate([np.ones(int((into >= 0).sum())), -np.ones(int((out >= 0).sum()))]),
        0.0,
        0.0,
    )


def _share_links(writer: RowWriter, network: FlowNetwork, links: IntArray, ends: Sequence[int], first: int) -> None:
    """x_uv^d − y_uv ≤ 0."""
    serving = np.flatnonzero(~np.isin(network.tail[links], ends))
    rows = np.arange(len(serving))
    writer.family(
        [f"link shared towards {network.regions[ends[0]]}"] * len(serving),
        np.concatenate([rows, rows]),
        np.concatenate([first + serving, serving]),
        np.concatenate([np.ones(len(serving)), -np.ones(len(serving))]),
        -np.inf,
        0.0,
    )


def _same_rate(
    writer: RowWriter, network: FlowNetwork, leaving: IntArray, sink: int, first_of_first: int, first: int
) -> None:
    """Σ_w x_sw^d − Σ_w x_sw^1 = 0: every destination gets the rate T."""
    writer.family(
        [f"rate towards {network.regions[sink]}"],
        np.zeros(2 * len(leaving), dtype=np.int64),
        np.concatenate([first + leaving, first_of_first + leaving]),
        np.concatenate([np.ones(len(leaving)), -np.ones(len(leaving))]),
        0.0,
        0.0,
    )
