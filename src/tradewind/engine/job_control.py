"""Job control: start, resume, pause and cancel jobs, and read their records, plans and ledgers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from tradewind.engine.gateways import EndedRuns, end_abandoned, open_fleets
from tradewind.engine.jobs import LOCK_FILE, OBJECTS_FILE, JobRecord, JobStore, cancelling, new_job_id
from tradewind.engine.launch_spec import LaunchSpec, limited_launch, plan_prices, stored_launch
from tradewind.engine.ledger import JobLedger, LedgerBook, LedgerDamaged, without_unlaunched
from tradewind.engine.own_files import refuse_own_files
from tradewind.engine.patterns import gateway_existence
from tradewind.engine.pruning import prune_oldest
from tradewind.engine.request import Options, UrlOrPath, place_texts, resolve
from tradewind.engine.result import OVER_CEILING
from tradewind.engine.running import RunningJob
from tradewind.engine.runs import RunStarter, stopped_start
from tradewind.engine.shown_places import shown, shown_sources
from tradewind.engine.sources import keep_list, list_path, opened_list, require_kept_list
from tradewind.engine.stop_watch import StopWatch
from tradewind.engine.stored import ProposalStore, plan_document, recorded_plan
from tradewind.errors import (
    CeilingReached,
    ConfigError,
    GatewayError,
    GatewayLost,
    Interrupted,
    JobBusy,
    JobUnreadable,
    StateError,
    TradewindError,
    UsageError,
)
from tradewind.fleet.given import GivenCredentials, surroundings
from tradewind.fleet.home import drain_home
from tradewind.fleet.journal import FleetJournal
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.task import run_task, try_task
from tradewind.model.clock import host_unix_s
from tradewind.model.document import to_document
from tradewind.model.files import private_folder, state_folder
from tradewind.model.job import Deletion, JobSpec, ListSelection, ObjectFilter, lowest_limit
from tradewind.model.ledger import Ledger
from tradewind.model.locks import FileLock
from tradewind.model.plan import Plan
from tradewind.model.records import replace
from tradewind.model.units import format_usd

if TYPE_CHECKING:
    from tradewind.engine.closed import ClosedPlaces
    from tradewind.fleet.remains import Remains

#: Timeout for the lead of a killed process to drain and for its gateway to end.
ORPHAN_DRAIN_S = 30.0


#: Options that the record of a job keeps for its later runs, beside its specification.
KEPT_SETTINGS = (
    "concurrency",
    "store_work_s",
    "dedup_window_bytes",
    "read_requests_start",
    "write_requests_start",
)


class JobControl:
    """Start, resume, pause, cancel and look up the jobs of a state folder.

    `state_dir` defaults to `$TRADEWIND_STATE_DIR`, or else `$XDG_STATE_HOME/tradewind`; `gateway` is the path of the
    gateway program, or None to find it automatically. `unix_s` is the clock of the ledgers, see `JobStore`; None for
    that of this machine. It holds no connection and may be shared by threads.
    """

    def __init__(
        self,
        *,
        state_dir: str | None = None,
        gateway: str | None = None,
        unix_s: Callable[[], float] | None = None,
    ) -> None:
        self.store = JobStore(state_dir, unix_s or host_unix_s)
        self._gateway = gateway

    @property
    def gateway(self) -> str:
        """Path of the gateway program. Raises GatewayError if it is missing."""
        return self._gateway or find_gateway()

    def start(
        self,
        source: UrlOrPath | Sequence[UrlOrPath],
        destination: UrlOrPath | Sequence[UrlOrPath],
        options: Options,
        launch: LaunchSpec,
        *,
        verb: str = "cp",
        argv: Sequence[str] = (),
        keep_logs: bool = False,
        proposal: str | None = None,
        credentials: GivenCredentials | None = None,
        is_to_stop: Callable[[], bool] | None = None,
    ) -> RunningJob:
        """Start a job and return at once. Its record keeps `argv` and the id of its proposal, but no `credentials`.

        `is_to_stop` is called while machines start. If it returns true, they are ended. Raises UsageError,
        GatewayError; Interrupted if that happened before the job began.
        """
        sources, destinations = place_texts(source), place_texts(destination)
        self.check_filter(options.filter)
        exists = gateway_existence(lambda: self.gateway, credentials)
        spec = resolve(sources, destinations, options, launch.plan, exists=exists)
        refuse_own_files(spec, self.store.state_dir)
        job_id = new_job_id()
        settings = {name: getattr(options, name) for name in KEPT_SETTINGS}
        with opened_list(options.files_from) as names:
            folder = self.store.make_folder(job_id)
            lock = None
            try:
                lock = self.store.hold(job_id)
                spec, kept_list = _with_kept_list(spec, names, folder)
                if not options.dry_run:
                    report = spec.report_file or os.path.join(folder, OBJECTS_FILE)
                    spec = replace(spec, state_dir=folder, report_file=report)
                    request = _request_document(verb, sources, destinations, argv, settings, launch, kept_list)
                    plan = plan_document(launch.plan)
                    self.store.create(job_id, spec, request, launch.document, plan=plan, proposal=proposal)
                overlay = launch.plan.overlay
                predicted_usd = None if overlay is None or launch.is_early else overlay.cost.total_usd
                ledger = Ledger(launch.prices, predicted_usd)
                running = self._run(
                    job_id,
                    spec,
                    launch,
                    settings,
                    ledger,
                    lock,
                    folder=folder,
                    keep_logs=keep_logs,
                    credentials=credentials,
                    is_to_stop=is_to_stop,
                )
            except BaseException as error:
                if lock is not None:
                    lock.release()
                if not self.store.has_begun(job_id) and not isinstance(error, Interrupted):
                    self._give_up(job_id)
                raise
        if not options.dry_run:
            try:
                # While the gateway works, this takes no time. What cannot be removed now is removed by a later job.
                with suppress(StateError, ConfigError, OSError):
                    prune_oldest(self.store)
            except BaseException:
                running.kill()  # Nobody would get the job.
                raise
        return running

    def _give_up(self, job_id: str) -> None:
        """Forget a new job whose lead has not started: there is no upload to abort, and nothing to resume.

        But a job whose machines have cost something keeps its record, and a resumed one its ceiling. An error here does
        not replace that of the start.
        """
        with suppress(TradewindError, OSError):
            if self._has_cost(job_id):
                self.store.set_start_failed(job_id)
            else:
                self.store.forget(job_id)

    def _has_cost(self, job_id: str) -> bool:
        """Return whether the recorded ledger of a job has a cost, or cannot be read."""
        book = self.book(job_id)
        try:
            ledger = book.read()
            return book.is_damaged() if ledger is None else ledger.total_usd(self.store.unix_s()) > 0
        except StateError:
            return True

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
        credentials: GivenCredentials | None = None,
        limit_bytes_per_s: int | None = None,
        is_to_stop: Callable[[], bool] | None = None,
    ) -> RunningJob:
        """Resume an interrupted job, on machines of its previous provider unless another is given.

        `deletion` replaces the limits of a job with `--delete`: with Deletion(keys_max=N, over_half=True) up to N
        objects are deleted; this confirms a job with `ask_delete`. A job that was started with `credentials` needs them
        again. `limit_bytes_per_s` is a maximum rate of this run beside that of the job. `is_to_stop` is as in `start`.

        Raises JobNotFound, JobBusy, UsageError if it has nothing left to do, CeilingReached if it has already reached
        its ceiling.
        """
        self.require_resumable(self.store.load(job_id), is_to_stop)
        lock = self.store.hold(job_id)
        try:
            return self._resume(job_id, lock, keep_logs, provider, deletion, credentials, limit_bytes_per_s, is_to_stop)
        except BaseException as error:
            lock.release()
            is_start = not isinstance(error, Interrupted) and not self.store.has_begun(job_id)
            with suppress(TradewindError, OSError):  # It does not replace the error of the start.
                if is_start and self.store.load(job_id).state == "interrupted":
                    self.store.set_start_failed(job_id)
            raise

    def _resume(
        self,
        job_id: str,
        lock: FileLock,
        keep_logs: bool,
        provider: Mapping[str, Any] | None,
        deletion: Deletion | None,
        credentials: GivenCredentials | None,
        limit_bytes_per_s: int | None,
        is_to_stop: Callable[[], bool] | None,
    ) -> RunningJob:
        record = self.store.load(job_id)
        self.require_resumable(record, is_to_stop)
        # Their machines are charged until now, so end them before reading the ledger.
        journal = FleetJournal(self.store.state_dir, self.store.unix_s)
        ended_runs = self._end_former(journal, job_id, is_to_stop)
        document = record.document
        # Those that may not be ended here, such as after a reboot, are billed until their leases have expired.
        ledger = without_unlaunched(self._known_ledger(record), ended_runs.unlaunched)
        ledger = ledger.ended(math.inf, open_fleets(journal, job_id))
        spec = replace(JobSpec.from_document(document["spec"]), resume=True)
        if isinstance(spec.selection, ListSelection):
            require_kept_list(self.store.path(job_id), document.get("list"))
        if deletion is not None and spec.delete is not None:
            spec = replace(spec, delete=deletion)
        spec = replace(spec, rate_limit_bytes_per_s=lowest_limit(spec.rate_limit_bytes_per_s, limit_bytes_per_s))
        is_ours = spec.report_file == os.path.join(self.store.path(job_id), OBJECTS_FILE)
        refuse_own_files(replace(spec, report_file=None) if is_ours else spec, self.store.state_dir)
        ceiling_usd = None if document.get("ceiling") is None else float(document["ceiling"]["usd"])
        now_s = self.store.unix_s()
        if ceiling_usd is not None and self.book(job_id).is_damaged():
            raise JobUnreadable(
                f"job {job_id} is not resumed: its ledger cannot be read, so its ceiling could not be enforced",
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
            provider or _present(document.get("provider")),
            ceiling_usd,
            plan=self.plan_of(record, latest=True),
            proposed=ProposalStore(self.store.database).launch_of(job_id),
        )
        launch = replace(limited_launch(launch, limit_bytes_per_s), deadline_s=document.get("deadline_s"))
        if provider is not None:
            launch = replace(launch, warm=None)  # Its machines are the earlier provider's.
        ledger = _with_prices_of(ledger, launch)
        self.store.reopen(job_id)
        folder = self.store.path(job_id)
        settings, ended = document["settings"], ledger.ended(now_s)
        earlier_s = max(0.0, now_s - record.created_unix_ms / 1000)
        return self._run(
            job_id,
            spec,
            launch,
            settings,
            ended,
            lock,
            folder=folder,
            keep_logs=keep_logs,
            earlier_s=earlier_s,
            credentials=credentials,
            is_to_stop=is_to_stop,
            remains=ended_runs.left,
        )

    def _end_former(self, journal: FleetJournal, job_id: str, is_to_stop: Callable[[], bool] | None) -> EndedRuns:
        """End the machines of killed runs of a job that is resumed. Raises Interrupted if it is stopped meanwhile."""
        was_paused = self.store.is_to_stop(job_id)

        def is_asked() -> bool:
            if is_to_stop is not None and is_to_stop():
                return True
            return self.store.is_cancelled(job_id) if was_paused else self.store.is_to_stop(job_id)

        return self._end_abandoned(journal, job_id, is_asked)

    def _end_abandoned(self, journal: FleetJournal, job_id: str, is_asked: Callable[[], bool] | None) -> EndedRuns:
        """Do what `end_abandoned` does. Raises Interrupted if `is_asked` has told it to stop."""
        if is_asked is None:
            return end_abandoned(journal, self.gateway, job_id)
        watch = StopWatch(is_asked)
        try:
            with watch:
                return end_abandoned(journal, self.gateway, job_id, watch.stopping)
        except GatewayError as error:
            if watch.is_asked:
                raise stopped_start(self.store, job_id) from error
            raise

    def plan_around(self, job_id: str, closed: ClosedPlaces, is_to_stop: Callable[[], bool] | None = None) -> Plan:
        """Return the plan of a job's next run, without closed places if there is such a plan; see `plan_rest`.

        Raises JobNotFound, JobUnreadable, JobBusy if the job runs, UsageError if it has nothing left to do,
        GatewayError, TopologyError; Interrupted if `is_to_stop` ends the wait for a killed run or its machines.
        """
        from tradewind.engine.rest import plan_rest

        record = self.store.load(job_id)
        plan = self.plan_of(record, latest=True)
        if plan.overlay is None or not closed.used_by(plan):
            return plan
        self.require_resumable(record, is_to_stop)
        # Machines of killed runs are charged until now, so end them before reading the ledger.
        self.end_machines(job_id, is_to_stop)
        with ExitStack() as held:
            held.callback(self.store.hold(job_id).release)
            record = self.store.load(job_id)
            return plan_rest(self.store, record, self._known_ledger(record), closed)

    def ledger(self, record: JobRecord) -> Ledger:
        """Return the cost of a job so far, line by line, even while another process runs it.

        Raises StateError, also if its ledger is damaged.
        """
        book = self.book(record.id)
        return book.present(record.document, record.progress, book.whole())

    def _known_ledger(self, record: JobRecord) -> Ledger:
        """Return what is known of the cost of a job. A job without a ceiling can be resumed without its ledger."""
        book = self.book(record.id)
        return book.present(record.document, record.progress, book.read())

    def plan_of(self, record: JobRecord, *, latest: bool = False) -> Plan:
        """Return the first plan of a job, to which its predicted figures belong, or the latest one. It has all figures
        of the planner. Raises TopologyError.
        """
        return recorded_plan(self.store, record, latest=latest)

    def book(self, job_id: str) -> LedgerBook:
        """Return the recorded ledger of a job."""
        return LedgerBook(self.store.database, job_id, self.store.path(job_id))

    def require_resumable(self, record: JobRecord, is_to_stop: Callable[[], bool] | None = None) -> None:
        """Raise JobBusy if the job runs, UsageError if it has nothing left to do.

        Waits until the lead of a killed process has drained. Raises Interrupted if `is_to_stop` ends the wait.
        """
        if not self.store.is_owned(record.id):
            self._wait_drained(record.id, is_to_stop)
            record = self.store.load(record.id)
        self.store.require_no_lead(record.id)
        if record.state in ("done", "cancelled"):
            raise UsageError(f"job {record.id} is {record.state}; there is nothing to resume")

    def _wait_drained(self, job_id: str, is_to_stop: Callable[[], bool] | None) -> None:
        """Wait for the lead of a killed process. Raises Interrupted if `is_to_stop` ends the wait."""
        if is_to_stop is None or not self.store.has_lead(job_id):
            with suppress(JobBusy):
                self.store.wait_lead_ended(job_id, ORPHAN_DRAIN_S)
            return
        watch = StopWatch(is_to_stop)
        with suppress(JobBusy), watch:
            self.store.wait_lead_ended(job_id, ORPHAN_DRAIN_S, watch.stopping.is_set)
        if watch.is_asked:
            raise stopped_start(self.store, job_id)

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

    def cancel(self, job_id: str, credentials: GivenCredentials | None = None, *, quiet: bool = True) -> JobRecord:
        """Stop a job if it runs, and abort its unfinished uploads. Copied objects stay. Raises JobNotFound.

        Unless `quiet`, the number of aborted uploads is written to standard error.
        """
        record = self.store.load(job_id)
        if record.state in ("done", "cancelled"):
            raise UsageError(f"job {job_id} is {record.state}; there is nothing to cancel")
        with cancelling(self.store.path(job_id)):
            self._cancel(record, credentials, quiet=quiet)
        return self.store.load(job_id)

    def _cancel(self, record: JobRecord, credentials: GivenCredentials | None, *, quiet: bool) -> None:
        job_id = record.id
        if record.state == "running":
            self._stop_running(job_id)
        lock, journal = self.store.hold(job_id), FleetJournal(self.store.state_dir, self.store.unix_s)
        unlaunched: Mapping[str, Collection[str]] = {}
        try:
            unlaunched = end_abandoned(journal, self.gateway, job_id).unlaunched
            self._abort(record, credentials, quiet=quiet)
        finally:
            lock.release()
            self._end_charges(journal, job_id, unlaunched)

    def end_machines(self, job_id: str, is_to_stop: Callable[[], bool] | None = None) -> None:
        """End the machines that a killed run of a job has left behind, and their charges.

        Raises JobNotFound, JobBusy if the job runs, GatewayError if a provider does not answer; Interrupted if
        `is_to_stop` ends the wait for it, or for another command that is ending the machines.
        """
        journal = FleetJournal(self.store.state_dir, self.store.unix_s)
        lock = self.store.hold(job_id)
        try:
            unlaunched = self._end_abandoned(journal, job_id, is_to_stop).unlaunched
        finally:
            lock.release()
        self._end_charges(journal, job_id, unlaunched)

    def _end_charges(self, journal: FleetJournal, job_id: str, unlaunched: Mapping[str, Collection[str]]) -> None:
        """Record that the machines of a job have ended, if they have. The ledger has the job's lock meanwhile."""
        if not open_fleets(journal, job_id):
            self.book(job_id).end_machines(self.store.unix_s(), unlaunched)

    def _abort(self, record: JobRecord, credentials: GivenCredentials | None, *, quiet: bool) -> None:
        """Abort the uploads that a job left behind."""
        job_id = record.id
        stores = [target["store"] for target in record.document["spec"]["targets"]]
        if not os.path.exists(os.path.join(self.store.path(job_id), LOCK_FILE)):
            from tradewind.engine.guest_leftovers import abort_leftovers
            from tradewind.fleet.guest_uploads import kept_uploads

            # No lead has started here. That of a guest has left what it has reported.
            folder = self.store.path(job_id)
            with surroundings(credentials) as around:
                abort_leftovers(self.gateway, folder, stores, around, kept_uploads(folder))
            self.store.set_cancelled(job_id)
            return
        task = {"task": "cancel", "state_dir": self.store.path(job_id), "stores": stores}
        with surroundings(credentials) as around:
            code = run_task(self.gateway, task, around, quiet=quiet)
        if code != 0:
            raise GatewayError(f"job {job_id} could not be cancelled completely (exit code {code})")
        self.store.settle(job_id)

    def abort_left_uploads(self, job_id: str, credentials: GivenCredentials | None) -> None:
        """Abort the uploads that earlier hosts of a guest have left, after the last one has finished the job.

        Raises JobNotFound, GatewayError, OSError.
        """
        from tradewind.engine.guest_leftovers import abort_leftovers
        from tradewind.fleet.guest_uploads import forget_uploads, left_uploads

        folder = self.store.path(job_id)
        if uploads := left_uploads(folder):
            stores = [target["store"] for target in self.store.load(job_id).document["spec"]["targets"]]
            with surroundings(credentials) as around:
                abort_leftovers(self.gateway, folder, stores, around, uploads)
        forget_uploads(folder)

    def jobs(self) -> list[JobRecord]:
        """Return all jobs of the state folder, oldest first, without those whose record or ledger is damaged."""
        found = []
        for record in self.store.records():
            with suppress(LedgerDamaged):
                found.append(self._with_cost(record))
        return found

    def unfinished(
        self, source: UrlOrPath | Sequence[UrlOrPath], destination: UrlOrPath | Sequence[UrlOrPath]
    ) -> JobRecord | None:
        """Return the latest interrupted job with this source and destination. Raises UsageError.

        Only the last jobs are searched.
        """
        return self.store.unfinished(
            shown_sources(place_texts(source)), [shown(place) for place in place_texts(destination)]
        )

    def job(self, job_id: str) -> JobRecord:
        """Return one job. Raises JobNotFound."""
        return self._with_cost(self.store.load(job_id))

    def _with_cost(self, record: JobRecord) -> JobRecord:
        """Return the record with its cost from the ledger, as its events report it."""
        usd = self.ledger(record).total_usd(self.store.unix_s())
        progress = replace(record.progress, cost_usd=usd)
        summary = record.summary
        if summary is not None:
            summary = replace(summary, progress=replace(summary.progress, cost_usd=usd))
        return replace(record, progress=progress, summary=summary)

    def _run(
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
        credentials: GivenCredentials | None,
        is_to_stop: Callable[[], bool] | None,
        remains: Sequence[Remains] = (),
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
            unix_s=self.store.unix_s(),
        )
        starter = RunStarter(
            self.store,
            self.gateway,
            job_id,
            spec,
            launch,
            settings,
            ledger,
            folder=folder,
            earlier_s=earlier_s,
            credentials=credentials,
            is_to_stop=is_to_stop,
            remains=remains,
        )
        return starter.start(lock, keep_logs=keep_logs)

    def _stop_running(self, job_id: str) -> None:
        """Wait until no process works on the job; its owner notices the request to stop by itself."""
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


