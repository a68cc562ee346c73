"""The energy of a month's jobs, from the times at which they were active, and the watts of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from sqlalchemy import Connection, select

from tradewind.market.energy import EnergyUse, energy_use
from tradewind.market.invoice import month_of
from tradewind.market.margins import PAPER_RATIOS
from tradewind.service.database import database_unix_ms
from tradewind.service.invoices import month_start_ms
from tradewind.service.tables import ACTIVE, job_events, jobs

__all__ = ["energy_of_month"]

MS_PER_HOUR = 3_600_000
WH_PER_KWH = 1000


def energy_of_month(connection: Connection, month: str | None, service_nodes: int, extra_nodes: int) -> dict[str, Any]:
    """Return the energy of a month, such as `2026-11`; by default of this one until now. Times are in hours."""
    now_ms = database_unix_ms(connection)
    month = month or month_of(now_ms / 1000)
    year, number = int(month[:4]), int(month[5:])
    start_ms, end_ms = month_start_ms(year, number), min(now_ms, month_start_ms(year, number + 1))
    query = (
        select(job_events.c.job, job_events.c.at_unix_ms, job_events.c.state)
        .join(jobs, jobs.c.id == job_events.c.job)
        .where(jobs.c.updated_unix_ms >= start_ms, jobs.c.created_unix_ms < end_ms)
        .order_by(job_events.c.job, job_events.c.number)
    )
    spans = _clipped(_active(connection.execute(query), now_ms), start_ms, end_ms)
    used = energy_use(
        spans,
        Fraction(max(0, end_ms - start_ms), MS_PER_HOUR),
        service_nodes=service_nodes,
        extra_nodes=extra_nodes,
        service_per_umr=PAPER_RATIOS.service_per_umr,
    )
    return {"month": month, "final": month < month_of(now_ms / 1000), **_view(used, service_nodes, extra_nodes)}


def _active(events: Iterable[tuple[str, int, str]], now_ms: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each period in which a job was active. A period that still lasts ends now."""
    job, since = "", None
    for name, at_ms, state in events:
        if name != job:
            if since is not None:
                yield since, now_ms
            job, since = name, None
        if state in ACTIVE:
            since = at_ms if since is None else since
        elif since is not None:
            yield since, at_ms
            since = None
    if since is not None:
        yield since, now_ms


def _clipped(spans: Iterable[tuple[int, int]], start_ms: int, end_ms: int) -> Iterator[tuple[Fraction, Fraction]]:
    for begin, end in spans:
        begin, end = max(begin, start_ms), min(end, end_ms)
        if begin < end:
            yield Fraction(begin - start_ms, MS_PER_HOUR), Fraction(end - start_ms, MS_PER_HOUR)


def _view(used: EnergyUse, service_nodes: int, extra_nodes: int) -> dict[str, Any]:
    return {
        "transfers": used.transfers,
        "transfer_hours": float(used.transfer_hours),
        "busy_hours": float(used.busy_hours),
        "service_nodes": service_nodes,
        "extra_nodes": extra_nodes,
        "service_kwh": float(used.service_wh / WH_PER_KWH),
        "idle_kwh": float(used.idle_wh / WH_PER_KWH),
        "users_kwh": float(used.users_wh / WH_PER_KWH),
        "ratio": None if used.ratio is None else float(used.ratio),
    }
