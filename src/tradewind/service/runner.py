"""Runs the jobs of the service with the engine: starts them, resumes them after a crash, pauses and cancels them.

One thread decides which waiting job starts. Each active job has one more thread, which works until the job is in
another state. A job's proposal is recorded before it is started, and the engine starts a proposal once. So after a
crash the job's run is found by its proposal and resumed from its journal, and nothing is started twice.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

from tradewind.engine.attach import result_of
from tradewind.engine.engine import Engine
from tradewind.engine.job import Job
from tradewind.engine.proposal import Request
from tradewind.engine.request import Options
from tradewind.errors import (
    CeilingReached,
    GatewayLost,
    Interrupted,
    JobBusy,
    StateError,
    TradewindError,
    Unavailable,
    UsageError,
)
from tradewind.service.database import now_unix_ms
from tradewind.service.jobs import ACTIVE, JobQueue, JobRow
from tradewind.service.limits import ATTEMPTS_MAX, PASS_EVERY_S, RETRY_PAUSE_S
from tradewind.service.places import allowed_place, conflict
from tradewind.service.receipts import public_receipt
from tradewind.service.settings import ServiceSettings

__all__ = ["JobRunner", "engine_request"]

_LOG = logging.getLogger("tradewind.service")
#: Errors after which a job is tried again.
TEMPORARY = (Unavailable, GatewayLost, Interrupted, JobBusy, StateError)
#: Interval at which a job's thread looks for a change of its state.
LOOK_S = 0.1
#: Time for the threads of jobs to end when the server stops.
STOP_S = 60.0


def engine_request(document: Mapping[str, Any]) -> Request:
    """Return the engine's request for a job's document. Raises UsageError."""
    verb = document["verb"]
    options = Options(
        recursive=document["recursive"] or verb == "sync",
        compare="auto" if verb == "sync" else None,
        delete=document["delete"],
        delete_source=verb == "mv",
        verify=document["verify"],
        limit_bytes_per_s=document["limit_bytes_per_s"],
        stall_s=document["stall_s"],
        max_bytes=document.get("max_bytes"),
    )
    return Request(document["source"], tuple(document["destination"]), options, verb)


class JobRunner:
    """Runs jobs until it is closed. `changed` is called after each change that it makes."""

    def __init__(self, queue: JobQueue, settings: ServiceSettings) -> None:
        self._queue, self._settings = queue, settings
        self._engine = Engine(state_dir=settings.engine_state, gateway=settings.gateway)
        self._wake, self._closing = threading.Event(), threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        self._scheduler = threading.Thread(target=self._schedule, name="scheduler", daemon=True)

    @property
    def engine(self) -> Engine:
        """The engine that has the jobs' records."""
        return self._engine

    @property
    def is_alive(self) -> bool:
        """Return whether jobs are being scheduled."""
        return self._scheduler.is_alive() and not self._closing.is_set()

    def start(self) -> None:
        """Begin with the jobs that were active when the last server ended."""
        for row in self._queue.in_states(*ACTIVE):
            self._attend(row)
        self._scheduler.start()

    def wake(self) -> None:
        """Look at the jobs now: one was submitted or changed."""
        self._wake.set()

    def close(self) -> None:
        """Drain the running jobs; the next server resumes them."""
        self._closing.set()
        self._wake.set()
        if self._scheduler.ident is not None:
            self._scheduler.join(STOP_S)
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(STOP_S)
        self._engine.close()

    def _schedule(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(PASS_EVERY_S)
            self._wake.clear()
            if self._closing.is_set():
                return
            try:
                self._pass()
            except StateError as error:
                _LOG.error("scheduling: %s", error)

    def _pass(self) -> None:
        """Start the waiting jobs that may run, and record why the others wait.

        Jobs of the tenant with the fewest running jobs come first, then the oldest.
        """
        active = self._queue.in_states(*ACTIVE)
        for row in active:
            self._attend(row)
        running = Counter(row.tenant for row in active)
        waiting: dict[str, deque[JobRow]] = {}
        for row in self._queue.in_states("waiting"):
            waiting.setdefault(row.tenant, deque()).append(row)
        now, reasons = now_unix_ms(), {}
        while waiting:
            # A pass over thousands of jobs compares only the oldest job of each tenant.
            tenant = min(waiting, key=lambda one: (running[one], waiting[one][0].id))
            row = waiting[tenant].popleft()
            if not waiting[tenant]:
                del waiting[tenant]
            reason = self._why_not(row, active, now)
            if reason is None and self._queue.move(row.id, ("waiting",), "running"):
                active.append(row)
                running[row.tenant] += 1
                self._attend(row)
            elif reason is not None and reason != row.waiting:
                reasons[row.id] = reason
        if reasons:
            self._queue.set_waiting(reasons)

    def _why_not(self, row: JobRow, active: list[JobRow], now: int) -> str | None:
        """Return why a job cannot start now. It never names another tenant's job."""
        if row.not_before_unix_ms > now:
            return f"tried again after a temporary error: {row.error}"
        if len(active) >= self._settings.jobs_max:
            return f"all {self._settings.jobs_max} running jobs of the server are in use"
        for other in active:
            place = conflict(row.owned, other.owned)
            if place is not None:
                by = f"job {other.id}" if other.tenant == row.tenant else "another job"
                return f"{by} writes to {place}"
        return None

    def _attend(self, row: JobRow) -> None:
        """Give an active job a thread unless it has one."""
        with self._lock:
            if row.id in self._threads:
                return
            thread = threading.Thread(target=self._work, args=(row.id,), name=f"job {row.id}", daemon=True)
            self._threads[row.id] = thread
        thread.start()

    def _work(self, job_id: str) -> None:
        """Work on a job until it is not active any more, or the server ends."""
        steps: dict[str, Callable[[JobRow], None]] = {
            "running": self._run,
            "pausing": self._pause,
            "cancelling": self._cancel,
        }
        try:
            while not self._closing.is_set():
                row = self._queue.find(job_id)
                if row is None or row.state not in ACTIVE:
                    return
                steps[row.state](row)
        except StateError as error:
            _LOG.error("job %s: %s", job_id, error)
        except (TradewindError, OSError) as error:
            self._queue.move(job_id, ACTIVE, "failed", error=str(error))
        finally:
            with self._lock:
                del self._threads[job_id]
            self._wake.set()

    def _run(self, row: JobRow) -> None:
        """Run a job to its end, or until it is to pause or cancel."""
        try:
            job = self._started(row)
            if job.running is None:
                result_of(job.record)
            else:
                self._watch(row, job)
        except (TradewindError, OSError) as error:
            self._failed(row, error)
        else:
            self._end(self._queue.find(row.id) or row, "done", error=None, hint=None)

    def _end(self, row: JobRow, state: str, **fields: Any) -> None:
        """Record the end of a job, with its receipt."""
        found = self._found(row)
        text = None if found is None else json.dumps(public_receipt(row, state, found.receipt()))
        self._queue.move(row.id, ACTIVE, state, receipt=text, **fields)

    def _started(self, row: JobRow) -> Job:
        """Return the engine's job: started, resumed, or as it ended. Raises TradewindError."""
        found = self._found(row)
        if found is not None:
            return found.resume() if found.state not in ("done", "cancelled") else found
        document = dict(row.request)
        for place in (document["source"], *document["destination"]):
            if allowed_place(place, self._settings) != place:
                raise UsageError(f"{place}: a part of the path has become a link", hint="submit the job again")
        job = self._start_quoted(row) or self._start_new(row, document)
        self._queue.note(row.id, engine_job=job.id)
        return job

    def _start_quoted(self, row: JobRow) -> Job | None:
        """Return the job of a quote's proposal; None without a quote, or if the proposal can no longer be started."""
        if row.proposal is None or row.request.get("quote") is None:
            return None
        try:
            return self._engine.start(row.proposal)
        except UsageError as error:
            _LOG.warning("job %s is proposed again, at the price of its quote: %s", row.id, error)
            return None

    def _start_new(self, row: JobRow, document: Mapping[str, Any]) -> Job:
        proposal = self._engine.propose(engine_request(document), keep=True)
        self._queue.note(row.id, proposal=proposal.id)
        return self._engine.start(proposal)

    def _found(self, row: JobRow) -> Job | None:
        """Return the engine's job of an earlier run, which a killed server may not have recorded."""
        if row.engine_job is not None:
            return self._engine.job(row.engine_job)
        found = None if row.proposal is None else self._engine.started(row.proposal)
        if found is not None:
            self._queue.note(row.id, engine_job=found.id)
        return found

    def _watch(self, row: JobRow, job: Job) -> None:
        """Wait for the end of a running job; drain it when its state changes or the server ends.

        Raises the TransferError of its outcome.
        """
        running, is_draining = job.require_running(), False
        while not running.wait_ended(LOOK_S):
            now = self._queue.find(row.id)
            is_wanted = not self._closing.is_set() and now is not None and now.state == "running"
            if not is_wanted and not is_draining:
                running.drain()
                is_draining = True
        running.close()
        running.result()

    def _failed(self, row: JobRow, error: TradewindError | OSError) -> None:
        hint = getattr(error, "hint", None)
        if isinstance(error, CeilingReached) and row.request.get("quote") is not None:
            error, hint = UsageError("the source has grown beyond its quote"), "make a new quote for the rest"
        if isinstance(error, TEMPORARY):
            if self._closing.is_set():
                return  # The next server resumes it.
            now = self._queue.find(row.id)
            if now is None or now.state != "running":
                return  # It was drained to be paused or cancelled.
            if row.attempts + 1 < ATTEMPTS_MAX:
                pause_ms = round(RETRY_PAUSE_S * 2**row.attempts * 1000)
                self._queue.move(
                    row.id,
                    ("running",),
                    "waiting",
                    waiting=f"tried again after a temporary error: {error}",
                    error=str(error),
                    attempts=row.attempts + 1,
                    not_before_unix_ms=now_unix_ms() + pause_ms,
                )
                return
        self._end(self._queue.find(row.id) or row, "failed", error=str(error), hint=_service_hint(hint))

    def _pause(self, row: JobRow) -> None:
        """Complete a pause. The run has been drained, or its server was killed."""
        found = self._found(row)
        if found is not None and found.state == "done":
            self._end(row, "done")
            return
        self._queue.move(row.id, ("pausing",), "paused")

    def _cancel(self, row: JobRow) -> None:
        """Complete a cancellation: abort the unfinished uploads."""
        found = self._found(row)
        try:
            if found is not None and found.state != "cancelled":
                found.cancel()
        except UsageError:
            self._end(row, "done")  # It was done before.
            return
        except (TradewindError, OSError) as error:
            _LOG.warning("job %s: cancelling: %s", row.id, error)
            self._closing.wait(RETRY_PAUSE_S)
            return
        self._end(row, "cancelled")


def _service_hint(hint: str | None) -> str | None:
    """Return a hint without the commands of a local user."""
    return None if hint is None or "tradewind jobs" in hint else hint
