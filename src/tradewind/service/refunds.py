"""Refunds to winners of auctions: they do not pay for bandwidth that the service has withheld from them.

Bandwidth is withheld while a job of the winner waits for the link only because of the service, see
`scheduler.withheld`, and while no server schedules. The replica that schedules counts it every few seconds. When the
hour is over, it refunds the same part of the charge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from sqlalchemy import Connection, insert, select, update

from tradewind.service.auction_tables import HOUR_MS, SLICES_PER_GBPS, bids
from tradewind.service.database import database_unix_ms
from tradewind.service.limits import WITHHELD_GAP_S
from tradewind.service.money_tables import charges
from tradewind.service.tables import ACTIVE, jobs

__all__ = ["are_hours_counted", "count_withheld"]


def are_hours_counted(connection: Connection) -> bool:
    """Return whether there is a winner whose hour has not been counted to its end."""
    return connection.execute(select(bids.c.id).where(bids.c.counted_unix_ms.is_not(None)).limit(1)).first() is not None


def count_withheld(connection: Connection, withheld_gbps: Mapping[tuple[str, str], float]) -> None:
    """Count what was withheld since the last call, and refund the winners whose hour is over.

    `withheld_gbps` is what was withheld at the last call, by link and tenant. Must run in a transaction that excludes
    all others that decide.
    """
    now_ms = database_unix_ms(connection)
    query = select(bids).where(bids.c.counted_unix_ms.is_not(None)).order_by(bids.c.number)
    for row in connection.execute(query).mappings().all():
        end_ms = (row["hour"] + 1) * HOUR_MS
        until_ms = max(row["counted_unix_ms"], min(now_ms, end_ms))
        since_ms = until_ms - row["counted_unix_ms"]
        if since_ms > WITHHELD_GAP_S * 1000:
            slices = max(Fraction(0), row["won_slices"] - _used_slices(connection, row))
        else:
            slices = Fraction(withheld_gbps.get((row["link"], row["tenant"]), 0.0)) * SLICES_PER_GBPS
        withheld = row["withheld_slice_ms"] + round(min(slices, Fraction(row["won_slices"])) * since_ms)
        is_over = until_ms == end_ms
        values = {"withheld_slice_ms": withheld, "counted_unix_ms": None if is_over else until_ms}
        if is_over:
            values["refunded_usd_micros"] = _refund(connection, row, withheld, now_ms)
        connection.execute(update(bids).where(bids.c.id == row["id"]).values(**values))


def _used_slices(connection: Connection, row: Mapping[Any, Any]) -> Fraction:
    """Return the rate of the winner's active jobs that have started in the hour."""
    active = select(jobs.c.granted).where(
        jobs.c.tenant == row["tenant"], jobs.c.state.in_(ACTIVE), jobs.c.granted.is_not(None)
    )
    used = Fraction(0)
    for granted in map(json.loads, connection.execute(active).scalars()):
        if row["link"] in granted["links"] and granted["at_unix_ms"] >= row["hour"] * HOUR_MS:
            used += Fraction(granted["rate_gbps"]) * SLICES_PER_GBPS
    return used


def _refund(connection: Connection, row: Mapping[Any, Any], withheld_slice_ms: int, now_ms: int) -> int:
    """Append the line of a refund, and return its amount, rounded half to even. It is in the invoice of now."""
    part = Fraction(withheld_slice_ms, row["won_slices"] * HOUR_MS)
    usd_micros: int = round(row["charged_usd_micros"] * part)
    if usd_micros:
        src, _, dst = row["link"].partition(">")
        connection.execute(
            insert(charges).values(
                tenant=row["tenant"],
                bid=row["id"],
                at_unix_ms=now_ms,
                what=f"auction: refund of {float(part):.1%} that was withheld, {src} → {dst}",
                usd_micros=-usd_micros,
                volume_bytes=0,
                run_ms=0,
            )
        )
    return usd_micros
