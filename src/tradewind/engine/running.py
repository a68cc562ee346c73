"""A running job: its supervisor runs in its own thread, whether or not its events are read.

Four kinds of thread meet here. The *reader* of the present lead turns its events into entries of the inbox. The
*supervisor* takes them one by one, asks the state machine in `engine.supervisor` what to do, and writes the event
log. *Workers* do slow work: asking a lead to drain, restarting gateways. The caller's threads read the log, and may
request a drain or an end at any moment.
"""

from __future__ import annotations

import json
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.engine.deadline import JobDeadline
from tradewind.engine.event_log import EventLog
from tradewind.engine.event_store import EventStore
from tradewind.engine.gateways import JobGateways, boots_of
from tradewind.engine.jobs import JobStore, done_line
from tradewind.engine.learning import RouteWatch, measurable_hops, moving, record_samples
from tradewind.engine.ledger import JobLedger
from tradewind.engine.result import Result, outcome_error, resume_hint, stopped_error
from tradewind.engine.run_end import Held, forget_lead, record_outcome
from tradewind.engine.stored import recorded_plan
from tradewind.engine.supervisor import (
    CEILING_END_S,
    RESTARTS_MAX,
    Action,
    Drain,
    DrainAsked,
    Finish,
    LeadEnded,
    LeadSaid,
    Publish,
    Restart,
    Restarted,
    RestartFailed,
    Supervisor,
    Tick,
)
from tradewind.engine.supervisor import Event as SupervisorEvent
from tradewind.errors import (
    ConfigError,
    GatewayError,
    GatewayLost,
    GuestAbsent,
    Interrupted,
    MachinesMayRun,
    StateError,
    TradewindError,
    TransferError,
    recorded_text,
)
from tradewind.fleet.boots import Boot
from tradewind.fleet.journal import FleetJournal
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.process import STOP_S, kill_started
from tradewind.model.clock import elapsed_s
from tradewind.model.event import Event, Progress, Summary, event_from_document
from tradewind.model.job import JobSpec
from tradewind.model.latch import Latch
from tradewind.model.ledger import Ledger
from tradewind.model.locks import FileLock
from tradewind.model.plan import Plan
from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.engine.adapt import Adaptation
    from tradewind.engine.closed import ClosedPlaces
    from tradewind.fleet.remains import Look, Remains

__all__ = [
    "EventCallback",
    "Restarter",
    "RunningJob",
    "kill_started",
    "kill_unclosed",
]

EventCallback = Callable[[Event], None]
#: Starts new gateways for a job and its plan; they resume from the journal. Raises Interrupted, with none of them left,
#: once the last argument returns true.
Restarter = Callable[[JobSpec, Plan, Callable[[], bool]], JobGateways]
#: Timeout for a lead's process to end after its events ended early, so that its exit code can be reported.
ENDING_S = 5.0
#: Time for the gateways of a job that is done to end by themselves. They have nothing to save, so a frozen one must
#: not hold up the job.
DONE_STOP_S = 1.5
#: Interval of the supervisor's clock: it keeps ceilings even without progress events.
TICK_S = 0.5
#: Maximum events in the inbox; beyond it the lead's reader waits and the lead buffers them.
INBOX_MAX = 1024
#: Interval at which a lead's reader checks a full inbox for room.
INBOX_FULL_S = 0.02
#: Maximum wait of `kill` for the supervisor; the processes are gone before.
KILLED_S = 10.0
#: The part of it in which a restart under way may end.
KILLED_RESTART_S = 8.0

#: Jobs whose processes have not ended yet.
_unclosed: set[RunningJob] = set()