def _request_document(
    verb: str,
    sources: Sequence[str],
    destinations: Sequence[str],
    argv: Sequence[str],
    settings: Mapping[str, Any],
    launch: LaunchSpec,
    kept_list: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return what a job's record keeps of the request for it."""
    return {
        "verb": verb,
        "source": shown_sources(sources),
        "destinations": [shown(destination) for destination in destinations],
        "argv": list(argv),
        "settings": settings,
        "provider": dict(launch.provider),
        "ceiling": None if launch.ceiling_usd is None else {"usd": launch.ceiling_usd},
        "deadline_s": launch.deadline_s,
        "list": kept_list,
    }


def _with_kept_list(spec: JobSpec, names: BinaryIO | None, folder: str) -> tuple[JobSpec, Mapping[str, Any] | None]:
    """Return the spec of a job that reads the copy of its list in its folder, and what is recorded of that copy.

    Without a list, the same spec and None. Raises UsageError, OSError.
    """
    if names is None or not isinstance(spec.selection, ListSelection):
        return spec, None
    kept = keep_list(names, folder)
    return replace(spec, selection=replace(spec.selection, list_file=list_path(folder))), kept


def _with_prices_of(ledger: Ledger, launch: LaunchSpec) -> Ledger:
    """Add the prices of a plan that was made between two runs: it may have other regions, and other types of machines.

    Machines that were launched before keep their own prices.
    """
    if launch.plan_request is None:
        return ledger
    planned = plan_prices(launch.plan, launch.plan_request.catalog)
    prices = replace(ledger.prices, machines={**ledger.prices.machines, **planned.machines})
    return replace(ledger, prices=prices.joined(planned))


def _present(provider: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the provider of an earlier run as it is now; None without one."""
    if not provider:
        return None
    from tradewind.engine.ground import with_present_home

    return with_present_home(provider)
