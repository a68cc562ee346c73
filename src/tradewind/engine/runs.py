"""Start a run of a job: its machines, their programs, and the supervisor that follows it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.engine.compile import RunSettings, compile_programs
from tradewind.engine.event_log import EventLog
from tradewind.engine.event_store import EventStore
from tradewind.engine.flat_moves import keeping_moved_copies
from tradewind.engine.gateways import JobGateways, WarmChoice
from tradewind.engine.jobs import JobStore
from tradewind.engine.launch_spec import LaunchSpec
from tradewind.engine.learning import EMULATED
from tradewind.engine.ledger import JobLedger
from tradewind.engine.result import OVER_CEILING, resume_hint, stopped_error
from tradewind.engine.running import RunningJob, kill_unclosed
from tradewind.engine.stop_watch import StopWatch
from tradewind.engine.stored import plan_document
from tradewind.errors import CeilingReached, GatewayError, Interrupted, MachineReclaimed, ProviderRefused, recorded_text
from tradewind.fleet.given import GivenCredentials
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.leases import lease_within
from tradewind.model.clock import elapsed_s
from tradewind.model.job import JobSpec
from tradewind.model.latch import Latch
from tradewind.model.locks import FileLock
from tradewind.model.plan import Plan
from tradewind.model.records import replace

if TYPE_CHECKING:
    from tradewind.engine.adapt import Adaptation
    from tradewind.fleet.fleet import Replanner
    from tradewind.fleet.remains import Remains

__all__ = ["RunStarter", "stopped_start"]

#: Maximum plans of a job before it begins, each without the machines that regions refused for the one before.
LAUNCH_PLANS_MAX = 4
#: Maximum starts of a job's machines, or of some of them, if spot machines end before they have work. A machine that
#: cannot boot ends, too.
SPOT_STARTS_MAX = 2
#: Relative tolerance: a fleet whose timeout is the time that the ceiling allows ends a little earlier.
CEILING_ROUNDING = 1e-3
STARTING = "stopped before its machines had started"


def stopped_start(store: JobStore | None, job_id: str) -> Interrupted:
    """Return the error of a run that was stopped before it began. A job that keeps nothing has no `store`."""
    if store is not None and store.is_to_stop(job_id):
        return stopped_error(job_id, None, cancelled=store.is_cancelled(job_id))
    return Interrupted(STARTING, hint=resume_hint(job_id), job_id=job_id)


class RunStarter:
    """Starts one run of a job, and its lead again if that dies.

    `settings` are those of the job's record; `ledger` has the cost of earlier runs. `earlier_s` is the time since the
    job began [s], `remains` what killed runs have left. With `credentials` the run has these, and none of this machine.
    While machines start, the run ends at once if `is_to_stop` says so, or another process asks the job to stop.
    """

    def __init__(
        self,
        store: JobStore,
        gateway: str,
        job_id: str,
        spec: JobSpec,
        launch: LaunchSpec,
        settings: Mapping[str, Any],
        ledger: JobLedger,
        *,
        folder: str,
        earlier_s: float = 0.0,
        credentials: GivenCredentials | None = None,
        is_to_stop: Callable[[], bool] | None = None,
        remains: Sequence[Remains] = (),
    ) -> None:
        self._store, self._gateway, self._folder = store, gateway, folder
        self._job_id, self._spec, self._launch, self._settings = job_id, spec, launch, settings
        self._ledger, self._credentials, self._asked_to_stop = ledger, credentials, is_to_stop
        self._remains = remains
        #: Number of plans so far, before the job begins.
        self._plans = 1
        #: Number of starts so far, because spot machines have ended before they had work.
        self._starts = 1
        #: True once the machines of a run were there.
        self._is_under_way = False
        self._is_recorded = spec.state_dir is not None
        self._events = EventStore(store.database, job_id, folder, store.unix_s) if self._is_recorded else None
        self._log = EventLog(store=self._events)
        self._adaptation = self._make_adaptation(earlier_s)
        #: The time of `elapsed_s` at which the job began.
        self._begun_s = elapsed_s() - earlier_s

    def start(self, lock: FileLock, *, keep_logs: bool) -> RunningJob:
        """Start the run. With it, `lock` is released when its machines are gone. Raises GatewayError, CeilingReached,
        Interrupted if another process asked the job to stop meanwhile.
        """
        emulated = self._launch.provider["kind"] in EMULATED
        gateways: JobGateways | None = None
        try:
            gateways, spec, plan = self._deploy_first()
            return RunningJob(
                self._job_id,
                spec,
                plan,
                gateways,
                self._log,
                # Without a journal there is nothing to resume from.
                restart=self._deploy_again if self._is_recorded else None,
                keep_logs=keep_logs,
                catalog_folder=None if emulated else Path(self._store.state_dir) / "catalog",
                ledger=self._ledger,
                lock=lock,
                adaptation=self._adaptation,
                store=self._store,
                events=self._events,
                deadline_s=self._launch.deadline_s if self._is_recorded else None,
                begun_s=self._begun_s,
                remains=self._remains,
            )
        except BaseException as error:
            if gateways is not None:
                kill_unclosed(self._job_id)
                gateways.kill()
            self._log.end(error)  # Nothing may be written behind the last event.
            if self._events is not None:
                self._events.end("interrupted" if isinstance(error, Interrupted) else "failed", recorded_text(error))
            raise

    def _deploy_first(self) -> tuple[JobGateways, JobSpec, Plan]:
        """Deploy the plan; if regions refuse machines, plan without these machines. Those that run already stay.

        If a spot machine is taken back once all have answered, start all machines again, unless they were warm ones.
        """
        while True:
            try:
                gateways = self._deploy(*self._planned, replan=self._plan_after)
            except ProviderRefused as error:
                if self._plan_without(error) is None:  # None of its machines was ordered, or none could stay.
                    raise
            except MachineReclaimed as error:
                if not self._may_start_again():
                    raise
                self._log.notice(f"{recorded_text(error)}; all machines are started again")
            else:
                return gateways, *self._planned

    @property
    def _planned(self) -> tuple[JobSpec, Plan]:
        """The job and the plan with which it begins."""
        if self._adaptation is None:
            return self._spec, self._launch.plan
        return self._adaptation.spec, self._adaptation.plan

    def _may_start_again(self) -> bool:
        if self._starts == SPOT_STARTS_MAX or self._launch.warm is not None:
            return False
        self._starts += 1
        return True

    def _plan_after(
        self, error: ProviderRefused | MachineReclaimed, running: Collection[str]
    ) -> tuple[Plan, float] | None:
        """Return a plan without refused machines, or the same plan after the loss of spot machines.

        None if there is none. Raises CeilingReached.
        """
        if isinstance(error, ProviderRefused):
            return self._plan_without(error, running)
        if not self._may_start_again():
            return None
        _, plan = self._planned
        room_s = self._ledger.room_s(plan, without=running)
        self._log.notice(f"{recorded_text(error)}; another machine is started in its place")
        return plan, room_s

    def _plan_without(self, error: ProviderRefused, running: Collection[str] = ()) -> tuple[Plan, float] | None:
        """Return a plan without refused machines, with those that run if it can have them, and how long it may run [s].

        None if there is none, or after LAUNCH_PLANS_MAX. Raises CeilingReached.
        """
        if self._adaptation is None or self._plans == LAUNCH_PLANS_MAX:
            return None
        found = self._adaptation.plan_without(error, running)
        if found is None:
            return None
        self._plans += 1
        self._log.notice(f"{recorded_text(error)}; replanned without these machines, {found}")
        plan = self._adaptation.plan
        return plan, self._ledger.room_s(plan, without=running)

    def _deploy_again(self, spec: JobSpec, plan: Plan, is_left: Callable[[], bool]) -> JobGateways:
        return self._deploy(replace(spec, resume=True), plan, is_left)

    def _deploy(
        self,
        spec: JobSpec,
        plan: Plan,
        is_left: Callable[[], bool] = lambda: False,
        replan: Replanner | None = None,
    ) -> JobGateways:
        """Start the machines of a plan and give them their programs, within the rest of the ceiling.

        Once `is_left` returns true, they are ended. With `replan`, the plan may become another one.
        """

        def is_to_stop() -> bool:
            return is_left() or self._is_to_stop()

        self._ledger.begin_run()
        watch = StopWatch(is_to_stop)
        try:
            with watch:
                gateways = self._start_machines(plan, watch.stopping, replan)
        except GatewayError as error:
            if watch.is_asked:
                raise self._stopped() from error
            raise
        self._is_under_way = True
        if replan is not None:
            spec, plan = self._planned
        try:
            if watch.is_asked or is_to_stop():
                raise self._stopped()
            run = RunSettings(
                self._job_id,
                self._settings.get("concurrency"),
                # As `secrets.token_hex`, whose import costs 3 ms.
                os.urandom(32).hex() if plan.stations() else None,
                store_work_s=self._settings.get("store_work_s"),
                dedup_window_bytes=self._settings.get("dedup_window_bytes"),
                read_requests_start=self._settings.get("read_requests_start"),
                write_requests_start=self._settings.get("write_requests_start"),
            )
            self._push_programs(gateways, keeping_moved_copies(spec), run, plan)
            if self._adaptation is not None:
                self._adaptation.begin(gateways, run)
        except BaseException:
            gateways.kill()
            raise
        return gateways

    def _is_to_stop(self) -> bool:
        """Return whether the caller, or another process, wants the job to stop."""
        if self._asked_to_stop is not None and self._asked_to_stop():
            return True
        return self._is_recorded and self._store.is_to_stop(self._job_id)

    def _stopped(self) -> Interrupted:
        return stopped_start(self._store if self._is_recorded else None, self._job_id)

    def _start_machines(self, plan: Plan, stopping: Latch, replan: Replanner | None) -> JobGateways:
        ledger, settings = self._ledger, self._launch.settings
        room_s = ledger.room_s(plan)
        ready_s = min(settings.ready_s, room_s)
        lease_s = lease_within(room_s, settings.lease_s, ready_s)
        try:
            return JobGateways(
                self._gateway,
                plan,
                self._folder,
                FleetJournal(self._store.state_dir, self._store.unix_s),
                self._launch.provider,
                replace(settings, ready_s=ready_s, lease_s=lease_s),
                report=self._log.notice,
                meter=ledger,
                warm=self._warm(),
                credentials=self._credentials,
                stopping=stopping,
                replan=replan,
            )
        except GatewayError as error:
            if ledger.spent_usd() >= ledger.usd * (1 - CEILING_ROUNDING):
                raise CeilingReached(OVER_CEILING, hint="the machines were not ready by then") from error
            raise

    def _warm(self) -> WarmChoice | None:
        """Return the warm fleet to use. A user has agreed to the plan for its machines, so a new job must not rent
        others instead. A later run must go on, within the job's ceiling.
        """
        fleet = self._launch.warm
        return None if fleet is None else WarmChoice(fleet, is_required=not (self._spec.resume or self._is_under_way))

    def _push_programs(self, gateways: JobGateways, spec: JobSpec, run: RunSettings, plan: Plan) -> None:
        """Give the gateways their programs; the lead begins to work.

        Raises GatewayError, MachineReclaimed if only spot machines have ended.
        """
        deployment = gateways.deployment()
        try:
            for program in compile_programs(deployment, spec, run).values():
                gateways.give_program(deployment, program)
        except GatewayError as error:
            living = gateways.living() | {plan.lead}
            gone = [one for one in plan.gateways if one.name not in living]
            if not gone:
                raise
            more = "" if len(gone) == 1 else f" and {len(gone) - 1} more"
            kind = MachineReclaimed if gateways.spot().issuperset(one.name for one in gone) else GatewayError
            raise kind(
                f"machine {gone[0].name} in {gone[0].region}{more} ended before it had work",
                hint="the other machines were ended; run the command again",
            ) from error
        if self._is_recorded:
            self._store.set_lead(self._job_id, {"lead": plan.lead, "fleet": gateways.fleet_id})

    def _make_adaptation(self, earlier_s: float) -> Adaptation | None:
        """Return the adaptation that watches a planned job, and changes its plan if that is allowed."""
        if self._launch.plan_request is None:
            return None
        from tradewind.engine.adapt import Adaptation

        return Adaptation(
            self._launch.plan_request,
            self._launch.plan,
            self._spec,
            replan=self._launch.replan,
            on_change=self._record_plan,
            ledger=self._ledger,
            earlier_s=earlier_s,
            is_early=self._launch.is_early,
        )

    def _record_plan(self, plan: Plan, spec: JobSpec) -> None:
        if self._is_recorded:
            from tradewind.engine.topology import topology_document

            self._store.add_plan(self._job_id, spec, topology_document(plan), plan_document(plan))
