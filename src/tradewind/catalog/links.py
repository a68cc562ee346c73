"""CSV tables of links: ours, and Skyplane's profiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tradewind.catalog.ageing import Figure
from tradewind.catalog.strict import RowCheck
from tradewind.catalog.tables import RTT_MS_MAX, Row, read_rows
from tradewind.model.region import Region

__all__ = ["LINK_GBPS_MAX", "read_links"]

LINK_GBPS_MAX = 400.0
"""Rate of the fastest network card that clouds rent; a higher figure for one machine pair is in another unit."""

RATES = ("gbps", "received_gbps", "throughput_received", "throughput_recieved")
"""Columns of a rate; the last two are Skyplane's (one as its profiles spell it), in bit/s."""


TIERS, PREMIUM = ("src_tier", "dst_tier"), "PREMIUM"
"""Skyplane measured Google's two network tiers separately, and plans with the premium tier only."""
SUCCESS = "success"
"""Skyplane keeps lines of probes that failed, with `False` here."""
ENDS = ("src", "dst", "src_region", "dst_region")
ZONE = re.compile(r"(?i)(gcp:.*\d)-[a-z]")
"""A zone of Google's, where Skyplane means its region; prices and machines belong to regions."""


def read_links(
    path: Path, source: str = "", check: RowCheck | None = None
) -> Iterator[tuple[tuple[Region, Region], Figure]]:
    """Links of a CSV file: src, dst, gbps[, rtt_ms][, kind][, source][, date][, method]; also Skyplane's profiles.

    Skyplane's columns are ``src_region``, ``dst_region`` (or ``src``, ``dst``), ``throughput_received`` [bit/s] and
    ``throughput_sent``. What was received is taken; lines of another network tier than the premium one, and of
    probes that failed, are left out; Google's zones (``gcp:us-east4-a``) are taken for their regions.
    ``kind`` is ``imported`` unless a line says ``measured``. ``check`` sees each line.

    Raises:
        ConfigError: names file, line and column.
    """
    for row in read_rows(path, [["src", "src_region"], ["dst", "dst_region"], RATES]):
        if any(row.has(tier) and row.fields[tier].upper() != PREMIUM for tier in TIERS):
            continue
        if row.fields.get(SUCCESS, "").lower() == "false":
            continue
        row = _with_regions(row)
        rate = _gbps(row)
        rtt_ms = row.number("rtt_ms", low=0.0, high=RTT_MS_MAX) if row.has("rtt_ms") else None
        src, dst = row.region("src", "src_region"), row.region("dst", "dst_region")
        origin = row.origin(source or path.name, "imported", "measured")
        if check is not None:
            check(row, [["src", "src_region"], ["dst", "dst_region"]], (src, dst, origin.kind))
        if src != dst:
            yield (src, dst), Figure(rate, origin, rtt_ms)


def _region_of(text: str) -> str:
    zone = ZONE.fullmatch(text)
    return zone.group(1) if zone else text


def _with_regions(row: Row) -> Row:
    """The line with regions where it names zones."""
    fields = {name: _region_of(text) if name in ENDS else text for name, text in row.fields.items()}
    return replace(row, fields=fields)


def _gbps(row: Row) -> float:
    for column in RATES[2:]:
        if row.has(column):
            return row.number(column, low=0.0, high=LINK_GBPS_MAX * 1e9, beyond=_beyond("bit/s")) / 1e9
    return row.number(*RATES[:2], low=0.0, high=LINK_GBPS_MAX, beyond=_beyond("Gbit/s"))


def _beyond(unit: str) -> str:
    meant = "; is this one in Mbit/s?" if unit == "Gbit/s" else ""
    return f"rates are in {unit} of a machine pair, and no network card is faster than {LINK_GBPS_MAX:g} Gbit/s{meant}"
