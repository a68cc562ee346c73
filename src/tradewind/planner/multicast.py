"""The mixed-integer programme of one source and several destinations.

Columns: y_uv [Gbit/s], what crosses a link, paid once however many destinations it serves; then x_uv^d, what of it
serves destination d; then N_vk. Per destination x^d is a flow of the rate T, and y ≥ x^d. Relays and destinations
duplicate, so y need not be conserved. All that bounds machines bounds y.

This alone is a relaxation: y has to be a packing of distribution trees (`steiner.py`). By linear programming duality it
is one if and only if Σ w y ≥ T for all weights w under which every tree weighs at least one. `Trees` adds those of
these rows that an answer violates until none is: the answer is then exact, and before that a bound.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tradewind.model.amounts import BITS_PER_BYTE
from tradewind.planner.formulation import (
    Ask,
    Formulation,
    RelaxedTrees,
    Rows,
    RowWriter,
    write_machine_rows,
    write_store_row,
)
from tradewind.planner.network import FloatArray, IntArray, Network
from tradewind.planner.steiner import PACKED, Edge, Packing, pack_trees
from tradewind.planner.tree_columns import TreeColumns

__all__ = ["Trees", "build_multicast_formulation", "shared_links", "tree_packing"]

FLOW_MIN_RELATIVE = 1e-9
"""Flows below this part of the rate are rounding of the solver."""
CREEP_RELATIVE = (1e-3, 1e-5, 1e-7, 1e-9)
"""Of the rate, tried in turn: what every link carries when weights for a row are sought, so that links not in use get a
small weight each instead of the weight of a whole tree. A row is made of proven weights whatever this is."""


class Trees:
    """What is known of the trees of one programme: rows Σ w y − T ≥ 0 that answers violated, and columns of a bound."""

    def __init__(self, network: Network, links: IntArray, source: int, sinks: tuple[int, ...]) -> None:
        self._rows: Rows | None = None
        self._columns = TreeColumns(network, links, source, sinks)
        self._within: dict[frozenset[int], tuple[Formulation, IntArray]] = {}

    def relax(self, ask: Ask) -> RelaxedTrees:
        """A bound, and where the machines of the relaxation are."""
        return self._columns.relax(ask)

    def within(self, formulation: Formulation, regions: frozenset[int]) -> tuple[Formulation, IntArray]:
        """The programme of these regions alone, and which flow columns of the whole one are its own."""
        if regions not in self._within:
            network = formulation.network
            every = shared_links(formulation)
            inside = np.isin(network.tail[every], list(regions)) & np.isin(network.head[every], list(regions))
            kept = np.flatnonzero(inside)
            small = build_multicast_formulation(network, formulation.source, formulation.sinks, links=every[kept])
            offered = np.array([option.region_index in regions for option in network.options])
            small = replace(small, machine_max=np.where(offered, small.machine_max, 0.0))
            columns = np.concatenate([kept + len(every) * n for n in range(1 + len(formulation.sinks))])
            self._within[regions] = (small, columns)
        return self._within[regions]

    def rows(self) -> Rows | None:
        """Those found so far."""
        return self._rows

    def add_violated(self, formulation: Formulation, flow_gbps: FloatArray) -> bool:
        """Pack trees into the shared flows; where they stay below the rate, keep the row that says so."""
        rate = float(flow_gbps[formulation.out_of_source].sum())
        if rate <= 0.0:
            return False
        packing = tree_packing(formulation, flow_gbps, rate)
        if packing.rate_gbps >= rate * (1 - PACKED):
            return False
        row = _violated_row(formulation, flow_gbps, rate)
        if row is None:
            return False
        self._rows = row if self._rows is None else self._rows.joined(row)
        return True


def _violated_row(formulation: Formulation, flow_gbps: FloatArray, rate: float) -> Rows | None:
    """From the proof that trees of this rate do not fit into what the links carry and a little more on each."""
    network, links = formulation.network, shared_links(formulation)
    tails, heads = network.tail[links], network.head[links]
    shared_gbps = flow_gbps[: len(links)]
    for creep in CREEP_RELATIVE:
        capacity = {
            (int(u), int(v)): float(gbps) + creep * rate for u, v, gbps in zip(tails, heads, shared_gbps, strict=True)
        }
        packing = pack_trees(capacity, len(network.regions), formulation.source, formulation.sinks, rate)
        if packing.least_weight <= 0.0:  # a tree of links that are not full: no proof, and none is missing
            continue
        weights = np.minimum(packing.weights[tails, heads] / packing.least_weight, 1.0)
        if float(weights @ shared_gbps) < rate * (1 - PACKED):
            break
    else:
        return None
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
    """Positions in the network of the columns y, which are the first."""
    return formulation.links[: len(formulation.links) // (1 + len(formulation.sinks))]


def tree_packing(formulation: Formulation, flow_gbps: FloatArray, rate: float) -> Packing:
    """Trees of ``rate`` within what an answer's links carry."""
    network, links = formulation.network, shared_links(formulation)
    capacity: dict[Edge, float] = {
        (int(network.tail[links[c]]), int(network.head[links[c]])): float(flow_gbps[c])
        for c in np.flatnonzero(flow_gbps[: len(links)] > FLOW_MIN_RELATIVE * rate)
    }
    return pack_trees(capacity, len(network.regions), formulation.source, formulation.sinks, rate)


