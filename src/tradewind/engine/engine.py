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
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, overload
from weakref import WeakSet

from tradewind.engine.job import Job
from tradewind.engine.job_control import JobControl
from tradewind.engine.jobs import JobRecord
from tradewind.engine.launch_spec import limited_launch
from tradewind.engine.preview import Preview, preview_of
from tradewind.engine.proposal import Proposal, Request, propose
from tradewind.engine.request import UrlOrPath
from tradewind.engine.running import RunningJob
from tradewind.engine.stored import ProposalStore
from tradewind.errors import CeilingReached, JobBusy, JobUnreadable, SkyError, UsageError
from tradewind.model.goal import Deadline
from tradewind.model.job import lowest_limit
from tradewind.model.records import replace

if TYPE_CHECKING:
    import os
    from collections.abc import Collection
    from typing import Any, TypedDict

    from typing_extensions import Required, Unpack

    from tradewind.acceleration.running import AcceleratedRun
    from tradewind.engine.fleets import Fleets
    from tradewind.engine.measuring import Measurement
    from tradewind.engine.pruning import Pruned
    from tradewind.engine.user_catalog import UserCatalog
    from tradewind.engine.warm import WarmUp
    from tradewind.fleet.given import GivenCredentials
    from tradewind.model.catalog import Catalog
    from tradewind.model.goal import Goal, GoalName
    from tradewind.model.guest import Guest
    from tradewind.model.network_tier import NetworkTierChoice
    from tradewind.model.sites import Sites
    from tradewind.render.advice import AdviceReport
    from tradewind.render.placement import PlacementReport
    from tradewind.render.plans import MulticastPlan, TransferFrontier, TransferPlan

    class LimitArguments(TypedDict, total=False):
        """Arguments common to `plan` and `frontier`, except the regions."""

        volume_gb: Required[float]
        max_vms: int | None
        vm_types: Collection[str] | None
        spot: bool
        objects: int | None
        compression_ratio: float
        egress_used_gb: float
        tier: NetworkTierChoice
        catalog: Catalog | str | os.PathLike[str] | None
        sites: Sites | None

    class PlanArguments(LimitArguments, total=False):
        """Arguments of `plan`, except the regions."""

        goal: GoalName | Goal
        min_throughput_gbps: float | None
        exactly: bool
        max_cost_usd: float | None
        deadline_s: float | None
        effort: float


__all__ = ["Engine", "Job"]

#: Interval at which a job that another process adopts is checked.
LOOK_AGAIN_S = 0.2


