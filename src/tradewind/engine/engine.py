"""The engine: plans and measures, proposes transfers, starts them, and attaches to jobs that run or have ended.

>>> from tradewind import Engine, Request
>>> with Engine() as engine:
...     proposal = engine.propose(Request("s3://a/data", "s3://b/data"))
...     receipt = engine.start(proposal).wait().receipt()

The command line and `tradewind.Client` are adapters of it. No event loop is needed; with a running one, call the
blocking methods in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from weakref import WeakSet

from tradewind.engine.attach import ADOPTABLE
from tradewind.engine.job import Job
from tradewind.engine.job_control import JobControl
from tradewind.engine.jobs import JobRecord
from tradewind.engine.preview import Preview, preview_of
from tradewind.engine.proposal import Proposal, Request, kept_proposal, proposal_again, propose
from tradewind.engine.request import UrlOrPath
from tradewind.engine.running import RunningJob
from tradewind.engine.stored import ProposalStore
from tradewind.errors import CeilingReached, JobBusy, JobUnreadable, SkyError, UsageError

__all__ = ["Engine", "Job"]

#: A job that another process adopts is looked at again after this time.
LOOK_AGAIN_S = 0.2


class Engine:
    """Start one per process, or one per thread; it holds no connection. Closing it ends what was started for proposals
    and jobs of this process: jobs that still run are drained and can be resumed.

    `state_dir` defaults to `$TRADEWIND_STATE_DIR`, or else `$XDG_STATE_HOME/tradewind`; `gateway` is the path of the
    gateway program, or None to find it automatically.
    """

    def __init__(self, *, state_dir: str | None = None, gateway: str | None = None) -> None:
        self.control = JobControl(state_dir=state_dir, gateway=gateway)
        self._running: WeakSet[RunningJob] = WeakSet()
        #: The proposals that can be started, by id.
        self._open: dict[str, Proposal] = {}
        #: Ids of those that the database has.
        self._kept: set[str] = set()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def state_dir(self) -> str:
        """Path of the state folder."""
        return self.control.store.state_dir

    @property
    def gateway(self) -> str:
        """Path of the gateway program. Raises GatewayError if it is missing."""
        return self.control.gateway

    def preview(self, request: Request) -> Preview:
        """Return the plan that a transfer through this machine could have instead. Errors: see `preview_of`."""
        return preview_of(self.control, request)

    def propose(self, request: Request, *, keep: bool = False) -> Proposal:
        """Return how a request would be carried out, with its predicted cost. See `engine.proposal.propose`.

        With `keep` it is kept in the state folder, so that any process can start it by its id.
        """
        proposal = propose(self.control, request)
        if keep:
            self._keep(proposal)
        self._open[proposal.id] = proposal
        proposal.held.callback(self._open.pop, proposal.id, None)
        return proposal

    def start(self, proposal: Proposal | str, *, argv: Sequence[str] = (), keep_logs: bool = False) -> Job:
        """Start a proposal, once, and return at once: one of this engine, or, by its id, one that any process has kept.

        By id it is started if it is no older than PROPOSAL_S_MAX and all prices of its plan still hold.

        `argv` is kept in the job's record. Raises UsageError, also for a proposal that was started or dropped, or is of
        another engine; TopologyError, GatewayError.
        """
        if isinstance(proposal, str):
            proposal = proposal_again(self.control, proposal)
            self._kept.add(proposal.id)
        elif self._open.pop(proposal.id, None) is None:
            raise UsageError(
                "the proposal was started or dropped before, or is of another engine", hint="propose again"
            )
        request, is_dry = proposal.request, proposal.options.dry_run
        try:
            if proposal.launch.plan_request is not None and proposal.id not in self._kept and not is_dry:
                self._keep(proposal)  # A resumed job asks the planner again.
            running = self.control.start(
                request.source,
                request.destination,
                proposal.options,
                proposal.launch,
                verb=request.verb,
                argv=argv,
                keep_logs=keep_logs,
                proposal=proposal.id if proposal.id in self._kept and not is_dry else None,
            )
        except BaseException:
            proposal.drop()
            raise
        running.hold(proposal.held.pop_all())
        self._running.add(running)
        return Job(self.control, running.id, running, self._running.add)

    def _keep(self, proposal: Proposal) -> None:
        ProposalStore(self.control.store.database).save(proposal.id, kept_proposal(proposal))
        self._kept.add(proposal.id)

    def job(self, job_id: str) -> Job:
        """Return a job of any process, as it is. Raises JobNotFound, JobUnreadable."""
        self.control.store.load(job_id)
        return Job(self.control, job_id, None, self._running.add)

    def attach(self, job_id: str) -> Job:
        """Return a job of any process. One whose process died is continued in this one, if that is possible.

        Raises JobNotFound, JobUnreadable, GatewayError; JobBusy if the lead of the dead process does not end.
        """
        while True:
            job = self.job(job_id)
            follower = job.follow()
            if not follower.is_orphaned() or job.state not in ADOPTABLE:
                return job
            try:
                return job.resume()
            except JobBusy:
                if not follower.is_owned():
                    raise
                time.sleep(LOOK_AGAIN_S)  # Another process was first.
            except (UsageError, CeilingReached, SkyError):
                return job  # It was done, or cannot be continued; `resume` says why.

    def jobs(self) -> list[Job]:
        """Return all jobs of the state folder, oldest first."""
        return [Job(self.control, record.id, None, self._running.add) for record in self.records()]

    def records(self, on_unreadable: Callable[[JobUnreadable], None] | None = None) -> Iterator[JobRecord]:
        """Yield the records of all jobs, oldest first. `on_unreadable` is called for each that cannot be read."""
        return self.control.store.records(on_unreadable)

    def unfinished(
        self, source: UrlOrPath | Sequence[UrlOrPath], destination: UrlOrPath | Sequence[UrlOrPath]
    ) -> JobRecord | None:
        """Return the latest interrupted job with this source and destination. Only the last jobs are searched.

        Raises UsageError.
        """
        return self.control.unfinished(source, destination)

    def close(self) -> None:
        """Drain the jobs of this process that still run, and end what was started for them and for proposals."""
        for running in list(self._running):
            if running.summary is None:
                running.drain_to_end()
            running.close()
        for proposal in list(self._open.values()):
            proposal.drop()
