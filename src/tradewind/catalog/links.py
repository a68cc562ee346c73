"""CSV tables of links: ours, and Skyplane's profiles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tradewind.catalog.ageing import Figure
from tradewind.catalog.tables import GBPS_MAX, RTT_MS_MAX, Row, read_rows
from tradewind.model.region import Region

__all__ = ["read_links"]

RATES = ("gbps", "received_gbps", "throughput_received", "throughput_recieved")
"""Columns of a rate; the last two are Skyplane's (one as its profiles spell it) and in bit/s."""


def read_links(path: Path, source: str = "") -> Iterator[tuple[tuple[Region, Region], Figure]]:
    """Links of a CSV file: src, dst, gbps[, rtt_ms][, kind][, source][, date][, method]; also Skyplane's profiles.

    Skyplane's columns are ``src_region``, ``dst_region`` (or ``src``, ``dst``), ``throughput_received`` [bit/s] and
    ``throughput_sent``. What was received is taken. ``kind`` is ``imported`` unless a line says ``measured``.

    Raises:
        ConfigError: names file, line and column.
    """
    for row in read_rows(path, [["src", "src_region"], ["dst", "dst_region"], RATES]):
        rate = _gbps(row)
        rtt_ms = row.number("rtt_ms", low=0.0, high=RTT_MS_MAX) if row.has("rtt_ms") else None
        src, dst = row.region("src", "src_region"), row.region("dst", "dst_region")
        origin = row.origin(source or path.name, "imported", "measured")
        if src != dst:
            yield (src, dst), Figure(rate, origin, rtt_ms)


def _gbps(row: Row) -> float:
    for column in RATES[2:]:
        if row.has(column):
            return row.number(column, low=0.0, high=GBPS_MAX * 1e9) / 1e9
    return row.number(*RATES[:2], low=0.0, high=GBPS_MAX)
