"""Decisions about links, in the database: by the scheduler for the next jobs, and by gateways during a run.

The scheduler's state of each link is kept, too, so that another server continues with it. Both are bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from tradewind.model.event import LimitChanged, LimitReason, Stage
from tradewind.service.jobs import JobLease
from tradewind.service.limits import LINK_DECISIONS_MAX, LINK_DECISIONS_PER_LINK, TUNED_LINKS_MAX
from tradewind.service.link_tables import link_decisions, tuned_links
from tradewind.service.scheduler.events import LinkRestored, TuneLink
from tradewind.service.scheduler.tuned_links import tuned_names
from tradewind.service.tables import jobs

__all__ = ["Decider", "decisions_page", "record_gateway_decisions", "record_tunings", "restored_links"]

Decider = Literal["scheduler", "gateways"]
"""Maker of a decision: the scheduler for the next jobs, or the gateways of a job during a run."""

#: The stages of a transfer in words.
STAGES: dict[Stage, str] = {
    "read": "requests to the source",
    "network": "connections that send at the same time",
    "write": "requests to the destination",
}
#: Words for each reason of gateways. `times` is how often.
REASONS: dict[LimitReason, str] = {
    "waiting": "raised {times} because requests waited",
    "no_gain": "taken back {times} because more did not raise the rate",
    "slow_down": "halved {times} because the store asked for fewer",
    "errors": "halved {times} because most requests failed",
}
#: Largest number of requests in a decision: a guest may state any.
REQUESTS_MAX = 1_000_000
#: Interval in decisions at which all are counted, because that takes long.
COUNT_EVERY = 100


def restored_links(connection: Connection) -> list[LinkRestored]:
    """Return the links as they were tuned last, those that were used the longest ago first."""
    newest = select(tuned_links).order_by(tuned_links.c.updated_unix_ms.desc()).limit(TUNED_LINKS_MAX)
    return [
        LinkRestored(
            row["link"],
            row["jobs_max"],
            row["read_requests"],
            row["write_requests"],
            row["goodput_gbps"],
            row["is_starting"],
        )
        for row in reversed(connection.execute(newest).mappings().all())
    ]


def record_tunings(connection: Connection, tunings: Iterable[TuneLink], now_ms: int) -> None:
    """Record links as the scheduler has tuned them, and the decisions that have changed something."""
    for tuned in sorted(tunings, key=lambda one: one.link):
        values = {
            "jobs_max": tuned.jobs_max,
            "read_requests": tuned.read_requests,
            "write_requests": tuned.write_requests,
            "goodput_gbps": tuned.goodput_gbps,
            "success": tuned.success,
            "updated_unix_ms": now_ms,
            "is_starting": tuned.is_starting,
        }
        change = update(tuned_links).where(tuned_links.c.link == tuned.link).values(**values)
        if connection.execute(change).rowcount == 0:
            connection.execute(insert(tuned_links).values(link=tuned.link, **values))
            _forget_oldest_links(connection)
        rows = [{"what": one.what, "before": one.before, "now": one.now, "reason": one.reason} for one in tuned.changes]
        _add(connection, tuned.link, now_ms, rows, job=None)


def record_gateway_decisions(
    connection: Connection, lease: JobLease, links: Sequence[str], changes: Iterable[LimitChanged], now_ms: int
) -> None:
    """Record what the gateways of a run have decided, for each stage and tuned link.

    Nothing is written without the lease.
    """
    rows = list(_summaries(changes))
    if not rows:
        return
    held = jobs.c.id == lease.job, jobs.c.owner == lease.owner, jobs.c.epoch == lease.epoch
    if connection.execute(select(jobs.c.id).where(*held)).first() is None:
        return
    for link in tuned_names(links):
        _add(connection, link, now_ms, rows, job=lease.job)


def decisions_page(
    connection: Connection, *, link: str | None, before: int | None, limit: int, by: Decider | None = None
) -> list[dict[str, Any]]:
    """Return decisions, newest first: those of a link, or of all links; by one of the two, or by both."""
    query = select(link_decisions).order_by(link_decisions.c.number.desc()).limit(limit)
    if by is not None:
        query = query.where(_is_by(by))
    if link is not None:
        query = query.where(link_decisions.c.link == link)
    if before is not None:
        query = query.where(link_decisions.c.number < before)
    return [dict(row) for row in connection.execute(query).mappings()]


def _add(connection: Connection, link: str, now_ms: int, rows: Sequence[Mapping[str, Any]], *, job: str | None) -> None:
    """Append decisions on a link, and remove the oldest ones beyond the limits."""
    if not rows:
        return
    common = {"link": link, "at_unix_ms": now_ms, "job": job}
    connection.execute(insert(link_decisions), [{**common, **row} for row in rows])
    # Each job may add some of its gateways. They must not displace those of the scheduler.
    is_like_these = _is_by("scheduler" if job is None else "gateways")
    _keep(connection, LINK_DECISIONS_PER_LINK, link_decisions.c.link == link, is_like_these)
    newest = connection.execute(select(func.max(link_decisions.c.number))).scalar_one()
    if newest % COUNT_EVERY < len(rows):
        _keep(connection, LINK_DECISIONS_MAX, is_like_these)


def _keep(connection: Connection, most: int, *conditions: ColumnElement[bool]) -> None:
    """Remove the oldest of these decisions, so that no more than `most` are left."""
    number = link_decisions.c.number
    oldest = select(number).where(*conditions).order_by(number.desc()).offset(most).limit(1)
    connection.execute(delete(link_decisions).where(*conditions, number <= oldest.scalar_subquery()))


def _is_by(by: Decider) -> ColumnElement[bool]:
    return link_decisions.c.job.is_(None) if by == "scheduler" else link_decisions.c.job.is_not(None)


def _forget_oldest_links(connection: Connection) -> None:
    """Remove the links that were used the longest ago, beyond TUNED_LINKS_MAX."""
    count = connection.execute(select(func.count()).select_from(tuned_links)).scalar_one()
    if count > TUNED_LINKS_MAX:
        oldest = select(tuned_links.c.link).order_by(tuned_links.c.updated_unix_ms).limit(count - TUNED_LINKS_MAX)
        connection.execute(delete(tuned_links).where(tuned_links.c.link.in_(oldest)))


def _summaries(changes: Iterable[LimitChanged]) -> Iterator[dict[str, Any]]:
    """Yield one decision for each stage: its requests before and after, summed over its gateways, and why."""
    first: dict[Stage, dict[tuple[str, str], int]] = {}
    last: dict[Stage, dict[tuple[str, str], int]] = {}
    counts: dict[Stage, dict[LimitReason, int]] = {}
    for change in changes:
        if change.stage not in STAGES or change.reason not in REASONS:
            continue
        at = change.gateway, change.peer
        first.setdefault(change.stage, {}).setdefault(at, change.before)
        last.setdefault(change.stage, {})[at] = change.now
        of_stage = counts.setdefault(change.stage, {})
        of_stage[change.reason] = of_stage.get(change.reason, 0) + 1
    for stage, of_stage in counts.items():
        before, now = (min(sum(one[stage].values()), REQUESTS_MAX) for one in (first, last))
        why = "; ".join(REASONS[reason].format(times=_times(count)) for reason, count in of_stage.items())
        reason = f"{before} → {now} {STAGES[stage]}: {why}"
        yield {"what": stage, "before": before, "now": now, "reason": reason}


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
