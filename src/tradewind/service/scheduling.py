"""The scheduler in the service: it learns of jobs from the database, and its decisions are written there.

One replica schedules, see `scheduler_lease`. It compares the jobs' rows with what its scheduler knows, and sends an
event for each difference; so changes by users and by other replicas need no messages, and a restart is a comparison
with an empty scheduler. A job that may start becomes `running` without an owner, and a replica with room adopts it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from sqlalchemy import Connection, select, update

from tradewind.errors import StateError
from tradewind.model.event import Progress
from tradewind.model.records import dataclass
from tradewind.service.auctions import are_auctions_due, clear_auctions
from tradewind.service.bindings import ServiceBinder, grant_document, rebound_document, service_job
from tradewind.service.claims import ClaimTable
from tradewind.service.connections import proven_connections
from tradewind.service.database import ServiceDatabase, database_clock_ms, database_unix_ms
from tradewind.service.faults import Faults
from tradewind.service.jobs import JobQueue, JobRow, add_event
from tradewind.service.limits import (
    ANSWER_EVERY_S,
    ANSWER_PAUSE_S,
    ANSWER_SHARE,
    ANSWERS_AT_ONCE,
    ANSWERS_UNDER_LOCK,
    FIRST_JOBS_EVERY_S,
    PROGRESS_EVERY_S,
    UTILISATION_EVERY_S,
    WITHHELD_EVERY_S,
)
from tradewind.service.link_decisions import record_tunings, restored_links
from tradewind.service.machines import HERE_ONLY, MachineRules
from tradewind.service.places import conflict
from tradewind.service.refunds import are_hours_counted, count_withheld
from tradewind.service.scheduler.eta import Eta
from tradewind.service.scheduler.events import (
    Decision,
    JobCancelled,
    JobReplanned,
    JobSubmitted,
    RebindJob,
    RefuseJob,
    RoutesChanged,
    RunEnded,
    RunFailed,
    SchedulerEvent,
    StartJob,
    StopJob,
    TimePassed,
    TuneLink,
)
from tradewind.service.scheduler.job_states import RUNNING_PHASE
from tradewind.service.scheduler.state import Scheduler
from tradewind.service.scheduler_lease import SchedulerLease
from tradewind.service.scheduling_rows import (
    ACTIVE_PLACES,
    charged_usd_micros,
    costs_today,
    ended_jobs,
    open_jobs,
    parts,
    progressed,
    rerouted,
    restored,
    run_costs,
    running_jobs,
)
from tradewind.service.scheduling_rules import RuleReader
from tradewind.service.tables import jobs
from tradewind.service.utilisation import has_utilisation, record_utilisation

__all__ = ["ServiceScheduler"]

#: An end is written anew if it moved by more than this share of the time until it.
END_CHANGE_SHARE = 0.1
#: Maximum time for which a request waits for the scheduler's own answer, and the end of the server for its pass [s].
ANSWER_WAIT_S, LEAVE_WAIT_S = 2.0, 10.0
#: States of jobs whose run ends soon, and which do not start again then.
LEAVING = ("pausing", "cancelling")


@dataclass
class SeenJob:
    """A job as it was when the scheduler last learned of it, and what was written about it."""

    failures: str
    moved_bytes: int
    sentence: str | None
    ends: tuple[int, int] | None
    routes: str | None = None


@dataclass(frozen=True)
class News:
    """Changes that a pass has read: events, jobs that are not open any more, and rows of new or changed jobs."""

    events: Sequence[SchedulerEvent]
    ended: Mapping[str, tuple[str, str | None, int]]
    rows: Sequence[JobRow]


class ServiceScheduler:
    """Schedules the jobs while this server has the lease.

    `fail` ends a waiting job for good, with a reason. `progress` returns that of a job of the engine, which any server
    may run. `rules` say which jobs may rent machines, and for how much.
    """

    def __init__(
        self,
        database: ServiceDatabase,
        queue: JobQueue,
        claims: ClaimTable,
        lease: SchedulerLease,
        binder: ServiceBinder,
        fail: Callable[[JobRow, str], None],
        progress: Callable[[str], Progress | None],
        faults: Faults,
        *,
        tunes_links: bool = True,
        rules: MachineRules = HERE_ONLY,
    ) -> None:
        self._database, self._queue, self._claims, self._lease = database, queue, claims, lease
        self._tunes_links, self._rules_of_machines = tunes_links, rules
        self._binder, self._fail, self._progress, self._faults = binder, fail, progress, faults
        #: Connections of the jobs that were read last which have written, as tenant and name.
        self._proven: set[tuple[str, str]] = set()
        #: Charges of the latest runs of jobs that have just ended or failed [USD].
        self._spent_usd: dict[str, float] = {}
        #: Waiting jobs that cannot be scheduled because of an error in their rows, with the reasons.
        self._unusable: list[tuple[JobRow, str]] = []
        self._binder_version = 0
        self._progress_again_s = self._withheld_again_s = self._utilisation_again_s = self._first_again_s = 0.0
        self._withheld_gbps: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()
        self._epoch: int | None = None
        self._scheduler: Scheduler | None = None
        self._rules = RuleReader()
        self._seen: dict[str, SeenJob] = {}
        self._answer_again_s = 0.0
        self._answered_to = ""

    @property
    def is_scheduling(self) -> bool:
        """Return whether this server schedules."""
        return self._scheduler is not None

    def step(self) -> float:
        """Schedule once; return the seconds until there may be something to do. Raises StateError, ConfigError."""
        epoch = self._lease.hold()
        with self._lock:
            if epoch is None or epoch != self._epoch:
                self._forget()
                self._epoch = epoch
            if epoch is None:
                return float("inf")
            is_new = self._scheduler is None
            scheduler = self._scheduler = self._scheduler or Scheduler(self._binder, tunes_links=self._tunes_links)
        self._clear_auctions()
        ended = self._carried_out(scheduler, is_new)
        self._count_withheld()
        self._record_utilisation()
        for row, reason in ended:
            self._lease.progressed()
            self._fail(row, reason)
        self._answer()
        with self._lock:
            return max(0.0, self._scheduler.next_wakeup_s() - self._now_s()) if self._scheduler else 0.0

    def answer(self, job_id: str) -> tuple[str | None, Eta | None] | None:
        """Return why a job waits and when it ends, from the scheduler's own state.

        None if another server schedules, or a pass takes long or hangs: then the database has the latest answer.
        """
        if not self._lock.acquire(timeout=ANSWER_WAIT_S):
            return None
        try:
            if self._scheduler is None or self._scheduler.phase(job_id) is None:
                return None
            why = self._scheduler.why(job_id)
            return (None if why is None else why.sentence), self._scheduler.eta(job_id)
        finally:
            self._lock.release()

    def leave(self) -> None:
        """Let another server schedule, even if a pass hangs. Raises StateError."""
        if self._lock.acquire(timeout=LEAVE_WAIT_S):
            try:
                self._forget()
            finally:
                self._lock.release()
        self._lease.leave()

    def _now_s(self) -> float:
        """Return the Unix time by the database's clock [s]: waits that another server wrote are by it, too."""
        return self._database.clock.unix_s()

    def _forget(self) -> None:
        self._scheduler, self._rules, self._seen, self._unusable = None, RuleReader(), {}, []
        self._withheld_gbps = {}

    def _clear_auctions(self) -> None:
        """Clear the auctions whose hour has begun. Nothing is written without the lease."""
        with self._database.read() as connection:
            if not are_auctions_due(connection):
                return
        with self._database.write() as connection:
            if self._lease.is_held(connection):
                clear_auctions(connection, self._known_gbps)

    def _known_gbps(self, start: str, end: str) -> float | None:
        """Return the rate of a link. Auctions ask for each of their links."""
        self._lease.progressed()
        return self._binder.known_gbps(start, end)

    def _count_withheld(self) -> None:
        """Count what is withheld from winners of auctions, and refund it. Nothing is written without the lease."""
        now_s, scheduler = time.monotonic(), self._scheduler
        if scheduler is None or now_s < self._withheld_again_s:
            return
        self._withheld_again_s = now_s + WITHHELD_EVERY_S
        with self._database.read() as connection:
            if not are_hours_counted(connection):
                return
        with self._lock:
            before, self._withheld_gbps = self._withheld_gbps, scheduler.withheld_gbps()
        with self._database.write() as connection:
            if self._lease.is_held(connection):
                count_withheld(connection, before)

    def _record_utilisation(self) -> None:
        """Record how much of links and servers is in use. Nothing is written without the lease."""
        now_s, scheduler = time.monotonic(), self._scheduler
        if scheduler is None or now_s < self._utilisation_again_s:
            return
        self._utilisation_again_s = now_s + UTILISATION_EVERY_S
        with self._lock:
            used = scheduler.utilisation()
        with self._database.read() as connection:
            if not used and not has_utilisation(connection):
                return
        with self._database.write() as connection:
            if self._lease.is_held(connection):
                record_utilisation(connection, used, database_unix_ms(connection))

    def _carried_out(self, scheduler: Scheduler, is_new: bool) -> list[tuple[JobRow, str]]:
        """Learn what has changed, and carry the decisions out; return the jobs that have failed with the reasons.

        Requests wait for the scheduler only after all has been read.
        """
        is_complete = False
        try:
            news = self._read(scheduler, is_new)
            with self._lock:
                if self._scheduler is not scheduler:  # It has left meanwhile.
                    return []
                failed = self._carry_out(self._learn(scheduler, news, is_new))
                unusable, self._unusable = self._unusable, []
                is_complete = True
        finally:
            if not is_complete:
                # Each change is learned once: what was learned and not carried out would be lost, such as a ban.
                with self._lock:
                    self._forget()
        return failed + unusable

    def _read(self, scheduler: Scheduler, is_new: bool) -> News:
        """Return all that has changed since the last pass."""
        capacity = self._claims.capacity()
        with self._database.read() as connection:
            now_ms = self._database.read_clock(connection)
            rules = self._rules.changes(connection, now_ms, capacity.jobs_max)
            found = open_jobs(connection, self._seen.keys(), with_first=self._is_first_due())
            ended = ended_jobs(connection, self._seen.keys() - found.keys())
            self._spent_usd = run_costs(connection, ended)
            costs = costs_today(connection, now_ms / 1000) if is_new else []
            links = restored_links(connection) if is_new and self._tunes_links else []
            news = [one for one, seen in found.items() if self._is_news(scheduler.phase(one), one, *seen)]
            rows = [row for some in parts(news) for row in self._rows(connection, some)]
            self._spent_usd |= run_costs(connection, [row.id for row in rows if row.state == "waiting" and row.granted])
            self._proven = proven_connections(connection, now_ms, {row.tenant for row in rows})
            active = running_jobs(connection) if self._is_progress_due() else []
        events = [TimePassed(), *links, *costs, *rules, *self._route_events(), *self._progress_events(active)]
        return News(events, ended, rows)

    def _learn(self, scheduler: Scheduler, news: News, is_new: bool) -> list[Decision]:
        """Send the scheduler all that has changed, and return its decisions."""
        decisions: list[Decision] = []
        for event in [*news.events, *self._ends(news.ended), *self._job_events(news.rows, is_new)]:
            decisions += scheduler.handle(self._now_s(), event)
            self._lease.progressed()
        return decisions

    def _rows(self, connection: Connection, job_ids: Sequence[str]) -> list[JobRow]:
        self._lease.progressed()
        return JobQueue.rows(connection, job_ids)

    def _route_events(self) -> list[SchedulerEvent]:
        """Return an event if the rates of links have changed since the last pass. Without jobs they are not read."""
        if not self._seen:
            return []
        before, self._binder_version = self._binder_version, self._binder.version
        return [] if before == self._binder_version else [RoutesChanged()]

    def _is_first_due(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._first_again_s:
            return False
        self._first_again_s = now_s + FIRST_JOBS_EVERY_S
        return True

    def _is_progress_due(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._progress_again_s:
            return False
        self._progress_again_s = now_s + PROGRESS_EVERY_S
        return True

    def _progress_events(self, active: Sequence[tuple[str, str, int]]) -> Iterator[SchedulerEvent]:
        """Yield what running jobs have moved since they were granted their rates."""
        for job_id, engine_job, moved_before in active:
            self._lease.progressed()
            found = self._progress(engine_job)
            if found is not None and job_id in self._seen and found.bytes_done > moved_before:
                yield progressed(job_id, found, moved_before)

    def _is_news(self, phase: str | None, job_id: str, state: str, failures: str, routes: str | None) -> bool:
        """Return whether the row of a job differs from what the scheduler knows, which has it in a phase."""
        seen = self._seen.get(job_id)
        if seen is None or phase is None:
            return True
        if state == "waiting":
            return phase == RUNNING_PHASE or seen.failures != failures or seen.routes != routes
        if phase == RUNNING_PHASE:
            return state == "running" and seen.routes != routes
        return state in LEAVING

    def _ends(self, found: Mapping[str, tuple[str, str | None, int]]) -> Iterator[SchedulerEvent]:
        for job_id, (state, engine_job, moved_before) in sorted(found.items()):
            self._lease.progressed()
            del self._seen[job_id]
            if state != "done":
                yield JobCancelled(job_id, self._spent_usd.get(job_id))
                continue
            last = None if engine_job is None or not self._tunes_links else self._progress(engine_job)
            if last is not None:
                yield progressed(job_id, last, moved_before)
            moved_bytes = None if last is None else max(0, last.bytes_done - moved_before)
            yield RunEnded(job_id, moved_bytes, self._spent_usd.get(job_id))

    def _job_events(self, rows: Sequence[JobRow], is_new: bool) -> Iterator[SchedulerEvent]:
        """Yield the events of jobs that are new, or have changed. Jobs that run already come first.

        A waiting job whose row cannot be read is left out, and fails: it must not stop all others.
        """
        for row in sorted(rows, key=lambda one: (one.state == "waiting", one.id)):
            self._lease.progressed()
            if row.state != "waiting":
                yield from self._events_of(row, is_new)
                continue
            found: list[SchedulerEvent] = []
            with self._faults.caught("scheduling", recovers=False, passing=StateError, pause_s_max=0.0) as step:
                found = self._events_of(row, is_new)
            yield from found
            if step.error is not None:
                self._unusable.append((row, step.error))

    def _events_of(self, row: JobRow, is_new: bool) -> list[SchedulerEvent]:
        assert self._scheduler is not None
        seen, phase = self._seen.get(row.id), self._scheduler.phase(row.id)
        if seen is not None and phase == RUNNING_PHASE and row.state == "running":
            seen.routes = row.routes
            return [*rerouted(row)]
        if seen is not None and phase not in (None, RUNNING_PHASE) and _has_only_other_routes(seen, row):
            seen.routes = row.routes
            return [JobReplanned(service_job(row, self._proven, self._rules_of_machines))]
        now = SeenJob(row.failures, row.moved_bytes, row.waiting, None, row.routes)
        is_failed = seen is not None and seen.failures != row.failures and row.failure is not None
        events: list[SchedulerEvent] = []
        if seen is not None and phase == RUNNING_PHASE and row.state == "waiting" and is_failed:
            assert row.failure is not None
            moved_bytes = row.moved_bytes - seen.moved_bytes
            events.append(RunFailed(row.id, row.failure, moved_bytes, self._spent_usd.get(row.id)))
            if seen.routes != row.routes:
                events.append(JobReplanned(service_job(row, self._proven, self._rules_of_machines)))
        else:
            if phase is not None:
                events.append(JobCancelled(row.id, self._spent_usd.get(row.id)))
            if row.state == "waiting" and row.failures == "{}" and row.granted is None and not is_new:
                events.append(JobSubmitted(service_job(row, self._proven, self._rules_of_machines)))
            elif row.state == "waiting" or row.granted is not None:
                events += [restored(row, self._proven, self._rules_of_machines), *rerouted(row)]
        self._seen[row.id] = now
        return events

    def _carry_out(self, decisions: Sequence[Decision]) -> list[tuple[JobRow, str]]:
        """Write decisions; return the jobs that have failed with the reasons. Nothing is written without the lease."""
        if not decisions:
            return []
        failed: dict[str, str] = {}
        started: list[str] = []
        tunings: list[TuneLink] = []
        with self._database.write() as connection:
            if not self._lease.is_held(connection):
                self._forget()
                return []
            places = [json.loads(owned) for owned in connection.execute(ACTIVE_PLACES).scalars()]
            for decision in decisions:
                self._lease.progressed()
                if isinstance(decision, StartJob):
                    if self._start(connection, decision, places):
                        started.append(decision.job_id)
                    else:
                        tunings += self._not_started(decision.job_id)
                elif isinstance(decision, StopJob):
                    _stop(connection, decision)
                elif isinstance(decision, RebindJob):
                    _rebind(connection, decision)
                elif isinstance(decision, TuneLink):
                    tunings.append(decision)
                else:
                    reason = decision.reason
                    failed[decision.job_id] = (
                        reason[0].upper() + reason[1:] if isinstance(decision, RefuseJob) else reason
                    )
            record_tunings(connection, tunings, round(self._now_s() * 1000))
        for job_id in started:
            self._queue.tell_moved(job_id, "running")
        rows = {row.id: row for row in (self._queue.find(one) for one in failed) if row is not None}
        return [(row, failed[row.id]) for row in rows.values() if row.state == "waiting"]

    def _start(self, connection: Connection, start: StartJob, places: list[list[str]]) -> bool:
        """Let a waiting job run, unless an active one writes to its places; return whether it runs."""
        row = connection.execute(
            select(jobs.c.owned, charged_usd_micros(jobs.c.id), jobs.c.moved_bytes).where(
                jobs.c.id == start.job_id, jobs.c.state == "waiting"
            )
        ).first()
        if row is None or any(conflict(json.loads(row[0]), theirs) for theirs in places):
            return False
        if start.job_id in self._seen:
            self._seen[start.job_id].moved_bytes = row[2]
        now_ms = round(self._now_s() * 1000)
        granted = grant_document(start, int(row[1] or 0), now_ms)
        values = {"state": "running", "waiting": None, "owner": None, "granted": granted, "updated_unix_ms": now_ms}
        connection.execute(update(jobs).where(jobs.c.id == start.job_id).values(**values))
        places.append(json.loads(row[0]))
        add_event(connection, start.job_id, "running", None)
        return True

    def _not_started(self, job_id: str) -> list[TuneLink]:
        """Take a start back: the row has changed since it was read, so the next pass reads it again.

        Other jobs that this starts do so in the next pass, too. Decisions on links are returned.
        """
        assert self._scheduler is not None
        decisions = self._scheduler.handle(self._now_s(), JobCancelled(job_id))
        self._seen.pop(job_id, None)
        return [one for one in decisions if isinstance(one, TuneLink)]

    def _answer(self) -> None:
        """Write why jobs wait and when they end, for all servers. Only changes are written.

        Requests also ask the scheduler, so the lock is released after every few jobs.
        """
        began_s = time.monotonic()
        if self._scheduler is None or began_s < self._answer_again_s:
            return
        names = sorted(self._seen)
        later = [name for name in names if name > self._answered_to]
        chosen = later[:ANSWERS_AT_ONCE]
        # The last round ends the list, and the next one starts again.
        self._answered_to = chosen[-1] if len(later) > ANSWERS_AT_ONCE else ""
        reasons: dict[str, str] = {}
        ends: dict[str, tuple[int, int] | None] = {}
        for some in parts(chosen, ANSWERS_UNDER_LOCK):
            with self._lock:
                self._find_answers(some, reasons, ends)
            self._lease.progressed()
            time.sleep(ANSWER_PAUSE_S)
        if reasons:
            self._queue.set_waiting(reasons)
        for name, reason in reasons.items():
            self._seen[name].sentence = reason
        if ends:
            self._queue.set_ends(ends)
        for name, end in ends.items():
            self._seen[name].ends = end
        took_s = time.monotonic() - began_s
        self._answer_again_s = time.monotonic() + max(ANSWER_EVERY_S, took_s / ANSWER_SHARE)

    def _find_answers(
        self, names: Sequence[str], reasons: dict[str, str], ends: dict[str, tuple[int, int] | None]
    ) -> None:
        """Add the reasons and ends of jobs that differ from what was last written."""
        if self._scheduler is None:
            return
        now_ms = round(self._now_s() * 1000)
        for name in names:
            seen, why, eta = self._seen[name], self._scheduler.why(name), self._scheduler.eta(name)
            if why is not None and why.sentence != seen.sentence:
                reasons[name] = why.sentence
            end = None if eta is None else eta.unix_ms
            if _has_moved(seen.ends, end, now_ms):
                ends[name] = end


def _has_only_other_routes(seen: SeenJob, row: JobRow) -> bool:
    """Return whether a job waits as before, but for other routes."""
    return row.state == "waiting" and seen.failures == row.failures and seen.routes != row.routes


def _rebind(connection: Connection, rebound: RebindJob) -> None:
    """Record the routes that a running job uses now."""
    mine = jobs.c.id == rebound.job_id, jobs.c.granted.is_not(None)
    text = connection.execute(select(jobs.c.granted).where(*mine)).scalar()
    if text is not None:
        granted = rebound_document(json.loads(text), rebound.binding)
        connection.execute(update(jobs).where(*mine).values(granted=granted))


def _stop(connection: Connection, stop: StopJob) -> None:
    """Ask the owner of a running job to stop it."""
    change = update(jobs).where(jobs.c.id == stop.job_id, jobs.c.state == "running")
    values = {"state": "stopping", "waiting": stop.reason, "updated_unix_ms": database_clock_ms(connection)}
    if connection.execute(change.values(**values)).rowcount:
        add_event(connection, stop.job_id, "stopping", stop.reason)


def _has_moved(before: tuple[int, int] | None, end: tuple[int, int] | None, now_ms: int) -> bool:
    if before is None or end is None:
        return before != end
    room = max(1000.0, END_CHANGE_SHARE * max(0, end[1] - now_ms))
    return abs(end[0] - before[0]) > room or abs(end[1] - before[1]) > room
