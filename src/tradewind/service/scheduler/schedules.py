"""Jobs that are submitted by a timetable or by events, until a date or a number of jobs, with a rule for overlaps.

Times are those of the schedule's time zone, as in Debian's cron: a time that a clock change skips comes just after it,
and a time that it repeats comes once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone, tzinfo
from itertools import chain, islice, takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from tradewind.errors import UsageError
from tradewind.model.records import dataclass
from tradewind.model.units import format_count

__all__ = ["ALLOW", "QUEUE", "QUEUED_MAX", "SKIP", "JobSchedule", "Occurrence", "Timetable"]

SKIP, QUEUE, ALLOW = "skip", "queue", "allow"
QUEUED_MAX = 10
"""Most times that wait for the job before them. Further ones are skipped."""

MISSED_MAX = 1_000
"""Most missed times that are counted."""
BISECTED_S = 3600.0
"""Length in which times are looked at one by one: 60 at most."""


@dataclass(frozen=True)
class JobSchedule:
    """When to submit a job. It ends after `end_s` or after `count` jobs. Without `cron` there are only events.

    `overlap` says what happens if the job before has not ended: `skip` this time, `queue` it, or `allow` both. Raises
    UsageError.
    """

    id: str
    cron: str | None
    time_zone: str = "UTC"
    end_s: float | None = None
    count: int | None = None
    overlap: str = SKIP

    def __post_init__(self) -> None:
        if self.overlap not in (SKIP, QUEUE, ALLOW):
            raise UsageError(f"no such rule for overlaps: {self.overlap}", hint="skip, queue or allow")
        if self.count is not None and self.count < 1:
            raise UsageError("the count is below 1", hint="leave it out for no limit")
        if self.cron is not None and len(self.cron.split()) != 5:
            raise UsageError(f"{self.cron!r} does not have five fields", hint="minute hour day month weekday")
        _zone(self.time_zone)
        next(self.times_after(0.0), None)

    def times_after(self, now_s: float) -> Iterator[float]:
        """Yield the times after `now_s`, ascending, until the end date."""
        if self.cron is None:
            return
        try:
            times = CronSim(self.cron, datetime.fromtimestamp(now_s, _zone(self.time_zone)))
        except CronSimError as error:
            raise UsageError(f"{self.cron!r}: {str(error).lower()}", hint=None) from error
        for at_s in (time.timestamp() for time in times):
            if self.end_s is not None and at_s > self.end_s:
                return
            # Within an hour that a clock change repeats, CronSim begins with times of the first of the two.
            if at_s > now_s:
                yield at_s


def _zone(name: str) -> tzinfo:
    try:
        return timezone.utc if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"no such time zone: {name}", hint="for example Europe/Zurich") from error


@dataclass(frozen=True)
class Occurrence:
    """One time of a schedule: a job to submit now, or the reason why there is none."""

    at_s: float
    skipped: str | None = None


class Timetable:
    """One schedule and the jobs that it has submitted.

    A timetable is continued after `start_s` with the number of jobs that it has `submitted`, those that are `active`,
    and the times that are `queued`.
    """

    def __init__(
        self,
        schedule: JobSchedule,
        start_s: float,
        *,
        submitted: int = 0,
        active: Iterable[str] = (),
        queued: Iterable[float] = (),
    ) -> None:
        self.schedule = schedule
        self.submitted = submitted
        self._active = set(active)
        self._queued = list(queued)
        self._next_s = next(schedule.times_after(start_s), None)

    @property
    def queued(self) -> tuple[float, ...]:
        """Times that wait for the job before them."""
        return tuple(self._queued)

    @property
    def is_over(self) -> bool:
        """True if the schedule submits no more jobs."""
        if self.schedule.count is not None and self.submitted >= self.schedule.count:
            return True
        return self.schedule.cron is not None and self._next_s is None and not self._queued

    def next_s(self) -> float | None:
        """Return the next time of the schedule; None if there is none."""
        return None if self.is_over else self._next_s

    def due(self, now_s: float) -> list[Occurrence]:
        """Return what has come since the last call. If several times have passed, only the latest one counts.

        Call `began` with the id of the job for each occurrence that is not skipped.
        """
        if self.is_over or self._next_s is None or self._next_s > now_s:
            return []
        at_s = self._latest_s(self._next_s, now_s)
        missed = self._missed(self._next_s, at_s)
        self._next_s = next(self.schedule.times_after(at_s), None)
        passed = [Occurrence(at_s, f"{missed} passed while the service was down")] if missed else []
        return [*passed, *self._decide(at_s)]

    def happened(self, at_s: float) -> list[Occurrence]:
        """Return what to do for an event at a time, as for a time of the cron expression. Call `began` as for `due`."""
        end_s = self.schedule.end_s
        if self.is_over or (end_s is not None and at_s > end_s):
            return [Occurrence(at_s, "the schedule has ended")]
        return self._decide(at_s)

    def _latest_s(self, at_s: float, now_s: float) -> float:
        """Return the latest time of the schedule until `now_s`; `at_s` is one of them.

        It is found by bisection: the times of years may have passed, and each takes a part of a millisecond.
        """
        early_s, late_s, latest_s = at_s, now_s, at_s
        while late_s - early_s > BISECTED_S:
            middle_s = (early_s + late_s) / 2
            found_s = next(self.schedule.times_after(middle_s), None)
            if found_s is None or found_s > now_s:
                late_s = middle_s
            else:
                early_s = latest_s = found_s
        return max((latest_s, *takewhile(lambda one: one <= now_s, self.schedule.times_after(latest_s))))

    def _missed(self, first_s: float, at_s: float) -> str:
        """Return the number of times from the first until before the latest one, in words; empty for none."""
        times = takewhile(lambda one: one < at_s, chain((first_s,), self.schedule.times_after(first_s)))
        count = sum(1 for _ in islice(times, MISSED_MAX + 1))
        if count > MISSED_MAX:
            return f"more than {MISSED_MAX:,} earlier scheduled times"
        return format_count(count, "earlier scheduled time") if count else ""

    def _decide(self, at_s: float) -> list[Occurrence]:
        if not self._active or self.schedule.overlap == ALLOW:
            return [Occurrence(at_s)]
        before = min(self._active)
        if self.schedule.overlap == SKIP:
            return [Occurrence(at_s, f"job {before} has not ended")]
        if len(self._queued) >= QUEUED_MAX:
            return [Occurrence(at_s, f"{QUEUED_MAX} scheduled times already wait for job {before}")]
        self._queued.append(at_s)
        return []

    def began(self, job_id: str) -> None:
        """Note the job that was submitted for an occurrence."""
        self.submitted += 1
        self._active.add(job_id)

    def ended(self, job_id: str) -> list[Occurrence]:
        """Note that a job has ended, in whatever way. Return the occurrence that waited for it."""
        self._active.discard(job_id)
        return self.waited()

    def waited(self) -> list[Occurrence]:
        """Return the first occurrence that waited, if no job is active any more."""
        if self._active or not self._queued or self.is_over:
            return []
        return [Occurrence(self._queued.pop(0))]