class Engine:
    """The entry point for transfers, plans and jobs. Make one per process or per thread; it holds no connection.

    Closing it drains the running jobs of this process, which can be resumed, and ends machines and skies that were
    started for proposals and jobs.

    `state_dir` defaults to `$TRADEWIND_STATE_DIR`, or else `$XDG_STATE_HOME/tradewind`; `gateway` is the path of the
    gateway program, or None to find it automatically. `unix_s` returns the Unix time by which machines are charged [s];
    None for that of this machine. Servers that share the state folder use one clock, as one ends the machines of
    another.
    """

    def __init__(
        self,
        *,
        state_dir: str | None = None,
        gateway: str | None = None,
        unix_s: Callable[[], float] | None = None,
    ) -> None:
        self.control = JobControl(state_dir=state_dir, gateway=gateway, unix_s=unix_s)
        self._gateway = gateway
        self._running: WeakSet[RunningJob] = WeakSet()
        #: Proposals that can be started, by id.
        self._open: dict[str, Proposal] = {}
        #: Ids of the proposals in the database.
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

    @overload
    def plan(self, source: str, destination: str, **asked: Unpack[PlanArguments]) -> TransferPlan: ...
    @overload
    def plan(
        self, source: str, destination: list[str] | tuple[str, ...], **asked: Unpack[PlanArguments]
    ) -> MulticastPlan: ...
    def plan(
        self,
        source: str,
        destination: str | list[str] | tuple[str, ...],
        *,
        volume_gb: float,
        goal: GoalName | Goal = "soonest",
        min_throughput_gbps: float | None = None,
        exactly: bool = False,
        max_cost_usd: float | None = None,
        deadline_s: float | None = None,
        max_vms: int | None = None,
        vm_types: Collection[str] | None = None,
        spot: bool = False,
        effort: float = 1.0,
        objects: int | None = None,
        compression_ratio: float = 1.0,
        egress_used_gb: float = 0.0,
        tier: NetworkTierChoice = "premium",
        catalog: Catalog | str | os.PathLike[str] | None = None,
        sites: Sites | None = None,
    ) -> TransferPlan | MulticastPlan:
        """Plan a transfer between two regions, or from one to several. Starts no machine and contacts no cloud.

        Args:
            source, destination: regions, e.g. `aws:us-east-1`. The destination may be a list of two to eight, each of
                which receives everything; the plan is a `TransferPlan` for one, a `MulticastPlan` for a list.
            volume_gb: volume to move [GB, 1e9 bytes].
            goal: `soonest` (including the machines' start), `cheapest` or `fastest`; or one of the next three instead.
            min_throughput_gbps, exactly: cheapest at this minimum rate [Gbit/s]; or at exactly this rate.
            max_cost_usd, deadline_s: fastest within this budget [USD]; cheapest within this time [s].
            max_vms: maximum machines in one region; None: 8.
            vm_types, spot: only these machine types, None for all; and whether spot machines are used, too.
            effort: limit on the planner's work, in units of about 3 CPU-s; 0.1 to 100.
            objects: number of objects, which decides the cost of requests; None assumes objects of 16 MiB.
            compression_ratio: bytes sent per byte of data, above 0 and at most 1.
            egress_used_gb: volume that was already sent this month [GB]; volume tiers start from there.
            tier: network tier of the machines, where their cloud has both: `premium`, `standard`, or `best`: the better
                one for each machine.
            catalog: a catalog, or the folder of the user's tables; None for that of the state folder.
            sites: places where gateways may run; the plan has no hop between two of them that cannot connect.

        Raises:
            UsageError: an unknown region or machine type, or an invalid goal.
            InfeasibleGoal: no plan meets the goal; the message says which limit, the hint the nearest goal that works.
        """
        from tradewind.engine.planning import plan_transfer

        return plan_transfer(
            source,
            destination,
            volume_gb=volume_gb,
            goal=goal,
            min_throughput_gbps=min_throughput_gbps,
            exactly=exactly,
            max_cost_usd=max_cost_usd,
            deadline_s=deadline_s,
            max_vms=max_vms,
            vm_types=vm_types,
            spot=spot,
            effort=effort,
            objects=objects,
            compression_ratio=compression_ratio,
            egress_used_gb=egress_used_gb,
            tier=tier,
            catalog=catalog,
            sites=sites,
            state_dir=self.state_dir,
        )

    def plan_problem(
        self, path: str, *, effort: float = 1.0, single: bool = False, machines_setting: str = "vm_limit"
    ) -> TransferPlan | MulticastPlan:
        """Plan what a problem file describes. With `single` it must have one destination; hints call the limit on
        machines `machines_setting`.

        Raises UsageError, ConfigError, InfeasibleGoal.
        """
        from tradewind.engine.planning import plan_problem

        return plan_problem(Path(path), machines_setting=machines_setting, effort=effort, single=single)

    def place(
        self,
        path: str | os.PathLike[str],
        algorithm: str = "auto",
        *,
        time_limit_s: float | None = None,
        explain: bool = False,
        frontier: bool = False,
    ) -> PlacementReport:
        """Return a placement of split proxies for the flows of a problem file (docs/reference/placement-problem.md).

        `algorithm` is `auto`, `exact`, or one of the CloudPilot paper: `f-fct`, `f-cost`, `1p`, `2p`, `2p-rb`.
        `time_limit_s` applies to the first two. `explain` adds the reason of each flow and the gain of one dollar more;
        `frontier` adds plans for other budgets.

        The path `-` is standard input.

        Raises ConfigError for an invalid file, UsageError for an unknown algorithm.
        """
        from tradewind.engine.placing import PlacementWish, place_problem

        return place_problem(Path(path), PlacementWish(algorithm, time_limit_s, explain, frontier))

    def place_flows(
        self,
        path: str | os.PathLike[str],
        algorithm: str = "auto",
        *,
        sites: Sites | None = None,
        time_limit_s: float | None = None,
        explain: bool = False,
        frontier: bool = False,
        problem_file: str | os.PathLike[str] | None = None,
    ) -> PlacementReport:
        """Return a placement of split proxies for the flows of a flows file (docs/reference/flows-file.md).

        Prices and round trips that the file does not have are those of the catalog. `sites` has the regions of a file
        that names none. `problem_file` keeps the placement problem that was solved. Other arguments are as in `place`.

        Raises ConfigError for an invalid file, UsageError for an unknown algorithm.
        """
        from tradewind.engine.placing import PlacementWish, place_flows

        wish = PlacementWish(algorithm, time_limit_s, explain, frontier)
        return place_flows(
            Path(path), wish, self.catalog.load(), sites, None if problem_file is None else Path(problem_file)
        )

    def advise(self, address: str) -> AdviceReport:
        """Return what limits a download of 1 GB from `HOST:PORT` or an http(s) URL, and what tuning the ends gains.

        Opens connections to it. Of a URL it downloads a part, for a few seconds.
        Raises UsageError for an invalid address, GatewayError for an unreachable one.
        """
        from tradewind.engine.advising import advise_address
        from tradewind.render.advice import AdviceReport

        return AdviceReport(advise_address(address))

    def advise_flows(
        self,
        path: str | os.PathLike[str],
        algorithm: str = "auto",
        *,
        sites: Sites | None = None,
        time_limit_s: float | None = None,
    ) -> AdviceReport:
        """Return for each flow of a file what limits it, what tuning its ends gains, and what proxies add and cost.

        Opens connections to the addresses of flows that begin or end at this machine. Arguments are as in
        `place_flows`. Raises ConfigError, UsageError.
        """
        from tradewind.engine.advising import advise_flows
        from tradewind.engine.placing import checked_limit_s
        from tradewind.model.flows import read_flows
        from tradewind.render.advice import AdviceReport

        limit_s = checked_limit_s(time_limit_s)
        advice = advise_flows(read_flows(path), str(path), self.catalog.load(), sites, algorithm, limit_s)
        return AdviceReport(advice)

    def use_case(
        self,
        case: str,
        flows: int,
        seed: int = 0,
        *,
        rtt: str | os.PathLike[str] | None = None,
        provider: str = "gcp",
        size_bytes: float | None = None,
        budget_usd: float | None = None,
        slow_start: bool = False,
        flows_file: str | os.PathLike[str] | None = None,
    ) -> dict[str, Any]:
        """Return the problem file of a use case, as a JSON object that `place` reads from a file.

        `case` is `one-to-many`, `many-to-many`, `many-one-to-one` or `localized-one-to-many` (CloudPilot, section 3).
        Round trips come from the CSV file `rtt`, or from the catalog for the regions of `provider`. A flow has 2 GB by
        default, and the budget is 0.50 USD for each flow.

        `flows_file` is written as the flows file of the use case (docs/reference/flows-file.md), with hosts that do not
        exist. The problem is then that of this file, with machines and prices of the catalog; `rtt` must be None.

        Raises ConfigError for an invalid file, UsageError for an invalid argument.
        """
        from tradewind.engine.use_cases import use_case_document

        return use_case_document(
            case,
            flows,
            seed,
            rtt=None if rtt is None else Path(rtt),
            provider=provider,
            state_dir=self.state_dir,
            size_bytes=size_bytes,
            budget_usd=budget_usd,
            slow_start=slow_start,
            flows_file=None if flows_file is None else Path(flows_file),
        )

    def run_accelerated(
        self,
        command: Sequence[str],
        through: str,
        to: Sequence[str] = (),
        *,
        token_file: str | None = None,
        by: str = "auto",
        refuse_quic: bool = False,
        note: Callable[[str], None] | None = None,
    ) -> AcceleratedRun:
        """Run a command whose connections to the destinations `to` go through the split proxy `through`.

        `token_file` has the proxy's token; without it, the variable TRADEWIND_PROXY_TOKEN has it. For the other
        arguments see `tradewind.acceleration.running.run_accelerated`.

        Raises UsageError for invalid arguments or if `by` is not possible here, GatewayError if the local proxy fails.
        """
        from tradewind.acceleration.running import run_accelerated
        from tradewind.acceleration.upstream import read_upstream

        upstream = read_upstream(through, token_file)
        return run_accelerated(command, upstream, to, by=by, refuse_quic=refuse_quic, gateway=self.gateway, note=note)

    def frontier(
        self, source: str, destination: str | list[str] | tuple[str, ...], **limits: Unpack[LimitArguments]
    ) -> TransferFrontier:
        """Return every efficient pair of cost and rate; arguments and errors are those of `plan`."""
        from tradewind.engine.planning import trace_frontier

        return trace_frontier(source, destination, **limits, state_dir=self.state_dir)

    def measure(
        self,
        sky: str,
        links: Sequence[str] = (),
        *,
        connections: int = 64,
        warm_up_s: float = 4.0,
        measure_s: float = 5.0,
        max_cost_usd: float | None = None,
    ) -> Measurement:
        """Prepare a measurement of links and quote its cost; `run` of the result starts the machines.

        Args:
            sky: path of a sky file.
            links: regions (`aws:us-east-1`), of which all ordered pairs are measured, and pairs (`FROM,TO`); none: all.
            connections: connections of each probe, 1 to 64.
            warm_up_s, measure_s: duration of the warm-up and of the measurement [s]; each at most 60 s.
            max_cost_usd: the measurement ends before a round that could exceed this [USD].

        Raises:
            UsageError: a word that is neither a region nor a pair, a region that the sky does not have, or a figure
                out of range.
            SkyFileError: the file is not a sky file.
        """
        from tradewind.engine.measuring import Measurement, probe_settings

        return Measurement(
            sky,
            links,
            probe_settings(connections, warm_up_s, measure_s),
            max_cost_usd=max_cost_usd,
            state_dir=self.state_dir,
            gateway=self.control.gateway,
        )

    @property
    def catalog(self) -> UserCatalog:
        """The catalog of the state folder: read, imported and refreshed."""
        from tradewind.engine.user_catalog import UserCatalog

        return UserCatalog(self.state_dir)

    @property
    def fleets(self) -> Fleets:
        """The fleets of the state folder."""
        from tradewind.engine.fleets import Fleets

        return Fleets(self.control.store, self._gateway)

    def warm_up(self, sites: Sites, regions: Sequence[str], *, machines: int, idle_s: float, kept_s: float) -> WarmUp:
        """Prepare a warm fleet with `machines` in each region, and quote its cost; `start` of the result rents them.

        They end when no transfer has used them for `idle_s`, and after `kept_s` at the latest. Raises UsageError,
        GatewayError.
        """
        from tradewind.engine.warm import warm_up

        return warm_up(self.control, sites, regions, machines=machines, idle_s=idle_s, kept_s=kept_s)

    def preview(self, request: Request) -> Preview:
        """Return the plan with which a transfer could avoid this machine. For errors see `preview_of`."""
        return preview_of(self.control, request)

    def propose(self, request: Request, *, keep: bool = False, credentials: GivenCredentials | None = None) -> Proposal:
        """Return how a request would be carried out, and its predicted cost. See `engine.proposal.propose`.

        With `keep` it is kept in the state folder, so that any process can start it by its id. With `credentials`
        the source is counted with these, and none of this machine; they are not kept.
        """
        proposal = propose(self.control, request, credentials)
        if keep:
            self.keep(proposal)
        self._open[proposal.id] = proposal
        proposal.held.callback(self._open.pop, proposal.id, None)
        return proposal

    def start(
        self,
        proposal: Proposal | str,
        *,
        argv: Sequence[str] = (),
        keep_logs: bool = False,
        guest: Guest | None = None,
        credentials: GivenCredentials | None = None,
        limit_bytes_per_s: int | None = None,
        is_to_stop: Callable[[], bool] | None = None,
    ) -> Job:
        """Start a proposal of this engine, or by its id one that any process has kept, and return at once.

        A proposal can be started once. A kept one must be no older than PROPOSAL_S_MAX, and all prices of its plan must
        still hold; `guest` is its guest, at the present address. `argv` is kept in the job's record. With `credentials`
        the job has these, and none of this machine; they are not kept. `limit_bytes_per_s` is a maximum
        rate beside that of the proposal. `is_to_stop` is called while machines start. If it returns true, they are
        ended, and this raises Interrupted.

        Raises UsageError, also for a proposal that was started or dropped, or belongs to another engine; TopologyError,
        GatewayError.
        """
        if isinstance(proposal, str):
            from tradewind.engine.kept_proposal import proposal_again

            proposal = proposal_again(self.control, proposal, guest)
            self._kept.add(proposal.id)
        elif self._open.pop(proposal.id, None) is None:
            raise UsageError(
                "the proposal was already started or dropped, or belongs to another engine", hint="propose again"
            )
        request, is_dry = proposal.request, proposal.options.dry_run
        launch = limited_launch(proposal.launch, limit_bytes_per_s)
        limit = lowest_limit(proposal.options.limit_bytes_per_s, limit_bytes_per_s)
        options = replace(proposal.options, limit_bytes_per_s=limit)
        deadline_s = request.goal.seconds if isinstance(request.goal, Deadline) else None
        try:
            if proposal.launch.plan_request is not None and proposal.id not in self._kept and not is_dry:
                self.keep(proposal)  # A resumed job asks the planner again.
            running = self.control.start(
                request.source,
                request.destination,
                options,
                replace(launch, deadline_s=deadline_s),
                verb=request.verb,
                argv=argv,
                keep_logs=keep_logs,
                proposal=proposal.id if proposal.id in self._kept and not is_dry else None,
                credentials=credentials,
                is_to_stop=is_to_stop,
            )
        except BaseException:
            proposal.drop()
            raise
        running.hold(proposal.held.pop_all())
        self._running.add(running)
        return Job(self.control, running.id, running, self._running.add)

    def started(self, proposal_id: str) -> Job | None:
        """Return the job that was made of a kept proposal by any process; None if it was not started.

        Raises JobNotFound, JobUnreadable, StateError.
        """
        job_id = ProposalStore(self.control.store.database).job_of(proposal_id)
        return None if job_id is None else self.job(job_id)

    def keep(self, proposal: Proposal) -> None:
        """Keep a proposal in the state folder, so that any process can start it by its id."""
        from tradewind.engine.kept_proposal import kept_proposal

        ProposalStore(self.control.store.database).save(proposal.id, kept_proposal(proposal))
        self._kept.add(proposal.id)

    def job(self, job_id: str) -> Job:
        """Return a job of any process without changing it. Raises JobNotFound, JobUnreadable."""
        self.control.store.load(job_id)
        return Job(self.control, job_id, None, self._running.add)

    def attach(self, job_id: str) -> Job:
        """Return a job of any process. If its process died, continue it in this one if possible.

        Raises JobNotFound, JobUnreadable, GatewayError; JobBusy if the lead of the dead process does not end.
        """
        from tradewind.engine.attach import ADOPTABLE

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
                time.sleep(LOOK_AGAIN_S)  # Another process adopted it first.
            except (UsageError, CeilingReached, SkyError):
                return job  # It is done, or cannot be continued; `resume` says why.

    def jobs(self) -> list[Job]:
        """Return all jobs of the state folder, oldest first."""
        return [Job(self.control, record.id, None, self._running.add) for record in self.records()]

    def records(self, on_unreadable: Callable[[JobUnreadable], None] | None = None) -> Iterator[JobRecord]:
        """Yield the records of all jobs, oldest first. `on_unreadable` is called for each unreadable one."""
        return self.control.store.records(on_unreadable)

    def prune(self, before_unix_ms: int, *, dry_run: bool = False) -> Pruned:
        """Remove the jobs created before this time that neither run nor can be resumed. Raises StateError.

        A job stays while a machine or fleet of it has not ended. With `dry_run` nothing is removed.
        """
        from tradewind.engine.pruning import prune

        return prune(self.control.store, before_unix_ms, dry_run=dry_run)

    def unfinished(
        self, source: UrlOrPath | Sequence[UrlOrPath], destination: UrlOrPath | Sequence[UrlOrPath]
    ) -> JobRecord | None:
        """Return the latest interrupted job with this source and destination. Only the last jobs are searched.

        Raises UsageError.
        """
        return self.control.unfinished(source, destination)

    def close(self) -> None:
        """Drain the running jobs of this process, and end what was started for them and for proposals."""
        for running in list(self._running):
            if running.summary is None:
                running.drain_to_end()
            running.close()
        for proposal in list(self._open.values()):
            proposal.drop()