def build_multicast_formulation(
    network: Network, source: int, sinks: tuple[int, ...], *, links: IntArray | None = None
) -> Formulation:
    """Write the programme down.

    Args:
        network: what can be used.
        source: index of the source region.
        sinks: indices of the destination regions, at least two.
        links: restricts the overlay to these links; ``None`` for all.
    """
    chosen = np.arange(len(network.tail)) if links is None else links
    chosen = chosen[network.head[chosen] != source]
    width = len(chosen)
    writer = RowWriter(width * (1 + len(sinks)))
    write_machine_rows(writer, network, chosen, source)
    leaving = np.flatnonzero(network.tail[chosen] == source)
    for number, sink in enumerate(sinks):
        first = width * (1 + number)
        _conserve_flow_to(writer, network, chosen, source, sink, first)
        _share_links(writer, network, chosen, sink, first)
        if number:
            _same_rate(writer, network, leaving, sink, width, first)
        write_store_row(writer, network, first + np.flatnonzero(network.head[chosen] == sink), sink, "write")
    write_store_row(writer, network, width + leaving, source, "read")
    ends = np.minimum(network.machines_max[network.tail[chosen]], network.machines_max[network.head[chosen]])
    flow_max = network.link_gbps[chosen] * ends
    onward = [np.where(network.tail[chosen] == sink, 0.0, flow_max) for sink in sinks]
    return Formulation(
        network=network,
        source=source,
        sinks=sinks,
        links=np.tile(chosen, 1 + len(sinks)),
        egress_usd_per_s=np.concatenate([network.usd_per_gb[chosen] / BITS_PER_BYTE, np.zeros(width * len(sinks))]),
        machine_usd_per_s=np.array([o.usd_per_s for o in network.options]),
        machine_max=network.machines_max[network.region_of_option].astype(np.float64),
        flow_max=np.concatenate([flow_max, *onward]),
        out_of_source=width + leaving,
        rows=writer.rows(),
        shared=Trees(network, chosen, source, sinks),
    )


def _conserve_flow_to(writer: RowWriter, network: Network, links: IntArray, source: int, sink: int, first: int) -> None:
    """Σ_u x_uv^d − Σ_w x_vw^d = 0 for every v but source and d; what d sends on is zero by its bound."""
    relays = [v for v in range(len(network.regions)) if v not in (source, sink)]
    position = np.full(len(network.regions), -1)
    position[relays] = np.arange(len(relays))
    into, out = position[network.head[links]], position[network.tail[links]]
    columns = first + np.arange(len(links))
    writer.family(
        [f"conservation towards {network.regions[sink]} at {network.regions[v]}" for v in relays],
        np.concatenate([into[into >= 0], out[out >= 0]]),
        np.concatenate([columns[into >= 0], columns[out >= 0]]),
        np.concatenate([np.ones(int((into >= 0).sum())), -np.ones(int((out >= 0).sum()))]),
        0.0,
        0.0,
    )


def _share_links(writer: RowWriter, network: Network, links: IntArray, sink: int, first: int) -> None:
    """x_uv^d − y_uv ≤ 0."""
    serving = np.flatnonzero(network.tail[links] != sink)
    rows = np.arange(len(serving))
    writer.family(
        [f"link shared towards {network.regions[sink]}"] * len(serving),
        np.concatenate([rows, rows]),
        np.concatenate([first + serving, serving]),
        np.concatenate([np.ones(len(serving)), -np.ones(len(serving))]),
        -np.inf,
        0.0,
    )


def _same_rate(
    writer: RowWriter, network: Network, leaving: IntArray, sink: int, first_of_first: int, first: int
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
