"""The work on one job that this server has: it is started or resumed, watched, and ended, paused or given back.

A job's proposal is recorded before it is started, and the engine starts a proposal once. So after a crash the job's run
is found by its proposal and resumed from its journal, and nothing is started twice.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from tradewind.engine.attach import result_of
from tradewind.engine.engine import Engine
from tradewind.engine.event_store import read_events, read_progress
from tradewind.engine.job import Job
from tradewind.errors import (
    CeilingReached,
    CredentialsNotSent,
    DeadlineMissed,
    GatewayLost,
    Interrupted,
    JobBusy,
    JobFailed,
    JobNotFound,
    JobUnreadable,
    MachinesMayRun,
    SomeObjectsFailed,
    StateError,
    TradewindError,
    Unavailable,
    UsageError,
)
from tradewind.fleet.given import GivenCredentials
from tradewind.fleet.source_counts import sent_bytes
from tradewind.model.event import Progress
from tradewind.model.guest import Guest
from tradewind.service.awaited_guest import AwaitedGuest
from tradewind.service.connections import ConnectionBook, named_in_error
from tradewind.service.database import ServiceDatabase, database_unix_ms
from tradewind.service.down_stores import first_down, note_down
from tradewind.service.engine_request import engine_request, granted_bytes_per_s, guest_of, limited
from tradewind.service.failures import failure_kind, is_state_full, tenant_error
from tradewind.service.faults import Faults
from tradewind.service.granted_routes import RoutesNotGranted, granted_links, require_granted
from tradewind.service.job_routes import RoutesInUse, planned_routes
from tradewind.service.job_traces import JobTraces
from tradewind.service.jobs import JobLease, JobQueue, JobRow, LeaseLost
from tradewind.service.leases import LeaseKeeper
from tradewind.service.limits import RETRY_PAUSE_S
from tradewind.service.link_decisions import record_gateway_decisions
from tradewind.service.links import scheduled_links
from tradewind.service.operator_rules import ClosedToRun, PresentRules, operator_rules
from tradewind.service.places import require_same_places
from tradewind.service.receipts import public_receipt
from tradewind.service.routes_recorder import RoutesRecorder
from tradewind.service.scheduler.retry import CLASSES, STORE_DOWN, retry_wait_s
from tradewind.service.settings import ServiceSettings
from tradewind.service.tables import ACTIVE
from tradewind.service.told import hides_words, told_document

__all__ = ["OWN_PAUSE_S", "JobWorker"]

_LOG = logging.getLogger("tradewind.service")
#: Errors after which a job is tried again.
TEMPORARY = (Unavailable, GatewayLost, Interrupted)
#: Errors of the service itself, which use none of a job's attempts: a database that does not answer or is full, or an
#: earlier owner of the job whose processes have not ended yet.
OWN = (StateError, JobBusy)
INTERNAL_ERROR = "internal error of the service"
#: Hint if machines may not get the keys of a store of the server.
SHARING_HINT = "the operator can restart the service with --share-keys"
#: Commands and options of a local user. The service has no `allow_empty`, and `tradewind ls` does not reach its sites.
LOCAL_WORDS = ("tradewind jobs", "tradewind ls", "--allow-empty")
#: State of a job after its run was drained, by its state before.
DRAINED = {"pausing": "paused", "stopping": "waiting"}
#: Attempts to abort what earlier hosts of a guest have left.
ABORT_TRIES = 3
#: Pause after an error of the service itself.
OWN_PAUSE_S = 1.0
#: Interval at which a job's thread looks for a change of its state, which `LeaseKeeper` reads as often.
LOOK_S = 0.25


class JobWorker:
    """Works on the jobs of one server, each in a thread of the caller, until `closing` is set."""

    def __init__(
        self,
        database: ServiceDatabase,
        queue: JobQueue,
        leases: LeaseKeeper,
        engine: Engine,
        settings: ServiceSettings,
        connections: ConnectionBook,
        faults: Faults,
        traces: JobTraces | None,
        closing: threading.Event,
    ) -> None:
        self._database, self._queue, self._leases, self._engine = database, queue, leases, engine
        self._settings, self._connections, self._faults, self._traces = settings, connections, faults, traces
        self._closing = closing
        self._rules = PresentRules(database, faults)

    def fail(self, row: JobRow, reason: str) -> None:
        """End a waiting job for good. Raises StateError."""
        error, text = reason if row.error is None else f"{row.error}; {reason}", None
        try:
            found = None if row.engine_job is None else self._engine.job(row.engine_job)
            text = None if found is None else self._receipt(row, "failed", found)
        except (JobNotFound, JobUnreadable) as unknown:
            # Its runs were charged when they ended. It must not stop the scheduling of all other jobs.
            _LOG.warning("job %s has no receipt: %s", row.id, unknown)
        self._queue.move(row.id, ("waiting",), "failed", receipt=text, error=error, hint=_service_hint(row.hint))

    def progress(self, engine_job: str) -> Progress | None:
        """Return the newest progress of a job's latest run, on any server; None without any. Raises StateError."""
        line = read_progress(self._engine.control.store.database, engine_job)
        return None if line is None else Progress.from_document(json.loads(line))

    def work(self, lease: JobLease) -> None:
        """Work on a job until it is not active any more, or the server ends. Raises LeaseLost."""
        while not self._closing.is_set() and self._step(lease):
            pass

    def _step(self, lease: JobLease) -> bool:
        """Do what the state of a job asks for; return whether it is still active. Raises LeaseLost."""
        try:
            return self._step_or_fail(lease)
        except OWN as error:
            _LOG.warning("job %s: %s", lease.job, error)
            self._closing.wait(OWN_PAUSE_S)
            return True

    def _step_or_fail(self, lease: JobLease) -> bool:
        """Do what `_step` does, and fail a job whose step has an unexpected error.

        Raises LeaseLost, StateError, JobBusy.
        """
        steps: dict[str, Callable[[JobRow, JobLease], None]] = {
            "running": self._run,
            "pausing": self._drained,
            "stopping": self._drained,
            "cancelling": self._cancel,
        }
        try:
            row = self._queue.find(lease.job)
            if row is None or row.state not in ACTIVE or row.owner is None:
                return False  # It has ended, or was given back, and may be started again.
            if (row.owner, row.epoch) != (lease.owner, lease.epoch):
                raise LeaseLost(lease.job)
            self._leases.state(lease)
            steps[row.state](row, lease)
        except (*OWN, LeaseLost):
            raise
        except (TradewindError, OSError) as error:
            self._fail_active(lease, str(error if row is None else self._told(row, error)))
        except Exception as error:  # noqa: BLE001
            # A fault of the program in one job must neither stop the others nor be tried for ever.
            fault = self._faults.record("jobs", error, pause_s_max=0.0)
            _LOG.error("job %s failed by fault %s", lease.job, fault)
            self._fail_active(lease, f"{INTERNAL_ERROR} (fault {fault})")
        return True

    def _fail_active(self, lease: JobLease, error: str) -> None:
        """Fail an active job after an unexpected error, and charge what it has moved.

        Raises LeaseLost, StateError, JobBusy.
        """
        row = self._queue.find(lease.job)
        if row is None:
            return
        try:
            self._end(row, lease, "failed", error=error, hint=None)
        except (*OWN, LeaseLost):
            raise
        except Exception as fault:  # noqa: BLE001
            # The fault may be in the receipt itself. The job must end nevertheless, and is not charged.
            name = self._faults.record("jobs", fault, pause_s_max=0.0)
            _LOG.error("job %s has no receipt and is not charged, by fault %s", lease.job, name)
            self._queue.move(lease.job, ACTIVE, "failed", lease=lease, error=error)

    def _run(self, row: JobRow, lease: JobLease) -> None:
        """Run a job to its end, or until it is to pause or cancel. Raises LeaseLost, StateError, JobBusy."""
        guest = AwaitedGuest(self._queue, lease, row.request)
        is_to_stop = partial(self._is_to_stop, lease, guest)
        try:
            job = self._started(row, lease, is_to_stop)
            if job.running is None:
                result_of(job.record)
            else:
                guest.began(job.folder)
                try:
                    self._watch(job, lease, is_to_stop, row)
                finally:
                    guest.note_sent()
        except RoutesNotGranted as planned:
            self._queue.move(row.id, ("running",), "waiting", lease=lease, routes=planned.routes.text())
        except DeadlineMissed:
            self._end(row, lease, "done", error=None, hint=None)  # With the reason that `_end` adds.
        except OWN:
            raise
        except (TradewindError, OSError) as error:
            if is_state_full(error):
                raise StateError(_space_text(error)) from error
            self._leases.state(lease)
            self._failed(row, lease, error)
        else:
            self._end(row, lease, "done", error=None, hint=None)

    def _is_to_stop(self, lease: JobLease, guest: AwaitedGuest) -> bool:
        """Return whether the run of a job must end: its state has changed, its lease is lost, or the server ends."""
        guest.look()
        try:
            return self._closing.is_set() or self._leases.state(lease) != "running"
        except LeaseLost:
            return True

    def _end(
        self, row: JobRow, lease: JobLease, state: str, *, recorded_bytes: int | None = None, **fields: Any
    ) -> None:
        """Record the end of a job, with its receipt. `recorded_bytes` are those of a journal that has been emptied."""
        found = self._found(self._queue.find(row.id) or row, lease)
        self._end_machines(row, found, lease)
        if state == "done" and found is not None and found.record.progress.bytes_done:
            self._connections.note_written(row.tenant, row.request)
        if state == "done" and found is not None:
            late = None if found.deadline is None else found.deadline.late_text
            left = None if row.request.get("guest") is None else self._aborting_error(row, found)
            fields["error"] = late or left
        text = None if found is None else self._receipt(row, state, found, recorded_bytes)
        self._queue.move(row.id, ACTIVE, state, lease=lease, receipt=text, **fields)

    def _aborting_error(self, row: JobRow, job: Job) -> str | None:
        """Abort the uploads that earlier hosts of a guest have left; return why they stay, if they do.

        The job is done nevertheless: its objects are there. Raises StateError.
        """
        text = ""
        for _ in range(ABORT_TRIES):
            try:
                use = self._connections.use_of(row.tenant, row.request)
                job.abort_left_uploads(None if use is None else use.credentials)
            except OWN:
                raise
            except (TradewindError, OSError) as error:
                text = f"unfinished uploads of an earlier host stay: {self._told(row, error)}"
                _LOG.warning("job %s: %s", row.id, text)
                if self._closing.wait(RETRY_PAUSE_S):
                    raise StateError("the server ends") from error
            else:
                return None
        return text

    def _end_machines(self, row: JobRow, job: Job | None, lease: JobLease) -> None:
        """End what a killed server has left of a job's machines.

        Raises JobBusy while its processes end, StateError if this server must leave the job to the next one meanwhile.
        """
        if job is None:
            return

        def is_to_leave() -> bool:
            try:
                self._leases.state(lease)
            except LeaseLost:
                return True
            return self._closing.is_set()

        try:
            job.end_machines(is_to_leave)
        except OWN:
            raise
        except Interrupted as error:
            raise StateError(f"job {row.id}: the next server ends its machines") from error
        except (TradewindError, OSError) as error:
            _LOG.warning("job %s: its machines may run until their leases end: %s", row.id, error)

    def _started(self, row: JobRow, lease: JobLease, is_to_stop: Callable[[], bool]) -> Job:
        """Return the engine's job: started, resumed, or as it ended.

        Raises TradewindError, LeaseLost, RoutesNotGranted.
        """
        found = self._found(row, lease)
        if found is None and row.engine_job is not None:
            # What it has cost counts towards its ceiling, so it does not begin anew.
            raise UsageError("the record of this job's earlier run was removed", hint="submit it as a new job")
        if found is not None and found.state in ("done", "cancelled"):
            return found
        require_same_places(row.request, self._settings, row.tenant)
        use = self._connections.use_of(row.tenant, row.request)
        credentials = None if use is None else use.credentials
        guest = guest_of(row.request, self._settings.guest_addresses)
        if found is not None:
            self._trace_lost_run(row, found)
            self._plan_around_closed(row, found, is_to_stop)
            return found.resume(
                guest=guest,
                credentials=credentials,
                limit_bytes_per_s=granted_bytes_per_s(row.granted),
                is_to_stop=is_to_stop,
            )
        job = self._started_before(row, lease, guest, credentials, is_to_stop)
        if job is None:
            wanted = engine_request(limited(row.request, row.granted), use, self._settings.machines, guest)
            with self._database.read() as connection:
                rules = operator_rules(connection)
            proposal = rules.proposed(self._engine, wanted, credentials)
            try:
                direct = scheduled_links(row.request)[0][0]
                require_granted(row, planned_routes(proposal.plan, direct), rules.closed)
                self._engine.keep(proposal)
            except BaseException:
                proposal.drop()
                raise
            self._queue.note(lease, proposal=proposal.id)
            self._leases.state(lease)
            job = self._engine.start(proposal, credentials=credentials, is_to_stop=is_to_stop)
        with _ended_on_error(job):
            self._queue.note(lease, engine_job=job.id)
        return job

    def _plan_around_closed(self, row: JobRow, job: Job, is_to_stop: Callable[[], bool]) -> None:
        """Plan the rest of a job on machines again, if its plan uses what is closed now.

        Raises TradewindError, RoutesNotGranted.
        """
        with self._database.read() as connection:
            rules = operator_rules(connection)
        plan = self._engine.control.plan_around(job.id, rules.closed_places, is_to_stop)
        require_granted(row, planned_routes(plan, scheduled_links(row.request)[0][0]), rules.closed)

    def _started_before(
        self,
        row: JobRow,
        lease: JobLease,
        guest: Guest | None,
        credentials: GivenCredentials | None,
        is_to_stop: Callable[[], bool],
    ) -> Job | None:
        """Start the proposal of a quote, or of an earlier owner, which may do the same now; the engine starts it once.

        None without a proposal, or if it can no longer be started. Raises JobBusy if the other one has started it.
        """
        if row.proposal is None:
            return None
        self._leases.state(lease)
        try:
            return self._engine.start(
                row.proposal,
                guest=guest,
                credentials=credentials,
                limit_bytes_per_s=granted_bytes_per_s(row.granted),
                is_to_stop=is_to_stop,
            )
        except UsageError as error:
            if self._job_of(row.proposal) is not None:
                raise JobBusy(f"job {row.id} was just started by its earlier owner") from None
            if row.request.get("quote") is not None:
                _LOG.warning("job %s is proposed again, at the price of its quote: %s", row.id, error)
            return None

    def _found(self, row: JobRow, lease: JobLease) -> Job | None:
        """Return the engine's job of an earlier run, which a killed server may not have recorded.

        None without one, or if it was removed: the engine prunes the oldest jobs that failed before they began.
        """
        if row.engine_job is not None:
            with suppress(JobNotFound):
                return self._engine.job(row.engine_job)
            return None
        found = None if row.proposal is None else self._job_of(row.proposal)
        if found is not None:
            self._queue.note(lease, engine_job=found.id)
        return found

    def _job_of(self, proposal: str) -> Job | None:
        """Return the engine's job that was made of a proposal; None without one, or if it was forgotten since.

        A job that cannot begin is forgotten. If the disk is full at that time, its record stays without its folder.
        """
        with suppress(JobNotFound):
            return self._engine.started(proposal)
        return None

    def _trace_lost_run(self, row: JobRow, job: Job) -> None:
        """Trace the latest run of a job if its server was killed, because only its successor can."""
        run = job.latest_run() if self._traces is not None and row.traceparent is not None else None
        if self._traces is not None and run is not None and run.ended_unix_ms is None:
            self._traces.run_ended(row.id, row.traceparent, job)

    def _watch(self, job: Job, lease: JobLease, is_to_stop: Callable[[], bool], row: JobRow) -> None:
        """Wait for the end of a running job; drain it when its state changes or the server ends.

        It leaves what operators close meanwhile. Routes that change are noted for the scheduler.

        Raises the TransferError of its outcome; LeaseLost after all its processes have been ended.
        """
        running, is_draining, began_s = job.require_running(), False, time.monotonic()
        routes = RoutesInUse(granted_links(row), scheduled_links(row.request)[0][0])
        recorder = RoutesRecorder(routes, lambda found: self._queue.note(lease, routes=found.text()), self._faults)
        closed = ClosedToRun(row.granted, running.close_places)
        try:
            with _ended_on_error(job):
                while not running.wait_ended(LOOK_S):
                    self._leases.state(lease)
                    recorder.look(running.present_plan)
                    if running.present_plan.overlay is not None and (rules := self._rules.latest(began_s)) is not None:
                        closed.look(rules, routes.links)
                    if is_to_stop() and not is_draining:
                        running.drain()
                        is_draining = True
            try:
                running.close()
            except MachinesMayRun as error:
                _LOG.error("job %s: %s", lease.job, error)  # Its objects are there, and its user cannot end machines.
            self._note_limits(job, lease)
        finally:
            if self._traces is not None:
                self._traces.run_ended(lease.job, row.traceparent, job)
        running.result()

    def _note_limits(self, job: Job, lease: JobLease) -> None:
        """Record how the gateways of a run have tuned themselves, for the links of the job."""
        if not self._settings.tunes_links:
            return
        changes = job.limit_changes()
        granted = None if not changes else getattr(self._queue.find(lease.job), "granted", None)
        if granted is None:
            return
        with self._database.write() as connection:
            now_ms = database_unix_ms(connection)
            record_gateway_decisions(connection, lease, json.loads(granted)["links"], changes, now_ms)

    def _failed(self, row: JobRow, lease: JobLease, error: TradewindError | OSError) -> None:
        if isinstance(error, (SomeObjectsFailed, JobFailed)):
            self._log_object(self._queue.find(row.id) or row)
        error = self._told(row, named_in_error(error, row.request))
        hint = SHARING_HINT if isinstance(error, CredentialsNotSent) else getattr(error, "hint", None)
        found = self._found(row, lease) if isinstance(error, CeilingReached) else None
        if found is not None and row.request.get("quote") is not None and found.record.document["ceiling"] is None:
            error, hint = UsageError("the source has grown beyond its quote"), "make a new quote for the rest"
        now = self._queue.find(row.id)
        if isinstance(error, TEMPORARY) and (self._closing.is_set() or now is None or now.state != "running"):
            return  # The next server resumes it; or it was drained to be paused, stopped or cancelled.
        kind = self._failure_kind(row, error)
        if kind == STORE_DOWN or CLASSES[kind].attempts:
            self._return(now, lease, kind, error)
            return
        self._end(row, lease, "failed", error=str(error), hint=_service_hint(hint))

    def _failure_kind(self, row: JobRow, error: TradewindError | OSError) -> str:
        """Return the retry class of an error. A store that does not answer is recorded, and uses no attempt."""
        kind = failure_kind(error)
        if isinstance(error, Unavailable) and kind == "transient":
            down = first_down(self._settings.gateway, self._connections.asked_stores(row.tenant, row.request))
            if down is not None:
                note_down(self._database, down)
                return STORE_DOWN
        return kind

    def _return(self, row: JobRow | None, lease: JobLease, kind: str, error: TradewindError | OSError) -> None:
        """Give a job back to the scheduler, which tries it again or fails it."""
        if row is None:
            return
        failures = json.loads(row.failures)
        count = failures[kind] = failures.get(kind, 0) + 1
        wait_s = retry_wait_s(CLASSES[kind], row.id, count) if kind in CLASSES else 0.0
        found = self._found(row, lease)
        self._end_machines(row, found, lease)
        self._queue.move(
            row.id,
            ("running",),
            "waiting",
            lease=lease,
            error=str(error),
            hint=_service_hint(getattr(error, "hint", None)),
            failures=json.dumps(failures),
            failure=kind,
            attempts=sum(failures[name] for name in failures.keys() & CLASSES.keys()),
            **self._after_run(row, found, "waiting"),
            not_before_unix_ms=self._database.clock_ms + round(wait_s * 1000),
        )

    def _drained(self, row: JobRow, lease: JobLease) -> None:
        """Complete a pause, or a stop by the scheduler. The run has been drained, or its server was killed."""
        found = self._found(row, lease)
        if found is not None and found.state == "done":
            self._end(row, lease, "done")
            return
        self._end_machines(row, found, lease)
        state = DRAINED[row.state]
        self._queue.move(row.id, (row.state,), state, lease=lease, **self._after_run(row, found, state))

    def _after_run(self, row: JobRow, found: Job | None, state: str) -> dict[str, Any]:
        """Return what is recorded of a job that may run again: what it has moved, and the receipt for its charge."""
        if found is None:
            return {}
        moved_bytes = max(row.moved_bytes, found.record.progress.bytes_done)
        return {"moved_bytes": moved_bytes, "receipt": self._receipt(row, state, found)}

    def _receipt(self, row: JobRow, state: str, found: Job, recorded_bytes: int | None = None) -> str:
        hides = hides_words(row.request, self._settings)
        return _last_receipt(row, state, found, hides_words=hides, recorded_bytes=recorded_bytes)

    def _told(self, row: JobRow, error: TradewindError | OSError) -> TradewindError | OSError:
        """Return an error as the job's tenant may read it. What is left out is logged for the operator."""
        told = tenant_error(error, hides_words=hides_words(row.request, self._settings))
        if str(told) != str(error):
            hint = getattr(error, "hint", None)
            _LOG.error("job %s: %s%s", row.id, error, "" if hint is None else f"; {hint}")
        return told

    def _log_object(self, row: JobRow) -> None:
        """Log why the first object of a run failed, if the job's tenant does not read it."""
        if row.engine_job is None or not hides_words(row.request, self._settings):
            return
        database = self._engine.control.store.database
        for _, document, _ in read_events(database, row.engine_job, kinds=("object_failed",), most=1):
            if told_document(document) != document:
                _LOG.error("job %s: %s", row.id, document.get("message"))

    def _cancel(self, row: JobRow, lease: JobLease) -> None:
        """Complete a cancellation: abort the unfinished uploads."""
        found = self._found(row, lease)
        try:
            use = self._connections.use_of(row.tenant, row.request)
        except UsageError as error:
            self._end(row, lease, "cancelled", error=f"its unfinished uploads stay: {error}")
            return
        recorded_bytes = None if found is None else found.recorded_bytes
        try:
            if found is not None and found.state != "cancelled":
                found.cancel(None if use is None else use.credentials)
        except UsageError:
            self._end(row, lease, "done")  # It was done before.
            return
        except OWN:
            raise
        except (TradewindError, OSError) as error:
            _LOG.warning("job %s: cancelling: %s", row.id, error)
            self._closing.wait(RETRY_PAUSE_S)
            return
        self._end(row, lease, "cancelled", recorded_bytes=recorded_bytes)


