"""Running jobs: what the command line, notebooks and workflow engines call. No event loop is needed.

>>> import tradewind
>>> result = tradewind.copy("s3://bucket/data/", "/scratch/data", tradewind.Options(recursive=True))
>>> result.progress.objects_done
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.engine.compile import RunSettings, compile_programs
from tradewind.engine.event_log import EventLog
from tradewind.engine.event_store import EventStore
from tradewind.engine.gateways import JobGateways, end_abandoned, has_fleet
from tradewind.engine.jobs import LOCK_FILE, OBJECTS_FILE, JobRecord, JobStore, cancelling, new_job_id
from tradewind.engine.launch_spec import LaunchSpec, local_launch, stored_launch, topology_launch
from tradewind.engine.learning import EMULATED
from tradewind.engine.ledger import JobLedger, LedgerBook
from tradewind.engine.own_files import refuse_own_files
from tradewind.engine.request import Options, resolve
from tradewind.engine.running import (
    OVER_CEILING,
    EventCallback,
    Result,
    RunningJob,
    kill_unclosed,
    stopped_error,
)
from tradewind.engine.sources import keep_list, opened_list
from tradewind.engine.stored import ProposalStore, plan_document, plan_from_document
from tradewind.engine.topology import plan_of, topology_document
from tradewind.errors import (
    CeilingReached,
    GatewayError,
    GatewayLost,
    Interrupted,
    JobBusy,
    JobUnreadable,
    ProviderRefused,
    UsageError,
)
from tradewind.fleet.fleet import LEASE_S_MIN
from tradewind.fleet.home import drain_home
from tradewind.fleet.journal import FleetJournal
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.process import STOP_S
from tradewind.gateway.task import run_task, try_task
from tradewind.model.document import to_document
from tradewind.model.files import private_folder, state_folder
from tradewind.model.job import Deletion, JobSpec, ListSelection, ObjectFilter
from tradewind.model.ledger import Ledger
from tradewind.model.locks import FileLock
from tradewind.model.plan import Plan
from tradewind.model.units import format_count, format_usd
from tradewind.model.url import parse_url

if TYPE_CHECKING:
    from tradewind.engine.adapt import Adaptation

#: Maximum plans of a job before it begins, each without the machines that regions refused for the one before.
LAUNCH_PLANS_MAX = 4
#: Relative; a fleet that was given as long as the ceiling allows ends a little before.
CEILING_ROUNDING = 1e-3

#: The lead of a killed process drains, and its gateway ends, within so long.
ORPHAN_DRAIN_S = 30.0

#: A URL or a local path.
UrlOrPath = str | os.PathLike[str]


class Client:
    """Start, resume, cancel and list jobs.

    `state_dir` defaults to `$TRADEWIND_STATE_DIR`, or else `$XDG_STATE_HOME/tradewind`; `gateway` is the path of the
    gateway program, or None to find it automatically. A client holds no connection and may be shared by threads.
    """

    def __init__(self, *, state_dir: str | None = None, gateway: str | None = None) -> None:
        self.store = JobStore(state_dir)
        self._gateway = gateway

    @property
    def gateway(self) -> str:
        """Path of the gateway program. Raises GatewayError if it is missing."""
        return self._gateway or find_gateway()

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
        """Copy what differs; with `Options(delete=True)` also delete what the source does not have."""
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
        launch: LaunchSpec | None = None,
        verb: str = "cp",
        argv: Sequence[str] = (),
        keep_logs: bool = False,
        proposal: str | None = None,
    ) -> RunningJob:
        """Start a job and return at once. `setup` replaces `topology` for a planned transfer, `proposal` is its id.

        Raises UsageError, TopologyError, GatewayError.
        """
        options = options or Options()
        sources, destinations = _texts(source), _texts(destination)
        self.check_filter(options.filter)
        if launch is None:
            launch = local_launch() if topology is None else topology_launch(topology)
        spec = resolve(sources, destinations, options, launch.plan)
        refuse_own_files(spec, self.store.state_dir)
        job_id = new_job_id()
        settings = {
            "concurrency": options.concurrency,
            "store_work_s": options.store_work_s,
            "seal": options.seal,
        }
        with opened_list(options.files_from) as names:
            folder = self.store.make_folder(job_id)
            lock = None
            try:
                lock = self.store.hold(job_id)
                if names is not None and isinstance(spec.selection, ListSelection):
                    spec = replace(spec, selection=replace(spec.selection, list_file=keep_list(names, folder)))
                if not options.dry_run:
                    report = spec.report_file or os.path.join(folder, OBJECTS_FILE)
                    spec = replace(spec, state_dir=folder, report_file=report)
                    request = {
                        "verb": verb,
                        "source": shown_sources(sources),
                        "destinations": [shown(destination) for destination in destinations],
                        "argv": list(argv),
                        "settings": settings,
                        "provider": dict(launch.provider),
                        "ceiling": None if launch.ceiling_usd is None else {"usd": launch.ceiling_usd},
                    }
                    plan = plan_document(launch.plan)
                    self.store.create(job_id, spec, request, launch.document, plan=plan, proposal=proposal)
                    self.store.prune()
                overlay = launch.plan.overlay
                ledger = Ledger(launch.prices, None if overlay is None else overlay.cost.total_usd)
                return self._launch(job_id, spec, launch, settings, ledger, lock, folder=folder, keep_logs=keep_logs)
            except BaseException as error:
                if lock is not None:
                    lock.release()
                # Unless a lead has begun to work, there is no upload to abort, and only a paused job to resume.
                if not os.path.exists(os.path.join(folder, LOCK_FILE)) and not isinstance(error, Interrupted):
                    self.store.forget(job_id)
                raise

    def check_filter(self, filter: ObjectFilter) -> None:
        """Raise UsageError if a rule is not a valid glob, GatewayError if the gateway program cannot be run."""
        if filter.rules:
            try_task(self.gateway, {"task": "explain", "name": "any", "filter": to_document(filter)})

    def resume(
        self,
        job_id: str,
        *,
        keep_logs: bool = False,
        provider: Mapping[str, Any] | None = None,
        deletion: Deletion | None = None,
    ) -> RunningJob:
        """Resume an interrupted job, on machines of its old provider unless another is given.

        `deletion` replaces the limits of a job with `--delete`: with Deletion(keys_max=N, over_half=True) up to N
        objects are deleted; this confirms a job with `ask_delete`.

        Raises JobNotFound, JobBusy, UsageError if it has nothing left to do, CeilingReached if it has already reached
        its ceiling.
        """
        self.require_resumable(self.store.load(job_id))
        lock = self.store.hold(job_id)
        try:
            return self._resume(job_id, lock, keep_logs, provider, deletion)
        except BaseException:
            lock.release()
            raise

    def _resume(
        self,
        job_id: str,
        lock: FileLock,
        keep_logs: bool,
        provider: Mapping[str, Any] | None,
        deletion: Deletion | None,
    ) -> RunningJob:
        record = self.store.load(job_id)
        self.require_resumable(record)
        # Their machines are charged until now, so they end before the ledger is read.
        end_abandoned(FleetJournal(self.store.state_dir), self.gateway, job_id)
        document = record.document
        ledger = self.ledger(record)
        spec = replace(JobSpec.from_document(document["spec"]), resume=True)
        if deletion is not None and spec.delete is not None:
            spec = replace(spec, delete=deletion)
        is_ours = spec.report_file == os.path.join(self.store.path(job_id), OBJECTS_FILE)
        refuse_own_files(replace(spec, report_file=None) if is_ours else spec, self.store.state_dir)
        ceiling_usd = None if document.get("ceiling") is None else float(document["ceiling"]["usd"])
        now_s = time.time()
        if ceiling_usd is not None and self.book(job_id).is_damaged():
            raise JobUnreadable(
                f"job {job_id} is not resumed: its ledger cannot be read, so its ceiling could not be kept",
                hint="start a new job",
            )
        if ceiling_usd is not None and (spent_usd := ledger.total_usd(now_s)) >= ceiling_usd:
            raise CeilingReached(
                f"job {job_id} is not resumed: {OVER_CEILING}",
                hint=f"it has cost {format_usd(spent_usd)} of {format_usd(ceiling_usd)}; copied objects stay",
                job_id=job_id,
            )
        launch = stored_launch(
            document["topology"],
            provider or document.get("provider"),
            ceiling_usd,
            plan=self.plan(record, latest=True),
            proposed=ProposalStore(self.store.database).launch_of(job_id),
        )
        self.store.reopen(job_id)
        folder = self.store.path(job_id)
        settings, ended = document["settings"], ledger.ended(now_s)
        earlier_s = max(0.0, now_s - record.created_unix_ms / 1000)
        return self._launch(
            job_id, spec, launch, settings, ended, lock, folder=folder, keep_logs=keep_logs, earlier_s=earlier_s
        )

    def ledger(self, record: JobRecord) -> Ledger:
        """Return the cost of a job so far, line by line, also while it runs in another process."""
        return self.book(record.id).present(record.document, record.progress)

    def plan(self, record: JobRecord, *, latest: bool = False) -> Plan:
        """Return the plan of a job with all that the planner said of it: the first one, to which its predicted figures
        belong, or the latest. Raises TopologyError.
        """
        document = self.store.plan(record.id, latest=latest)
        with suppress(ValueError):  # Jobs of older versions have a topology alone.
            if document is not None:
                return plan_from_document(document)
        return plan_of(record.document["topology"])

    def book(self, job_id: str) -> LedgerBook:
        """Return the recorded ledger of a job."""
        return LedgerBook(self.store.database, job_id, self.store.path(job_id))

    def require_resumable(self, record: JobRecord) -> None:
        """Raise JobBusy if the job runs, UsageError if it has nothing left to do.

        The lead of a job whose process was killed drains first; it is waited for.
        """
        if not self.store.is_owned(record.id):
            with suppress(JobBusy):
                self.store.wait_lead_ended(record.id, ORPHAN_DRAIN_S)
            record = self.store.load(record.id)
        self.store.require_no_lead(record.id)
        if record.state in ("done", "cancelled"):
            raise UsageError(f"job {record.id} is {record.state}; there is nothing to resume")

    def pause(self, job_id: str) -> JobRecord:
        """Stop a running job at its next checkpoint, whichever process runs it; `resume` continues it.

        Returns when its machines are gone. Raises JobNotFound, JobBusy, UsageError if it does not run.
        """
        record = self.store.load(job_id)
        if record.state != "running":
            raise UsageError(f"job {job_id} is {record.state}; there is nothing to pause")
        self.store.set_paused(job_id, True)
        try:
            self._stop_running(job_id)
        except BaseException:
            self.store.set_paused(job_id, False)
            raise
        record = self.store.load(job_id)
        if record.state != "paused":
            self.store.set_paused(job_id, False)
            raise UsageError(f"job {job_id} is {record.state}; it ended before it could be paused")
        return record

    def cancel(self, job_id: str) -> JobRecord:
        """Stop a job if it runs, and abort its unfinished uploads. Copied objects stay. Raises JobNotFound."""
        record = self.store.load(job_id)
        if record.state in ("done", "cancelled"):
            raise UsageError(f"job {job_id} is {record.state}; there is nothing to cancel")
        with cancelling(self.store.path(job_id)):
            self._cancel(record)
        return self.store.load(job_id)

    def _cancel(self, record: JobRecord) -> None:
        job_id = record.id
        if record.state == "running":
            self._stop_running(job_id)
        lock = self.store.hold(job_id)
        try:
            self._abort(record)
        finally:
            lock.release()

    def _abort(self, record: JobRecord) -> None:
        """End the machines and uploads that a job has left behind."""
        job_id = record.id
        journal = FleetJournal(self.store.state_dir)
        end_abandoned(journal, self.gateway, job_id)
        if not has_fleet(journal, job_id):
            self.book(job_id).end_machines(time.time())
        if not os.path.exists(os.path.join(self.store.path(job_id), LOCK_FILE)):
            self.store.set_cancelled(job_id)  # No lead has begun, so there is nothing else to end.
            return
        stores = [target["store"] for target in record.document["spec"]["targets"]]
        task = {"task": "cancel", "state_dir": self.store.path(job_id), "stores": stores}
        code = run_task(self.gateway, task)
        if code != 0:
            raise GatewayError(f"job {job_id} could not be cancelled completely (exit code {code})")
        self.store.settle(job_id)

    def jobs(self) -> list[JobRecord]:
        """Return all jobs of the state folder, oldest first."""
        return [self._with_cost(record) for record in self.store.records()]

    def unfinished(
        self, source: UrlOrPath | Sequence[UrlOrPath], destination: UrlOrPath | Sequence[UrlOrPath]
    ) -> JobRecord | None:
        """Return the latest interrupted job with this source and destination. Raises UsageError.

        Only the last jobs are searched.
        """
        return self.store.unfinished(shown_sources(_texts(source)), [shown(place) for place in _texts(destination)])

    def job(self, job_id: str) -> JobRecord:
        """Return one job. Raises JobNotFound."""
        return self._with_cost(self.store.load(job_id))

    def _with_cost(self, record: JobRecord) -> JobRecord:
        """With the sum of the job's ledger as its cost, as its events tell it."""
        usd = self.ledger(record).total_usd(time.time())
        progress = replace(record.progress, cost_usd=usd)
        summary = record.summary
        if summary is not None:
            summary = replace(summary, progress=replace(summary.progress, cost_usd=usd))
        return replace(record, progress=progress, summary=summary)

    def _launch(
        self,
        job_id: str,
        spec: JobSpec,
        launch: LaunchSpec,
        settings: Mapping[str, Any],
        counted: Ledger,
        lock: FileLock,
        *,
        folder: str,
        keep_logs: bool,
        earlier_s: float = 0.0,
    ) -> RunningJob:
        state_folder(self.store.state_dir)
        private_folder(self.store.folder)
        private_folder(folder)
        ledger = JobLedger(
            counted,
            None if spec.state_dir is None else self.book(job_id),
            usd_max=launch.ceiling_usd,
            destinations=len(spec.targets),
            chunk_bytes=spec.chunk_bytes,
            moves=spec.delete_source,
            compares=spec.compare is not None or spec.delete is not None,
        )
        adaptation = self._adaptation(job_id, spec, launch, ledger, earlier_s)
        events = None if spec.state_dir is None else EventStore(self.store.database, job_id, folder)
        log = EventLog(store=events)

        def deploy(spec: JobSpec, plan: Plan) -> JobGateways:
            ledger.begin_run()
            room_s = ledger.room_s(plan)
            ready_s = min(launch.settings.ready_s, room_s)
            lease_s = math.ceil(min(launch.settings.lease_s, max(room_s - STOP_S, ready_s, LEASE_S_MIN)))
            try:
                gateways = JobGateways(
                    self.gateway,
                    plan,
                    folder,
                    self.store.state_dir,
                    launch.provider,
                    replace(launch.settings, ready_s=ready_s, lease_s=lease_s),
                    report=log.notice,
                    meter=ledger,
                )
            except GatewayError as error:
                if room_s < launch.settings.ready_s and ledger.spent_usd() >= ledger.usd * (1 - CEILING_ROUNDING):
                    raise CeilingReached(OVER_CEILING, hint="the machines were not ready by then") from error
                raise
            if spec.state_dir is not None and self.store.is_to_stop(job_id):
                gateways.kill()
                raise stopped_error(job_id, None, cancelled=self.store.is_cancelled(job_id))
            run = RunSettings(
                job_id,
                settings.get("concurrency"),
                secrets.token_hex(32) if _seals(settings, plan) else None,
                store_work_s=settings.get("store_work_s"),
            )
            self._deploy(spec, gateways, run, plan)
            if adaptation is not None:
                adaptation.begin(gateways, run)
            return gateways

        def deploy_again(spec: JobSpec, plan: Plan) -> JobGateways:
            return deploy(replace(spec, resume=True), plan)

        def deploy_first() -> tuple[JobGateways, JobSpec, Plan]:
            """Deploy; where regions refuse machines, plan without these."""
            first_spec, plan = spec, launch.plan
            for _ in range(LAUNCH_PLANS_MAX - 1):
                try:
                    return deploy(first_spec, plan), first_spec, plan
                except ProviderRefused as error:
                    if adaptation is None or not adaptation.plan_without(error):
                        raise
                    log.notice(f"{error}; planned again without")
                    first_spec, plan = adaptation.spec, adaptation.plan
            return deploy(first_spec, plan), first_spec, plan

        # Without a journal there is nothing to go on from.
        restart = None if spec.state_dir is None else deploy_again
        catalog_folder = None if launch.provider["kind"] in EMULATED else Path(self.store.state_dir) / "catalog"
        try:
            gateways, spec, plan = deploy_first()
        except BaseException as error:
            log.end(error)  # Nothing may be written behind the last event.
            if events is not None:
                events.end("failed", str(error))
            raise
        try:
            return RunningJob(
                job_id,
                spec,
                plan,
                gateways,
                log,
                restart=restart,
                keep_logs=keep_logs,
                catalog_folder=catalog_folder,
                ledger=ledger,
                lock=lock,
                adaptation=adaptation,
                store=self.store,
                events=events,
            )
        except BaseException as error:
            kill_unclosed(job_id)
            gateways.kill()
            log.end(error)  # Nothing may be written behind the last event.
            if events is not None:
                events.end("failed", str(error))
            raise

    def _adaptation(
        self, job_id: str, spec: JobSpec, launch: LaunchSpec, ledger: JobLedger, earlier_s: float
    ) -> Adaptation | None:
        """Return the adaptation that watches a planned job, and changes its plan if that is allowed."""
        if launch.plan_request is None:
            return None
        from tradewind.engine.adapt import Adaptation

        def changed(plan: Plan, spec: JobSpec) -> None:
            if spec.state_dir is not None:
                self.store.add_plan(job_id, spec, topology_document(plan), plan_document(plan))

        return Adaptation(
            launch.plan_request,
            launch.plan,
            spec,
            replan=launch.replan,
            on_change=changed,
            ledger=ledger,
            earlier_s=earlier_s,
        )

    def _deploy(self, spec: JobSpec, gateways: JobGateways, run: RunSettings, plan: Plan) -> None:
        """Gives the gateways their programs; the lead begins to work."""
        try:
            deployment = gateways.deployment()
            for name, program in compile_programs(deployment, spec, run).items():
                GatewayClient.of(deployment, name).put_program(to_document(program))
            if spec.state_dir is not None:
                self.store.set_lead(run.job_id, {"lead": plan.lead, "fleet": gateways.fleet_id})
        except BaseException:
            gateways.kill()
            raise

    def _stop_running(self, job_id: str) -> None:
        """Return when no process works on the job any more. Who runs it sees by itself that it is to stop."""
        self._drain_running(job_id)
        self.store.wait_lead_ended(job_id)
        self.store.wait_unowned(job_id)

    def _drain_running(self, job_id: str) -> None:
        try:
            run = self.store.lead(job_id) or {}
            drain_home(FleetJournal(self.store.state_dir).path(run["fleet"]), run["lead"])
        except (OSError, KeyError, GatewayLost):
            if self.store.has_lead(job_id) and not self.store.is_owned(job_id):
                raise JobBusy(f"job {job_id} is running, but its lead cannot be reached") from None


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


def shown(place: str) -> str:
    """A place as job lists show it: local paths absolute, pasted addresses by their store."""
    return str(parse_url(place, cwd=os.getcwd()))


def shown_sources(sources: Sequence[str]) -> str:
    """The sources of a job as job lists show them: the first, and how many more."""
    first = shown(sources[0])
    return first if len(sources) == 1 else f"{first} and {format_count(len(sources) - 1, 'more source')}"


def _texts(places: UrlOrPath | Sequence[UrlOrPath]) -> tuple[str, ...]:
    """One place or several, as text."""
    several = (places,) if isinstance(places, (str, os.PathLike)) else places
    return tuple(os.fspath(place) for place in several)


def _seals(settings: Mapping[str, Any], plan: Plan) -> bool:
    return bool(settings.get("seal")) and bool(plan.stations())
