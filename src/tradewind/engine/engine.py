"""The engine: proposes transfers, starts them, and attaches to jobs that run or have ended.

>>> from tradewind import Engine, Request
>>> with Engine() as engine:
...     proposal = engine.propose(Request("s3://a/data", "s3://b/data"))
...     receipt = engine.start(proposal).wait().receipt()

No event loop is needed, and none is in the way: a running one may call it in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from tradewind.engine.attach import AttachedJob, result_of
from tradewind.engine.client import Client
from tradewind.engine.jobs import RecordedState
from tradewind.engine.proposal import Proposal, Request, kept_proposal, proposal_again, propose
from tradewind.engine.receipt import receipt_of
from tradewind.engine.running import EventCallback, Result, RunningJob
from tradewind.engine.skies import provider_again
from tradewind.engine.stored import ProposalStore
from tradewind.errors import CeilingReached, JobBusy, SkyError, UsageError
from tradewind.model.event import Event

__all__ = ["Engine", "Job"]

#: A job that another process adopts is looked at again after this time.
LOOK_AGAIN_S = 0.2


class Job:
    """A job: running in this process, in another one, or ended. Any thread may use it."""

    def __init__(self, engine: Engine, job_id: str, running: RunningJob | None, held: ExitStack) -> None:
        self.id = job_id
        self._engine, self._running, self._held = engine, running, held

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    @property
    def running(self) -> RunningJob | None:
        """The job as this process runs it; None if another one does, or none."""
        return self._running

    @property
    def state(self) -> RecordedState:
        """`running`, `done`, `failed`, `interrupted`, `paused` or `cancelled`. Raises JobNotFound."""
        return self._engine.client.store.load(self.id).state

    def events(self, since: int = 0) -> Iterator[Event]:
        """Yield the events of the latest run from its start, without the first `since`, and each as it comes, to the
        end of the run. Only the newest progress is kept. Raises GatewayLost if the lead of this process is lost.
        """
        attached = AttachedJob(self._engine.client.store, self.id)
        source = attached.events() if self._running is None else self._running.events()
        for number, event in enumerate(source):
            if number >= since:
                yield event

    def wait(self, on_event: EventCallback | None = None) -> Job:
        """Return itself once the job is done. Raises the TransferError of any other outcome.

        On KeyboardInterrupt a job of this process is drained, so that it can be resumed; one of another process is left
        alone.
        """
        if self._running is not None:
            try:
                self._running.wait(on_event)
            finally:
                self._held.close()
            return self
        attached = AttachedJob(self._engine.client.store, self.id)
        for event in attached.events():
            if on_event is not None:
                on_event(event)
        result_of(self._engine.client.job(self.id), attached.end)
        return self

    def result(self) -> Result:
        """Return counts and proofs of a job that is done. Raises the TransferError of any other outcome."""
        return result_of(self._engine.client.job(self.id))

    def pause(self) -> Job:
        """Stop at the next checkpoint, and return once the machines are gone. Raises UsageError if it does not run."""
        self._engine.client.pause(self.id)
        self._release()
        return self

    def resume(self) -> Job:
        """Continue a paused, interrupted or failed job in this process. Raises JobBusy, UsageError, CeilingReached."""
        client = self._engine.client
        record = client.job(self.id)
        client.require_resumable(record)
        self._release()
        with ExitStack() as stack:
            provider = stack.enter_context(provider_again(record, client.store.state_dir))
            self._running = client.resume(self.id, provider=provider)
            self._held = self._engine.look_after(self._running, stack.pop_all())
        return self

    def cancel(self) -> Job:
        """Stop for good, and abort unfinished uploads; objects that were copied stay."""
        self._engine.client.cancel(self.id)
        self._release()
        return self

    def receipt(self) -> dict[str, Any]:
        """Return what moved, how it was proven, each run, the cost line by line, and the plan, as a JSON document."""
        return receipt_of(self._engine.client, self.id)

    def _release(self) -> None:
        """Let go of a run of this process that has ended."""
        if self._running is not None:
            self._running.close()
            self._running = None
        self._held.close()


class Engine:
    """Start one per process, or one per thread; it holds no connection. Closing it ends what was started for proposals
    and jobs of this process: jobs that still run are drained and can be resumed.

    `state_dir` defaults to `$TRADEWIND_STATE_DIR`, or else `$XDG_STATE_HOME/tradewind`; `gateway` is the path of the
    gateway program, or None to find it automatically.
    """

    def __init__(self, *, state_dir: str | None = None, gateway: str | None = None) -> None:
        self.client = Client(state_dir=state_dir, gateway=gateway)
        self._held = ExitStack()
        #: Ids of the proposals that can be started.
        self._open: set[str] = set()
        #: Ids of those that the database has.
        self._kept: set[str] = set()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def propose(self, request: Request, *, keep: bool = False) -> Proposal:
        """Return how a request would be carried out, with its predicted cost. See `engine.proposal.propose`.

        With `keep` it is kept in the state folder, so that any process can start it by its id.
        """
        proposal = propose(self.client, request)
        if keep:
            self._keep(proposal)
        self._open.add(proposal.id)
        proposal.held.callback(self._open.discard, proposal.id)
        self._held.callback(proposal.drop)
        return proposal

    def start(self, proposal: Proposal | str, *, argv: Sequence[str] = (), keep_logs: bool = False) -> Job:
        """Start a proposal, once, and return at once: one of this engine, or, by its id, one that any process has kept.

        By id it is started if it is no older than PROPOSAL_S_MAX and all prices of its plan still hold.

        `argv` is kept in the job's record. Raises UsageError, also for a proposal that was started or dropped, or is of
        another engine; TopologyError, GatewayError.
        """
        if isinstance(proposal, str):
            proposal = proposal_again(self.client, proposal)
            self._held.callback(proposal.drop)
            self._kept.add(proposal.id)
        elif proposal.id not in self._open:
            raise UsageError(
                "the proposal was started or dropped before, or is of another engine", hint="propose again"
            )
        self._open.discard(proposal.id)
        request, is_dry = proposal.request, proposal.options.dry_run
        if proposal.launch.plan_request is not None and proposal.id not in self._kept and not is_dry:
            self._keep(proposal)  # A resumed job asks the planner again.
        running = self.client.start(
            request.source,
            request.destination,
            proposal.options,
            launch=proposal.launch,
            verb=request.verb,
            argv=argv,
            keep_logs=keep_logs,
            proposal=proposal.id if proposal.id in self._kept and not is_dry else None,
        )
        return Job(self, running.id, running, self.look_after(running, proposal.held.pop_all()))

    def _keep(self, proposal: Proposal) -> None:
        ProposalStore(self.client.store.database).save(proposal.id, kept_proposal(proposal))
        self._kept.add(proposal.id)

    def attach(self, job_id: str) -> Job:
        """Return a job of any process. One whose process died is continued in this one, if that is possible.

        Raises JobNotFound, JobUnreadable, GatewayError; JobBusy if the lead of the dead process does not end.
        """
        while True:
            record = self.client.store.load(job_id)
            job = Job(self, job_id, None, ExitStack())
            orphaned = AttachedJob(self.client.store, job_id).is_orphaned()
            if not orphaned or record.state not in ("running", "interrupted"):
                return job
            try:
                return job.resume()
            except JobBusy:
                if not self.client.store.is_owned(job_id):
                    raise
                time.sleep(LOOK_AGAIN_S)  # Another process was first.
            except (UsageError, CeilingReached, SkyError):
                return job  # It was done, or cannot be continued; `resume` says why.

    def jobs(self) -> list[Job]:
        """Return all jobs of the state folder, oldest first."""
        return [Job(self, record.id, None, ExitStack()) for record in self.client.store.records()]

    def look_after(self, running: RunningJob, held: ExitStack) -> ExitStack:
        """With the engine, drain a job, and only then end what was started for it, unless both have ended before."""
        self._held.callback(held.close)
        self._held.callback(_drain, running)
        return held

    def close(self) -> None:
        """Drain the jobs of this process that still run, and end what was started for them and for proposals."""
        self._held.close()


def _drain(running: RunningJob) -> None:
    if running.summary is None:
        running.drain_to_end()
    running.close()
