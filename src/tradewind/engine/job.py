"""A job for callers of the engine: running in this process, in another one, or ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tradewind.engine.deadline import JobDeadline
from tradewind.engine.event_store import limit_changes, time_taken_s
from tradewind.engine.gateways import boots_of
from tradewind.engine.job_control import JobControl
from tradewind.engine.jobs import JobRecord, RecordedState
from tradewind.engine.recorded_bytes import recorded_bytes
from tradewind.engine.result import Result
from tradewind.engine.running import EventCallback, RunningJob
from tradewind.engine.stored import recorded_plans
from tradewind.errors import JobFailed, UsageError
from tradewind.fleet.boots import Boot
from tradewind.fleet.given import GivenCredentials
from tradewind.fleet.journal import FleetJournal
from tradewind.model.event import Event, LimitChanged, ToDelete
from tradewind.model.guest import Guest
from tradewind.model.job import Deletion
from tradewind.model.ledger import Ledger
from tradewind.model.plan import Plan

if TYPE_CHECKING:
    from tradewind.engine.attach import AttachedJob
    from tradewind.engine.receipt import RunReport
    from tradewind.fleet.remains import Remains

__all__ = ["Job"]


class Job:
    """A job: running in this process, in another one, or ended. Any thread may use it."""

    def __init__(
        self,
        control: JobControl,
        job_id: str,
        running: RunningJob | None,
        on_resume: Callable[[RunningJob], None],
    ) -> None:
        self.id = job_id
        self._control, self._running, self._on_resume = control, running, on_resume

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    @property
    def running(self) -> RunningJob | None:
        """The job's run in this process; None if another process runs it, or none."""
        return self._running

    def require_running(self) -> RunningJob:
        """Return the job's run in this process. Raises UsageError if this process does not run it."""
        if self._running is None:
            raise UsageError(f"job {self.id} is not running in this process")
        return self._running

    @property
    def folder(self) -> str:
        """Path of its folder: locks, journal, logs, and the list of its objects."""
        return self._control.store.path(self.id)

    @property
    def state(self) -> RecordedState:
        """`running`, `done`, `failed`, `interrupted`, `paused` or `cancelled`. Raises JobNotFound."""
        return self._control.store.load(self.id).state

    @property
    def record(self) -> JobRecord:
        """The job's record, with its cost until now. Raises JobNotFound, JobUnreadable."""
        return self._control.job(self.id)

    @property
    def recorded_bytes(self) -> int | None:
        """Bytes of all runs that no later run sends again, by the lead's journal; None if it cannot be read.

        None for a cancelled job: its journal lacks the uploads that were aborted.
        """
        return None if self.state == "cancelled" else recorded_bytes(self.folder)

    @property
    def ledger(self) -> Ledger:
        """Cost of the job so far, line by line, over all its runs. Raises JobNotFound, JobUnreadable."""
        return self._control.ledger(self._control.store.load(self.id))

    @property
    def plan(self) -> Plan:
        """The first plan, to which the predicted figures belong. Raises JobNotFound, TopologyError."""
        return self._control.plan_of(self._control.store.load(self.id))

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All plans, the first one first: each change of a running job's routes adds one. Raises JobNotFound,
        TopologyError.
        """
        store = self._control.store
        return recorded_plans(store, store.load(self.id))

    @property
    def deadline(self) -> JobDeadline | None:
        """The user's deadline, and the time until the end of the latest run; None without a deadline. Raises
        JobNotFound, StateError.
        """
        store = self._control.store
        seconds = store.load(self.id).document.get("deadline_s")
        return None if seconds is None else JobDeadline(seconds, time_taken_s(store.database, self.id))

    @property
    def boots(self) -> list[Boot]:
        """Start times of its machines, oldest first; empty for a job without machines. Raises StateError."""
        return boots_of(FleetJournal(self._control.store.state_dir), self.id)

    @property
    def remains(self) -> list[Remains]:
        """Remains of the machines of its latest run, as found at their end. Raises StateError."""
        from tradewind.engine.remains import latest_remains

        return latest_remains(self._control.store.database, self.id)

    def latest_run(self) -> RunReport | None:
        """Return the latest run; None for a job without runs. Raises StateError."""
        from tradewind.engine.receipt import latest_report

        return latest_report(self._control.store.database, self.id)

    def limit_changes(self) -> list[LimitChanged]:
        """Return how the gateways of the latest run have changed their limits, oldest first. Raises StateError."""
        return limit_changes(self._control.store.database, self.id)

    def events(self, since: int = 0) -> Iterator[Event]:
        """Yield the events of the latest run from its start to its end, without the first `since`, as they happen.

        Only the newest progress event is kept. Raises GatewayLost if the lead of this process is lost.
        """
        source = self.follow().events() if self._running is None else self._running.events()
        for number, event in enumerate(source):
            if number >= since:
                yield event

    def follow(self) -> AttachedJob:
        """Return a follower of the events that any process records; it reports how the run ended."""
        from tradewind.engine.attach import AttachedJob

        return AttachedJob(self._control.store, self.id)

    def wait(self, on_event: EventCallback | None = None) -> Job:
        """Return the job itself once it is done. Raises the TransferError of any other outcome, and DeadlineMissed.

        On KeyboardInterrupt a job of this process is drained, so that it can be resumed; one of another process is left
        alone.
        """
        if self._running is not None:
            self._running.wait(on_event)
            return self
        from tradewind.engine.attach import result_of

        attached = self.follow()
        for event in attached.events():
            if on_event is not None:
                on_event(event)
        result_of(self.record, attached.end, self.deadline)
        return self

    def result(self) -> Result:
        """Return counts and proofs of a job that is done. Raises the TransferError of any other outcome, and
        DeadlineMissed.
        """
        from tradewind.engine.attach import result_of

        return result_of(self.record, deadline=self.deadline)

    def pause(self) -> Job:
        """Stop at the next checkpoint, and return once the machines are gone. Raises UsageError if it does not run."""
        self._control.pause(self.id)
        self._close()
        return self

    def require_resumable(self, is_to_stop: Callable[[], bool] | None = None) -> JobRecord:
        """Return the job's record. Raises JobBusy if it runs, UsageError if nothing is left to do; JobNotFound.

        Waits until a killed run has drained. Raises Interrupted if `is_to_stop` ends the wait.
        """
        record = self.record
        self._control.require_resumable(record, is_to_stop)
        return record

    def resume(
        self,
        *,
        keep_logs: bool = False,
        provider: Mapping[str, Any] | None = None,
        guest: Guest | None = None,
        deletion: Deletion | None = None,
        credentials: GivenCredentials | None = None,
        limit_bytes_per_s: int | None = None,
        is_to_stop: Callable[[], bool] | None = None,
    ) -> Job:
        """Continue a paused, interrupted or failed job in this process, on machines of its old provider unless another
        is given. Its sky is started if it is not running. A guest reaches this machine at the address in `guest`.

        `deletion` replaces the limits of a job with `--delete`: with Deletion(keys_max=N, over_half=True) up to N
        objects are deleted; this confirms a job with `ask_delete`. A job that was started with `credentials` needs them
        again. `limit_bytes_per_s` is a maximum rate of this run beside that of the job. If `is_to_stop` returns true
        while a killed run drains or machines start, this ends the machines and raises Interrupted.

        Raises JobNotFound, JobBusy, UsageError if it has nothing left to do, CeilingReached if it has already reached
        its ceiling.
        """
        from tradewind.engine.launch_spec import provider_of_guest
        from tradewind.engine.skies import provider_again

        record = self.require_resumable(is_to_stop)
        self._close()
        provider = provider if guest is None else provider_of_guest(guest)
        with ExitStack() as stack:
            if provider is None:
                provider = stack.enter_context(provider_again(record, self._control.store.state_dir))
            self._running = self._control.resume(
                self.id,
                keep_logs=keep_logs,
                provider=provider,
                deletion=deletion,
                credentials=credentials,
                limit_bytes_per_s=limit_bytes_per_s,
                is_to_stop=is_to_stop,
            )
            self._running.hold(stack.pop_all())
        self._on_resume(self._running)
        return self

    def deletion_to_confirm(self, failed: JobFailed) -> ToDelete | None:
        """Return the objects that a job of this process would delete, if it failed to get a confirmation."""
        spec = self.require_running().spec
        asks = spec.delete is not None and spec.delete.ask and not spec.dry_run
        return failed.summary.to_delete if asks and failed.summary is not None else None

    def confirm_deletion(self, waiting: ToDelete) -> Job:
        """Continue a job that waits for a confirmation; it deletes at most as many objects as it announced."""
        return self.resume(deletion=Deletion(keys_max=waiting.objects, over_half=True))

    def cancel(self, credentials: GivenCredentials | None = None, *, quiet: bool = True) -> Job:
        """Stop for good, and abort unfinished uploads; copied objects stay.

        A job that was started with `credentials` needs them again. Unless `quiet`, the number of aborted uploads is
        written to standard error.
        """
        self._control.cancel(self.id, credentials, quiet=quiet)
        self._close()
        return self

    def end_machines(self, is_to_stop: Callable[[], bool] | None = None) -> None:
        """End the machines that a killed process has left behind; `resume` does this, too.

        Raises JobBusy if the job runs, GatewayError if a provider does not answer; Interrupted if `is_to_stop` ends the
        wait for it, or for another command that is ending the machines.
        """
        self._control.end_machines(self.id, is_to_stop)

    def abort_left_uploads(self, credentials: GivenCredentials | None = None) -> None:
        """Abort the uploads that earlier hosts of the job's guest have left unfinished, once the job is done.

        A job that was started with `credentials` needs them again. Raises GatewayError, OSError.
        """
        self._control.abort_left_uploads(self.id, credentials)

    def receipt(self) -> dict[str, Any]:
        """Return the receipt as JSON: moved objects, their proofs, each run, the cost line by line, and the plan."""
        from tradewind.engine.receipt import receipt_of

        return receipt_of(self._control, self.id)

    def _close(self) -> None:
        """End the processes of the job's run in this process."""
        if self._running is not None:
            self._running.close()
            self._running = None
