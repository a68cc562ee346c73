"""A model with straight lines in place of volume tiers (`tiers.py`), and the true cost of a point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tradewind.model.records import replace
from tradewind.model.units import BITS_PER_BYTE
from tradewind.planner.formulation import Formulation, Rows
from tradewind.planner.multicast_formulation import shared_links
from tradewind.planner.network import FloatArray, IntArray
from tradewind.planner.points import Demand
from tradewind.planner.tiers import Line, Span

__all__ = ["count_columns", "keep_inside", "priced", "priced_at", "volumes_gb"]


def count_columns(formulation: Formulation) -> tuple[IntArray, ...]:
    """Return per billing count the flow columns that pay there."""
    network = formulation.network
    links = formulation.links if formulation.shared is None else shared_links(formulation)
    column = np.full(len(network.tail), -1)
    column[links] = np.arange(len(links))
    return tuple(found[found >= 0] for found in (column[count.links] for count in network.counts))


def volumes_gb(formulation: Formulation, demand: Demand, flow_gbps: FloatArray) -> tuple[float, ...]:
    """Return per billing count what flows send there in all [GB of data]."""
    rate = float(flow_gbps[formulation.out_of_source].sum())
    return tuple(demand.volume_gb * float(flow_gbps[columns].sum()) / rate for columns in count_columns(formulation))


def priced(formulation: Formulation, demand: Demand, lines: Sequence[Line]) -> Formulation:
    """Return the model with a line per billing count as its cost; counts out of reach cost nothing."""
    egress = formulation.egress_usd_per_s.copy()
    usd = 0.0
    for columns, line in zip(count_columns(formulation), lines, strict=True):
        egress[columns] = line.usd_per_gb / BITS_PER_BYTE
        usd += line.usd if len(columns) else 0.0
    usd_per_gbit = usd / demand.gbit
    shared = formulation.shared
    if shared is not None:
        shared = shared.priced(egress[: len(shared_links(formulation))], usd_per_gbit)
    egress[formulation.out_of_source] += usd_per_gbit
    return replace(formulation, egress_usd_per_s=egress, shared=shared)


def keep_inside(formulation: Formulation, demand: Demand, spans: Sequence[Span | None]) -> Formulation:
    """Return the model with rows that keep each count's volume in its span, where there is one (one destination).

    l · T / V ≤ Σ F ≤ u · T / V.
    """
    rows = formulation.rows
    out = formulation.out_of_source
    for count, columns, span in zip(formulation.network.counts, count_columns(formulation), spans, strict=True):
        if span is None or not len(columns):
            continue
        for volume_gb, lower, upper in ((span[0], 0.0, np.inf), (span[1], -np.inf, 0.0)):
            if 0.0 < volume_gb < np.inf:
                weight = np.zeros(formulation.link_count)
                weight[columns] = 1.0
                weight[out] -= volume_gb / demand.volume_gb
                column = np.flatnonzero(weight)
                row = np.zeros(len(column), dtype=np.int64)
                name = f"volume tier of {count.account}"
                rows = rows.joined(Rows((name,), row, column, weight[column], np.array([lower]), np.array([upper])))
    return replace(formulation, rows=rows)


def priced_at(formulation: Formulation, demand: Demand, volumes: Sequence[float]) -> Formulation:
    """Return the model with the prices that the last GB of these volumes has: true there, and too low nowhere.

    With several destinations a price that rises is counted too high instead.
    """
    counts = formulation.network.counts
    spans = [count.span_of(volume_gb) for count, volume_gb in zip(counts, volumes, strict=True)]
    lines = [count.under(span) for count, span in zip(counts, spans, strict=True)]
    if formulation.shared is None:
        rising = [None if count.falls else span for count, span in zip(counts, spans, strict=True)]
        return keep_inside(priced(formulation, demand, lines), demand, rising)
    most_gb = demand.volume_gb * len(formulation.sinks)
    lines = [
        line if count.falls else count.over(most_gb * count.sources) for count, line in zip(counts, lines, strict=True)
    ]
    return priced(formulation, demand, lines)
