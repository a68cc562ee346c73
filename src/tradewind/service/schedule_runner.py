"""Submits the jobs of schedules at their times and for their events.

The key of a job is made of schedule and time, so each time is submitted once.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from sqlalchemy import ColumnElement, exists, or_, select, update

from tradewind.errors import StateError, TradewindError
from tradewind.service.auth import Sender
from tradewind.service.database import ServiceDatabase, database_unix_ms
from tradewind.service.faults import Faults
from tradewind.service.job_traces import JobTraces
from tradewind.service.jobs import JobQueue
from tradewind.service.problems import ApiProblem
from tradewind.service.scheduler.schedules import JobSchedule, Occurrence, Timetable
from tradewind.service.scheduling_tables import schedule_events, schedules
from tradewind.service.tables import ENDED, jobs

__all__ = ["ScheduleRunner", "job_schedule"]

_LOG = logging.getLogger("tradewind.service")

#: A schedule whose last time is later than now by more than this was run while the clock was wrong.
CLOCK_BACK_MS = 600_000
#: Schedules that one pass looks at, those whose latest time is the longest ago first; and events of one of them.
AT_ONCE, EVENTS_AT_ONCE = 200, 100
#: Time after which a schedule with an error is tried again.
ERROR_PAUSE_S = 60.0


def job_schedule(row: Mapping[Any, Any]) -> JobSchedule:
    """Return the schedule of a row. Raises UsageError."""
    end_ms = row["end_unix_ms"]
    end_s = None if end_ms is None else end_ms / 1000
    return JobSchedule(row["id"], row["cron"] or None, row["time_zone"], end_s, row["count"], row["overlap"])


class ScheduleRunner:
    """Submits the jobs of all tenants' schedules. `progressed` is called before each of them."""

    def __init__(
        self,
        database: ServiceDatabase,
        queue: JobQueue,
        faults: Faults,
        traces: JobTraces | None = None,
        progressed: Callable[[], None] = lambda: None,
    ) -> None:
        self._database, self._queue, self._faults, self._traces = database, queue, faults, traces
        self._progressed = progressed
        #: Schedules with an error, and when they are tried again, by the monotonic clock [s].
        self._later_s: dict[str, float] = {}

    def step(self, *, is_scheduling: bool) -> None:
        """Submit what has come, if this server schedules. Raises StateError.

        An error in one schedule, or a fault of the program, stops none of the others.
        """
        if not is_scheduling:
            return
        now_s = time.monotonic()
        self._later_s = {one: due_s for one, due_s in self._later_s.items() if due_s > now_s}
        with self._database.read() as connection:
            now_ms = database_unix_ms(connection)
            was_ahead = schedules.c.last_unix_ms > now_ms + CLOCK_BACK_MS
            is_past = schedule_events.c.is_open == 1, schedule_events.c.at_unix_ms <= now_ms
            has_events = schedules.c.id.in_(select(schedule_events.c.schedule).where(*is_past).distinct())
            # One whose job has not ended waits, and must not be among the first of each pass meanwhile.
            is_active = exists().where(jobs.c.schedule == schedules.c.id, jobs.c.state.not_in(ENDED))
            may_begin = (schedules.c.queued != "[]") & ~is_active
            is_due = or_(schedules.c.next_unix_ms <= now_ms, may_begin, was_ahead, has_events)
            is_due = is_due & schedules.c.id.not_in(list(self._later_s)[:AT_ONCE])
            query = select(schedules).where(is_due).order_by(schedules.c.last_unix_ms).limit(AT_ONCE)
            rows = connection.execute(query).mappings().all()
        for row in rows:
            self._progressed()
            self._later_s[row["id"]] = now_s + ERROR_PAUSE_S
            try:
                with self._faults.caught("schedules", recovers=False, pause_s_max=0.0):
                    self._run(row, now_ms / 1000)
                    del self._later_s[row["id"]]
            except StateError:
                del self._later_s[row["id"]]
                raise
            except TradewindError as error:
                _LOG.error("schedule %s: %s", row["id"], error)
        if not self._later_s:
            self._faults.recovered("schedules")

    def _run(self, row: Mapping[Any, Any], now_s: float) -> None:
        with self._database.read() as connection:
            open_jobs = select(jobs.c.id).where(jobs.c.schedule == row["id"], jobs.c.state.not_in(ENDED))
            active = connection.execute(open_jobs).scalars().all()
            # Later ones wait for the next pass, so that no time of the cron expression is between them and now.
            is_past = *_open_events(row["id"]), schedule_events.c.at_unix_ms <= now_s * 1000
            at_ms = schedule_events.c.at_unix_ms
            past = select(at_ms).where(*is_past).order_by(at_ms).limit(EVENTS_AT_ONCE)
            events_ms = connection.execute(past).scalars().all()
        before_s = row["last_unix_ms"] / 1000
        if before_s > now_s + CLOCK_BACK_MS / 1000:
            before_s = now_s  # The clock was put back. A time that comes again has the same key, so one job.
        table = Timetable(
            job_schedule(row),
            before_s,
            submitted=row["submitted"],
            active=active,
            queued=json.loads(row["queued"]),
        )
        skipped, last_s = row["skipped"], before_s
        for one in _occurrences(table, now_s, [at_ms / 1000 for at_ms in events_ms]):
            last_s, reason = max(last_s, one.at_s), one.skipped
            self._progressed()
            if reason is None:
                try:
                    table.began(self._submit(row, one.at_s))
                except ApiProblem as problem:
                    reason = problem.detail
            skipped = reason or skipped
        last_s = max(last_s, *table.queued, 0.0)
        following = table.next_s()
        values = {
            "submitted": table.submitted,
            "queued": json.dumps(table.queued if not table.is_over else []),
            "skipped": skipped,
            "last_unix_ms": round(last_s * 1000),
            "next_unix_ms": None if following is None else round(following * 1000),
        }
        with self._database.write_rows() as connection:
            unchanged = (schedules.c[name] == row[name] for name in ("last_unix_ms", "submitted"))
            mine = schedules.c.id == row["id"], *unchanged
            if connection.execute(update(schedules).where(*mine).values(**values)).rowcount and events_ms:
                handled = *_open_events(row["id"]), schedule_events.c.at_unix_ms <= events_ms[-1]
                connection.execute(update(schedule_events).where(*handled).values(is_open=0))

    def _submit(self, row: Mapping[Any, Any], at_s: float) -> str:
        """Submit the job of a time, and return its id. The same time gives the same job. Raises ApiProblem."""
        sender = Sender(row["token"], row["tenant"], "operator", frozenset())
        # Events come at any time; those of the cron expression are whole seconds.
        moment = f"{round(at_s)}" if at_s == round(at_s) else f"{at_s:.3f}"
        key, digest = f"schedule-{row['id']}-{moment}", sha256(row["id"].encode()).hexdigest()
        request, owned, links = (json.loads(row[name]) for name in ("request", "owned", "links"))
        pairs = [(start, end) for start, end in links]
        traceparent = None if self._traces is None else self._traces.scheduled()
        job, _ = self._queue.submit(
            sender, key, digest, request, owned, pairs, schedule=row["id"], traceparent=traceparent
        )
        return job.id


def _open_events(schedule: str) -> tuple[ColumnElement[bool], ...]:
    return schedule_events.c.schedule == schedule, schedule_events.c.is_open == 1


def _occurrences(table: Timetable, now_s: float, events_s: Sequence[float]) -> Iterator[Occurrence]:
    """Yield the occurrences that are due, in order. Each takes the jobs of earlier ones into account."""
    yield from table.waited()
    yield from table.due(now_s)
    for at_s in events_s:
        yield from table.happened(at_s)