class RunningJob:
    """A running job. Its ceiling, restarts and changes of its plan do not depend on a reader of its events, and its
    processes end with it. `close()` ends them in any case.

    Any thread may call `drain` and `kill`. A lead that dies is restarted, at most RESTARTS_MAX times.
    """

    def __init__(
        self,
        job_id: str,
        spec: JobSpec,
        plan: Plan,
        gateways: JobGateways,
        log: EventLog,
        *,
        restart: Restarter | None,
        keep_logs: bool,
        catalog_folder: Path | None = None,
        ledger: JobLedger,
        lock: FileLock,
        adaptation: Adaptation | None = None,
        store: JobStore,
        events: EventStore | None = None,
        deadline_s: float | None = None,
        begun_s: float = 0.0,
        remains: Sequence[Remains] = (),
    ) -> None:
        """Begin to follow the lead. `remains` are what killed runs of the job have left."""
        self.id = job_id
        self.spec = spec
        #: The plan with which this run began; `replan` may have changed the present one.
        self.plan = plan
        self.summary: Summary | None = None
        #: The lead's last line, unchanged; None until it arrives.
        self.summary_document: Mapping[str, Any] | None = None
        self._gateways, self._log, self._restart = gateways, log, restart
        self._keep_logs, self._catalog_folder = keep_logs, catalog_folder
        self._ledger, self._adaptation = ledger, adaptation
        #: The deadline in seconds from `begun_s`, the job's start on the clock `elapsed_s`, and when the lead ended.
        self._deadline_s, self._begun_s, self._lead_ended_s = deadline_s, begun_s, math.nan
        #: The job's lock, released when its machines are gone and the ledger is final.
        self._lock = lock
        self._store = store
        #: Storage of the events for other processes; None for a run that keeps nothing.
        self._events = events
        self._measurable = measurable_hops(plan, gateways.deployment())
        self._watch = RouteWatch()
        self._inbox: queue.SimpleQueue[SupervisorEvent] = queue.SimpleQueue()
        self._look_again_s = 0.0
        #: Set by `close` and `kill`, and at the end: end the processes in any state.
        self._leaving = Latch()
        self._at_once = False
        #: Looks for what the fleets of this run have left, and their results.
        self._looks: list[Look] = []
        self.remains: list[Remains] = list(remains)
        #: Set when all processes have ended and no more work is done.
        self._over = Latch()
        self._closing_error: TradewindError | OSError | None = None
        #: The error of a restart that failed.
        self._ended_by: Exception | None = None
        self._held = Held()
        self._draining: threading.Thread | None = None
        self._restarting: threading.Thread | None = None
        self._supervisor = Supervisor(
            ledger, restartable=restart is not None, now_s=time.monotonic(), mean_usd_per_gb=spec.ceiling_usd_per_gb
        )
        _unclosed.add(self)
        self._read_lead(0)
        threading.Thread(target=self._supervise, name=f"supervisor of {job_id}", daemon=True).start()

    @property
    def present_plan(self) -> Plan:
        """The plan whose routes get work now."""
        return self.plan if self._adaptation is None else self._adaptation.plan

    @property
    def gateways(self) -> tuple[str, ...]:
        """Names of the gateways, including the lead's."""
        return self._gateways.names

    def crash(self, gateway: str) -> None:
        """End a gateway as if it had failed by itself, to test how the job reacts."""
        self._gateways.crash(gateway)

    def lines(self) -> Iterator[bytes]:
        """Yield the job's events from the start, one JSON document per line. Raises GatewayLost if the lead is lost."""
        return self._log.lines()

    def events(self) -> Iterator[Event]:
        """Yield the job's events from the start, with the Summary last. Raises GatewayLost if the lead is lost."""
        for line in self.lines():
            event = event_from_document(json.loads(line))
            if event is not None:
                yield event

    def wait(self, on_event: EventCallback | None = None) -> Result:
        """Follow the job to its end and end its processes.

        On KeyboardInterrupt, or if `on_event` raises, the job is drained first, so that it can be resumed; a second
        KeyboardInterrupt ends it at once. Raises the TransferError of its outcome.
        """
        try:
            for event in self.events():
                if on_event is not None:
                    on_event(event)
        except KeyboardInterrupt as interrupt:
            self.drain_to_end()
            if self.summary is not None and self.summary.outcome == "done":
                raise
            raise self._outcome_error() from interrupt
        finally:
            if self.summary is None:
                self.drain_to_end()
            self.close()
        return self.result()

    @property
    def progress(self) -> Progress:
        """The newest counts; zeros before the first."""
        line = self._log.progress
        return Progress() if line is None else Progress.from_document(json.loads(line))

    def result(self) -> Result:
        """Return the result of an ended job. Raises the TransferError of its outcome, GuestAbsent, DeadlineMissed."""
        if isinstance(self._ended_by, GuestAbsent):
            raise self._ended_by
        if self.summary is None or self.summary.outcome != "done":
            raise self._outcome_error()
        if self.deadline is not None:
            self.deadline.require_kept(self.id, self.summary)
        return Result(self.id, self.summary)

    @property
    def deadline(self) -> JobDeadline | None:
        """The user's deadline, and the time until the end of the transfer; None without a deadline."""
        if self._deadline_s is None:
            return None
        took_s = self._lead_ended_s - self._begun_s
        return JobDeadline(self._deadline_s, None if math.isnan(took_s) else took_s)

    @property
    def ledger(self) -> Ledger:
        """Cost of the job so far, line by line, over all its runs."""
        return self._ledger.ledger

    @cached_property
    def first_plan(self) -> Plan:
        """The plan with which the job began, to which its predicted cost belongs. `plan` is that of this run.

        Raises StateError, JobNotFound, JobUnreadable.
        """
        if self.plan.overlay is None or self.spec.state_dir is None:
            return self.plan
        return recorded_plan(self._store, self._store.load(self.id))

    @property
    def route_times(self) -> dict[str, tuple[float, float]]:
        """Seconds of the run between which each route carried bytes, by the route's name in reports."""
        return self._watch.times()

    @property
    def boots(self) -> list[Boot]:
        """Start times of the machines that were rented for it, oldest first. Raises StateError."""
        if self.plan.overlay is None or self.spec.state_dir is None:
            return []
        return boots_of(FleetJournal(self._store.state_dir), self.id)

    def spent_usd(self) -> float:
        """Cost of the job so far [USD]: egress, machines and requests of all its runs, at list prices."""
        return self._ledger.spent_usd()

    def wait_ended(self, timeout_s: float) -> bool:
        """Return whether the run ends within the timeout. `close` then ends its processes."""
        return self._log.wait_ended(timeout_s)

    def close_places(self, closed: ClosedPlaces) -> None:
        """Set what is closed from now on, instead of what was: its traffic leaves that within seconds, if other routes
        exist. Work in flight on the old ones is completed there.
        """
        if self._adaptation is not None:
            self._adaptation.close(closed)

    def drain(self) -> None:
        """Ask the lead to checkpoint and stop, and return at once; events then end with outcome `interrupted`.

        A lead that has ended, or is about to, has nothing left to stop; this is not an error.
        """
        self._tell(DrainAsked())

    def kill(self) -> None:
        """End all processes at once. The journal is safe; the job can be resumed."""
        self._at_once = True
        self._leave()
        if self._adaptation is not None:
            self._adaptation.stop()
        self._gateways.hurry()
        self._gateways.kill()
        self._over.wait(KILLED_S)

    @property
    def is_ending(self) -> bool:
        """True once its events have ended: only its machines are left to be ended."""
        return self._log.wait_ended(0.0)

    def hurry(self) -> None:
        """Let the end of the machines not wait any longer for a provider that does not answer."""
        self._gateways.hurry()

    def ending(self) -> Iterator[str]:
        """End the processes as `close` does, and yield the notices about that until they have ended."""
        self._leave()
        is_over = False
        while not is_over:
            is_over = self._over.wait(TICK_S)
            yield from self._log.late()

    def close(self) -> None:
        """End the processes; keep the logs if requested, or if the job did not succeed.

        Raises MachinesMayRun if the job is done, but machines could not be ended: `result` still returns its result.
        """
        self._leave()
        self._over.wait()
        if self._closing_error is not None:
            error, self._closing_error = self._closing_error, None
            raise error

    @property
    def is_over(self) -> bool:
        """Return whether its processes are gone and its record is complete."""
        return self._over.is_set()

    def hold(self, held: ExitStack) -> None:
        """Close `held`, which was started for this job alone, once the machines are gone."""
        self._held.add(held)

    def _leave(self) -> None:
        self._leaving.set()
        self._inbox.put(Tick())

    def _tell(self, event: SupervisorEvent) -> None:
        """Put an event into the inbox at once."""
        self._inbox.put(event)

    def _supervise(self) -> None:
        finish: Finish | None = None
        try:
            while finish is None and not self._leaving.is_set():
                try:
                    event: SupervisorEvent = self._inbox.get(timeout=TICK_S)
                except queue.Empty:
                    event = Tick()
                    self._log.flush()
                if isinstance(event, Tick | LeadSaid) and self._is_to_stop():
                    self._inbox.put(DrainAsked())
                generation = self._supervisor.generation
                self._count(event)
                for action in self._supervisor.handle(event, time.monotonic()):
                    finish = self._carry_out(action) or finish
                if isinstance(event, LeadSaid) and event.generation == generation and finish is None:
                    self._look_at_routes(event.document)
        except BaseException as error:
            self._log.end(error)  # Readers must not wait for a failed supervisor.
            raise
        finally:
            if finish is not None and finish.at_once:
                self._at_once = True
            self._end(finish)

    def _is_to_stop(self) -> bool:
        """Return whether another process has asked the job to stop and the job is not stopping yet. Checked each
        TICK_S.
        """
        if self.spec.state_dir is None or self._supervisor.draining or time.monotonic() < self._look_again_s:
            return False
        self._look_again_s = time.monotonic() + TICK_S
        with suppress(StateError, ConfigError):
            return self._store.is_to_stop(self.id)
        return False

    def _count(self, event: SupervisorEvent) -> None:
        """Update the ledger before the supervisor reads it."""
        if isinstance(event, LeadSaid) and event.generation == self._supervisor.generation:
            document = event.document
            progress = document if document["event"] == "progress" else document.get("progress")
            if document["event"] in ("progress", "done") and progress is not None:
                self._ledger.see(progress)
                self._gateways.moved(moving(progress))
        self._ledger.beat()

    def _carry_out(self, action: Action) -> Finish | None:
        if isinstance(action, Publish):
            (self._log.put_progress if action.progress else self._log.append)(self._priced(action))
        elif isinstance(action, Drain):
            if self._draining is None or not self._draining.is_alive():
                self._draining = self._in_background(self._ask_to_drain, action)
        elif isinstance(action, Restart):
            self._restarting = self._in_background(self._start_again, action)
        else:
            return self._finish(action)
        return None

    def _finish(self, finish: Finish) -> Finish:
        self._ended_by = finish.error
        if finish.done is None and (stored := self._stored_end()) is not None:
            # The job finished while this process was stopped, or its last line was lost.
            finish = replace(finish, done=stored)
            self._ledger.see(stored["progress"])
            self._sum_up(stored)
            self._log.append(_line(self.summary_document or stored))
        elif finish.done is not None:
            self._sum_up(finish.done)
        if finish.done is not None:
            self._watch.see(finish.done["progress"])
        return finish

    def _stored_end(self) -> Mapping[str, Any] | None:
        """Return the last line of a lead that has recorded the job as done."""
        return None if self.spec.state_dir is None else done_line(self.spec.state_dir)

    def _sum_up(self, done: Mapping[str, Any]) -> None:
        """Keep the lead's last line, with the job's present cost."""
        if math.isnan(self._lead_ended_s):
            self._lead_ended_s = elapsed_s()
        progress = {**done["progress"], "cost_usd": self._ledger.spent_usd()}
        self.summary_document = {**done, "progress": progress}
        self.summary = Summary.from_document(self.summary_document)

    def _priced(self, publish: Publish) -> bytes:
        """Return the line to publish, with the job's cost from the ledger; the lead knows only that of egress."""
        if publish.progress:
            return _line({**json.loads(publish.line), "cost_usd": self._ledger.spent_usd()})
        # The last line is published after the end was recorded.
        return publish.line if self.summary_document is None else _line(self.summary_document)

    def _look_at_routes(self, document: Mapping[str, Any]) -> None:
        """Record the progress of the routes, for learning and for changes of the plan."""
        if document["event"] == "progress":
            self._watch.see(document)
            if self._adaptation is not None:
                self._adaptation.see(document)
        for message in self._adaptation.notices() if self._adaptation is not None else ():
            self._log.notice(message)

    def _read_lead(self, generation: int) -> None:
        gateways, name = self._gateways, self.plan.lead
        lead = GatewayClient.of(gateways.deployment(), name)

        def read() -> None:
            with suppress(GatewayError):
                for line in lead.events():
                    document = json.loads(line)
                    while self._inbox.qsize() >= INBOX_MAX and not self._over.is_set():
                        time.sleep(INBOX_FULL_S)
                    self._tell(LeadSaid(generation, line, document))
                    if document["event"] == "done":
                        return
            if not self._leaving.is_set():
                self._tell(LeadEnded(generation, gateways.ending(name, ENDING_S)))

        threading.Thread(target=read, name=f"events of {self.id}", daemon=True).start()

    def _in_background(self, work: Callable[[Any], None], action: Action) -> threading.Thread:
        thread = threading.Thread(target=work, args=(action,), name=f"{type(action).__name__} {self.id}", daemon=True)
        thread.start()
        return thread

    def _ask_to_drain(self, action: Drain) -> None:
        with suppress(GatewayError, KeyError):
            GatewayClient.of(self._gateways.deployment(), self.plan.lead).drain()

    def _start_again(self, action: Restart) -> None:
        assert self._restart is not None
        try:
            if self._adaptation is not None:
                self._adaptation.stop()
            self._gateways.kill()
            self._look_for_remains()
            if self._adaptation is not None:
                self._adaptation.end()
                self.spec = self._adaptation.spec
            if self._leaving.is_set():
                return None
            self._gateways = self._restart(self.spec, self.present_plan, self._leaving.is_set)
            if self._leaving.is_set():
                self._gateways.kill()  # The end may have passed the point at which it ends machines.
                return None
        except (TradewindError, OSError) as error:
            if self._leaving.is_set() and not isinstance(error, Interrupted):
                self._log.notice(recorded_text(error))
            return self._tell(RestartFailed(action.generation, error))
        self._watch = RouteWatch()
        restarts = f"restarted ({self._supervisor.restarts} of {RESTARTS_MAX})"
        self._log.notice(f"{self._died(action.how)}; {restarts}, acknowledged work is kept")
        self._read_lead(action.generation)
        return self._tell(Restarted(action.generation))

    def _end(self, finish: Finish | None) -> None:
        """End the log, then the processes, and remove the records of a running job."""
        well = self.summary is not None and self.summary.outcome == "done"
        self._leaving.set()  # A restart under way ends.
        self._log.end(self._error_of(finish))
        try:
            if self._restarting is not None:
                self._restarting.join(KILLED_RESTART_S if self._at_once else None)
            if self._adaptation is not None:
                self._adaptation.stop()  # A change in progress ends with the machines, which are charged until then.
            try:
                self._end_machines(well)
            finally:
                self._forget()
                if self.summary_document is not None:
                    self._sum_up(self.summary_document)  # Machines were charged until now.
            self._look_for_remains()
            if well and self._catalog_folder is not None:
                self._learn(self._catalog_folder)
        except (TradewindError, OSError) as error:
            self._closing_error = error
        finally:
            self._ledger.save()
            self.remains += [found for look in self._looks if (found := look.result()) is not None]
            self._end_events(finish)
            unreleased = self._held.release()
            self._closing_error = self._closing_error or unreleased
            self._lock.release()
            self._over.set()
            _unclosed.discard(self)

    def _end_machines(self, well: bool) -> None:
        """End the machines. Raises MachinesMayRun if that fails after a transfer that succeeded."""
        try:
            if self._at_once:
                return self._gateways.kill()
            grace_s = self._ledger.left_s(STOP_S + CEILING_END_S) - CEILING_END_S
            grace_s = min(grace_s, DONE_STOP_S) if well else grace_s
            return self._gateways.stop(keep_logs=self._keep_logs or not well, grace_s=max(0.0, grace_s))
        except GatewayError as error:
            from tradewind.fleet.remains import Remains

            self.remains.append(Remains(self._gateways.fleet_id, error=str(error)))
            if not well:
                raise
            raise MachinesMayRun(f"the transfer is done, but {error}", hint=error.hint) from error

    def _look_for_remains(self) -> None:
        if (look := self._gateways.look_for_remains()) is not None:
            self._looks.append(look)

    def _end_events(self, finish: Finish | None) -> None:
        if self._events is not None:
            took_s = None if self.deadline is None else self.deadline.took_s
            record_outcome(self._events, self.result, self._error_of(finish), self.remains, took_s)

    def _error_of(self, finish: Finish | None) -> Exception | None:
        if finish is None or finish.done is not None:
            return None
        if finish.error is not None:
            return finish.error
        return None if self._supervisor.over_ceiling else self._died(finish.lost or "")

    def _learn(self, folder: Path) -> None:
        """Record the rates of hops between known regions for later plans. A failure does not fail the transfer."""
        today = datetime.now(timezone.utc).date().isoformat()
        plan, teaching = self.plan, self._measurable
        if self._adaptation is not None:
            plan = self._adaptation.plan_of_all
            teaching = measurable_hops(plan, self._gateways.deployment())
        with suppress(ConfigError, OSError):
            record_samples(folder, self.id, self.spec, plan, teaching, self._watch, date=today)

    def _forget(self) -> None:
        """Remove the lead's address; for a run that keeps nothing, remove everything."""
        if self.spec.state_dir is None:
            self._gateways.remove()
            return
        done = self.summary is not None and self.summary.outcome == "done"
        forget_lead(self._store, self.id, self.spec.state_dir, done=done)

    def drain_to_end(self) -> None:
        """Drain, and return when the events have ended. A KeyboardInterrupt then ends all processes at once."""
        self.drain()
        try:
            self._log.wait_ended()
        except KeyboardInterrupt:
            self.kill()
            raise

    def _died(self, how: str) -> GatewayLost:
        return GatewayLost(
            f"the lead ended unexpectedly ({how})",
            hint=None if self._restart is None else f"acknowledged work is kept; {resume_hint(self.id)}",
        )

    def _outcome_error(self) -> TransferError:
        summary, kept = self.summary, self.spec.state_dir is not None
        stopped = summary is None or summary.outcome == "interrupted"
        if stopped and kept and self._store.is_to_stop(self.id):
            return stopped_error(self.id, summary, cancelled=self._store.is_cancelled(self.id))
        return outcome_error(self.id, summary, over_ceiling=self._supervisor.over_ceiling, can_be_resumed=kept)


def kill_unclosed(job_id: str | None = None) -> None:
    """End the processes of jobs that were started here and not closed, or of one of them: for callers that were
    interrupted before they received the job.
    """
    for job in list(_unclosed):
        if job_id in (None, job.id):
            job.kill()


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"
