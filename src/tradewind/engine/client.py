"""`tradewind.Client`, `copy`, `sync`, `plan` and `frontier`: the engine in one call each. No event loop is needed.

>>> import tradewind
>>> result = tradewind.copy("s3://bucket/data/", "/scratch/data", tradewind.Options(recursive=True))
>>> result.progress.objects_done
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from tradewind.engine.engine import Engine
from tradewind.engine.jobs import JobRecord, JobStore
from tradewind.engine.ledger import LedgerBook
from tradewind.engine.proposal import Request
from tradewind.engine.request import Options, UrlOrPath
from tradewind.engine.result import Result
from tradewind.engine.running import EventCallback, RunningJob
from tradewind.model.job import Deletion, ObjectFilter
from tradewind.model.ledger import Ledger
from tradewind.model.plan import Plan
from tradewind.model.records import replace

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tradewind.engine.engine import LimitArguments, PlanArguments
    from tradewind.render.plans import MulticastPlan, TransferFrontier, TransferPlan

__all__ = ["Client", "copy", "frontier", "plan", "sync"]


class Client:
    """Start, resume, cancel and list jobs: an Engine without proposals, for transfers through this machine or by a
    topology file.

    `state_dir` defaults to `$TRADEWIND_STATE_DIR`, or else `$XDG_STATE_HOME/tradewind`; `gateway` is the path of the
    gateway program, or None to find it automatically. A client holds no connection and may be shared by threads.
    """

    def __init__(self, *, state_dir: str | None = None, gateway: str | None = None) -> None:
        self._engine = Engine(state_dir=state_dir, gateway=gateway)

    @property
    def gateway(self) -> str:
        """Path of the gateway program. Raises GatewayError if it is missing."""
        return self._engine.gateway

    @property
    def store(self) -> JobStore:
        """The job records of the state folder."""
        return self._engine.control.store

    def copy(
        self,
        source: UrlOrPath | Sequence[UrlOrPath],
        destination: UrlOrPath | Sequence[UrlOrPath],
        options: Options | None = None,
        *,
        topology: str | None = None,
        on_event: EventCallback | None = None,
    ) -> Result:
        """Copy, and return when every byte is proven. `topology` is the path of a topology file.

        A place is a URL or a local path, as a string or as `pathlib.Path`. Several sources keep their names below a
        destination that ends in `/`.

        Raises UsageError before anything starts, or the TransferError of the job's outcome.
        """
        return self.start(source, destination, options, topology=topology).wait(on_event)

    def sync(
        self,
        source: UrlOrPath,
        destination: UrlOrPath | Sequence[UrlOrPath],
        options: Options | None = None,
        *,
        topology: str | None = None,
        on_event: EventCallback | None = None,
    ) -> Result:
        """Copy objects that differ; with `Options(delete=True)` also delete objects that the source does not have."""
        options = options or Options()
        options = replace(options, recursive=True, compare=options.compare or "auto")
        return self.start(source, destination, options, topology=topology, verb="sync").wait(on_event)

    def start(
        self,
        source: UrlOrPath | Sequence[UrlOrPath],
        destination: UrlOrPath | Sequence[UrlOrPath],
        options: Options | None = None,
        *,
        topology: str | None = None,
        verb: str = "cp",
        argv: Sequence[str] = (),
        keep_logs: bool = False,
    ) -> RunningJob:
        """Start a job and return at once; its record keeps `argv`.

        Raises UsageError, TopologyError, GatewayError.
        """
        proposal = self._engine.propose(Request(source, destination, options or Options(), verb, topology))
        return self._engine.start(proposal, argv=argv, keep_logs=keep_logs).require_running()

    def check_filter(self, filter: ObjectFilter) -> None:
        """Raise UsageError if a rule is not a valid glob, GatewayError if the gateway program cannot be run."""
        self._engine.control.check_filter(filter)

    def resume(
        self,
        job_id: str,
        *,
        keep_logs: bool = False,
        provider: Mapping[str, Any] | None = None,
        deletion: Deletion | None = None,
    ) -> RunningJob:
        """Resume an interrupted job; arguments and errors are those of `Job.resume`."""
        job = self._engine.job(job_id)
        return job.resume(keep_logs=keep_logs, provider=provider, deletion=deletion).require_running()

    def ledger(self, record: JobRecord) -> Ledger:
        """Return the cost of a job so far, line by line, even while another process runs it."""
        return self._engine.control.ledger(record)

    def plan(self, record: JobRecord, *, latest: bool = False) -> Plan:
        """Return the first plan of a job, to which its predicted figures belong, or the latest one. It has all figures
        of the planner. Raises TopologyError.
        """
        return self._engine.control.plan_of(record, latest=latest)

    def book(self, job_id: str) -> LedgerBook:
        """Return the recorded ledger of a job."""
        return self._engine.control.book(job_id)

    def require_resumable(self, record: JobRecord) -> None:
        """Raise JobBusy if the job runs, UsageError if it has nothing left to do.

        Waits until the lead of a killed process has drained.
        """
        self._engine.control.require_resumable(record)

    def pause(self, job_id: str) -> JobRecord:
        """Stop a running job at its next checkpoint, whichever process runs it; `resume` continues it.

        Returns when its machines are gone. Raises JobNotFound, JobBusy, UsageError if it does not run.
        """
        return self._engine.control.pause(job_id)

    def cancel(self, job_id: str) -> JobRecord:
        """Stop a job if it runs, and abort its unfinished uploads. Copied objects stay. Raises JobNotFound."""
        return self._engine.control.cancel(job_id)

    def jobs(self) -> list[JobRecord]:
        """Return all jobs of the state folder, oldest first."""
        return self._engine.control.jobs()

    def unfinished(
        self, source: UrlOrPath | Sequence[UrlOrPath], destination: UrlOrPath | Sequence[UrlOrPath]
    ) -> JobRecord | None:
        """Return the latest interrupted job with this source and destination. Raises UsageError.

        Only the last jobs are searched.
        """
        return self._engine.control.unfinished(source, destination)

    def job(self, job_id: str) -> JobRecord:
        """Return one job. Raises JobNotFound."""
        return self._engine.control.job(job_id)


def copy(
    source: UrlOrPath | Sequence[UrlOrPath],
    destination: UrlOrPath | Sequence[UrlOrPath],
    options: Options | None = None,
    *,
    topology: str | None = None,
    on_event: EventCallback | None = None,
) -> Result:
    """Copy with a default Client; see Client.copy."""
    return Client().copy(source, destination, options, topology=topology, on_event=on_event)


def sync(
    source: UrlOrPath,
    destination: UrlOrPath | Sequence[UrlOrPath],
    options: Options | None = None,
    *,
    topology: str | None = None,
    on_event: EventCallback | None = None,
) -> Result:
    """Sync with a default Client; see Client.sync."""
    return Client().sync(source, destination, options, topology=topology, on_event=on_event)


@overload
def plan(source: str, destination: str, **asked: Unpack[PlanArguments]) -> TransferPlan: ...
@overload
def plan(source: str, destination: list[str] | tuple[str, ...], **asked: Unpack[PlanArguments]) -> MulticastPlan: ...
def plan(
    source: str, destination: str | list[str] | tuple[str, ...], **asked: Unpack[PlanArguments]
) -> TransferPlan | MulticastPlan:
    """Plan with a default Engine; see Engine.plan."""
    return Engine().plan(source, destination, **asked)


def frontier(
    source: str, destination: str | list[str] | tuple[str, ...], **limits: Unpack[LimitArguments]
) -> TransferFrontier:
    """Trace the frontier with a default Engine; see Engine.frontier."""
    return Engine().frontier(source, destination, **limits)