def _last_receipt(row: JobRow, state: str, found: Job, *, hides_words: bool, recorded_bytes: int | None = None) -> str:
    """Return the receipt of a run that has ended, by which it is charged. `recorded_bytes` are those of its journal."""
    recorded, receipt = found.recorded_bytes if recorded_bytes is None else recorded_bytes, found.receipt()
    if recorded is None and (row.request.get("guest") or {}).get("side") != "source":
        # The journal cannot be read now. Only the bytes of one run are known to differ. A later run charges the rest.
        recorded = max((run["moved_bytes"] or 0 for run in receipt["runs"]), default=0)
    sent = None if row.request.get("guest") is None else sent_bytes(found.folder)
    deadline = None if found.deadline is None else found.deadline.document()
    counted = {"recorded_bytes": recorded, "guest_sent_bytes": sent, "deadline": deadline}
    return json.dumps({**public_receipt(row, state, receipt, hides_words=hides_words), **counted})


def _space_text(error: TradewindError | OSError) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'the state folder'}: {error.strerror}"
    return str(error)


@contextmanager
def _ended_on_error(job: Job) -> Iterator[None]:
    """End all processes of a job's run before an error leaves the block: a lost lease must not leave a run behind."""
    try:
        yield
    except BaseException:
        if job.running is not None:
            job.running.kill()
            job.running.close()
        raise


def _service_hint(hint: str | None) -> str | None:
    """Return a hint, unless it names what only the command line of a local user has."""
    return None if hint is None or any(words in hint for words in LOCAL_WORDS) else hint
