"""Running jobs: what the command line, notebooks and workflow engines call. No event loop is needed.

>>> import tradewind
>>> result = tradewind.copy("s3://bucket/data/", "/scratch/data", tradewind.Options(recursive=True))
>>> result.progress.objects_done
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import (
    ERROR_BY_OUTCOME,
    CeilingReached,
    ConfigError,
    GatewayError,
    GatewayLost,
    Interrupted,
    JobBusy,
    TransferError,
    UsageError,
)
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.processes import ControlFolder
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.find import find_gateway
from tradewind.gateway.task import run_task, try_task
from tradewind.model.document import to_document
from tradewind.model.event import Event, Progress, Summary, event_from_document
from tradewind.model.job import JobSpec, ObjectFilter
from tradewind.model.plan import Plan
from tradewind.model.units import format_count
from tradewind.model.url import parse_url
from tradewind.transfer.compile import RunSettings, compile_programs
from tradewind.transfer.jobs import JobRecord, JobStore, new_job_id, write_json
from tradewind.transfer.launch import JobGateways, end_abandoned
from tradewind.transfer.learning import EMULATED, RouteWatch, learn, teaching_hops
from tradewind.transfer.report import spent_usd
from tradewind.transfer.request import Options, resolve
from tradewind.transfer.topology import topology_document
from tradewind.transfer.way import Ceiling, Way, local_way, stored_way, topology_way

if TYPE_CHECKING:
    from tradewind.transfer.adapt import Adaptation

EventCallback = Callable[[Event], None]
#: A URL or a local path.
Place = str | os.PathLike[str]
#: Where a running job's lead can be reached, in the job's folder.
RUN_FILE = "run.json"
#: A job whose lead dies is gone on with by itself so often, from its journal.
RESTARTS_MAX = 2
#: When the events of a lead end early, its process has so long to end too, so that its exit code can be told.
LAST_WORDS_S = 5.0
#: A job that nears its ceiling is stopped so long before: machines are paid while what is under way is closed.
CEILING_STOP_S = 3.0


@dataclass(frozen=True)
class Result:
    """How a job ended well: its id and the lead's summary."""

    job_id: str
    summary: Summary

    @property
    def progress(self) -> Progress:
        """Final counts."""
        return self.summary.progress

    def __repr__(self) -> str:
        progress = self.progress
        return (
            f"<Result {self.job_id}: {format_count(progress.objects_done, 'object')}, {progress.bytes_done} bytes in "
            f"{progress.elapsed_s:.1f} s, proofs {dict(self.summary.proofs)}>"
        )


class RunningJob:
    """A job under way. Iterate `events()` to its end, or call `wait()`; `close()` ends its processes in any case.

    `drain` and `kill` may be called from a signal handler or another thread. A lead that dies is started again, at
    most RESTARTS_MAX times, with `restart`, which makes new gateways that go on from the journal.
    """

    def __init__(
        self,
        job_id: str,
        spec: JobSpec,
        plan: Plan,
        gateways: JobGateways,
        *,
        restart: Callable[[JobSpec, Plan], JobGateways] | None,
        keep_logs: bool,
        catalog_folder: Path | None = None,
        ceiling: Ceiling | None = None,
        adaptation: Adaptation | None = None,
    ) -> None:
        self.id = job_id
        self.spec = spec
        #: As it was at first; `replan` may have changed what the gateways do since.
        self.plan = plan
        self._adaptation = adaptation
        self.summary: Summary | None = None
        #: The lead's last line as it came; None until then.
        self.summary_document: Mapping[str, Any] | None = None
        self._gateways = gateways
        self._keep_logs = keep_logs
        self._closed = False
        self._draining = False
        self._ceiling = ceiling
        self._over_ceiling = False
        self._restart = restart
        self._restarts = 0
        self._lead = _lead_of(gateways, plan)
        self._catalog_folder = catalog_folder
        self._teaching = teaching_hops(plan, gateways.deployment())
        self._watch = RouteWatch()

    @property
    def gateway_pids(self) -> Mapping[str, int]:
        """Process id of each gateway, by name."""
        return self._gateways.pids

    def lines(self) -> Iterator[bytes]:
        """The lead's events as they come, one JSON document a line. Raises GatewayLost if the lead dies for good."""
        while True:
            lost: GatewayLost | None = None
            try:
                for line in self._lead.events():
                    document = json.loads(line)
                    if document["event"] == "progress":
                        self._watch.see(document)
                        self._keep_ceiling(document)
                        if self._adaptation is not None:
                            self._adaptation.see(document)
                    if document["event"] == "done":
                        self._watch.see(document["progress"])
                        self.summary_document = document
                        self.summary = Summary.from_document(document)
                    yield line
                    yield from self._notices()
            except GatewayLost as error:
                lost = error
            if self.summary is not None or self._closed:
                return
            died = self._lead_died()
            if self._restart is None or self._draining or self._restarts >= RESTARTS_MAX:
                raise died from lost
            self._start_again(self._restart)
            message = f"{died}; started again ({self._restarts} of {RESTARTS_MAX}), what was acked is kept"
            yield json.dumps({"event": "notice", "message": message}).encode() + b"\n"

    def _notices(self) -> Iterator[bytes]:
        """What there is to say of the routes beside what the lead says."""
        for message in self._adaptation.notices() if self._adaptation is not None else ():
            yield json.dumps({"event": "notice", "message": message}).encode() + b"\n"

    def spent_usd(self, egress_usd: float, elapsed_s: float) -> float | None:
        """What the job has cost, egress and the machines of all its plans; None without prices of machines."""
        if self._adaptation is not None:
            return egress_usd + self._adaptation.machines_usd(elapsed_s)
        return None if self.plan.overlay is None else spent_usd(self.plan.overlay, egress_usd, elapsed_s)

    def _keep_ceiling(self, progress: Mapping[str, Any]) -> None:
        """Stops before egress and machines together cost more than the way allows."""
        ceiling = self._ceiling if self._adaptation is None else self._adaptation.ceiling
        if ceiling is None or self._draining:
            return
        if ceiling.spent_usd(progress["cost_usd"], progress["elapsed_s"] + CEILING_STOP_S) < ceiling.usd:
            return
        self._over_ceiling = True
        # Not here: the answer comes when all is closed, and until then events are to be read.
        threading.Thread(target=self.drain, daemon=True).start()

    def _start_again(self, restart: Callable[[JobSpec, Plan], JobGateways]) -> None:
        self._restarts += 1
        if self._adaptation is not None:
            self._adaptation.end()
            self.spec = self._adaptation.spec
        self._gateways.kill()
        self._gateways = restart(self.spec, self._present_plan)
        self._lead = _lead_of(self._gateways, self.plan)
        self._watch = RouteWatch()
        if self._draining:
            self.drain()  # It was asked of a lead that was dead or not yet there.

    def events(self) -> Iterator[Event]:
        """The lead's events, typed. The last one is the Summary. Raises GatewayLost if the lead dies."""
        for line in self.lines():
            event = event_from_document(json.loads(line))
            if event is not None:
                yield event

    def wait(self, on_event: EventCallback | None = None) -> Result:
        """Follows the job to its end and ends its processes.

        On KeyboardInterrupt, or if `on_event` raises, the job is drained first, so that it can be resumed. Raises the
        TransferError of its outcome.
        """
        try:
            for event in self.events():
                if on_event is not None:
                    on_event(event)
        except KeyboardInterrupt as interrupt:
            self._drain_to_end()
            raise self._outcome_error() from interrupt
        finally:
            if self.summary is None:
                self._drain_to_end()
            self.close()
        return self.result()

    def result(self) -> Result:
        """The result of an ended job. Raises the TransferError of its outcome."""
        if self.summary is None or self.summary.outcome != "done":
            raise self._outcome_error()
        return Result(self.id, self.summary)

    def drain(self) -> None:
        """Asks the lead to checkpoint and stop; events then end with outcome `interrupted`.

        A lead that has ended, or is about to, has nothing left to stop: that is no error.
        """
        self._draining = True
        with suppress(GatewayError):
            self._lead.drain()

    @property
    def _present_plan(self) -> Plan:
        return self.plan if self._adaptation is None else self._adaptation.plan

    def kill(self) -> None:
        """Ends all processes at once. The journal is safe; the job can be resumed."""
        self._closed = True
        if self._adaptation is not None:
            self._adaptation.stop()
        self._gateways.kill()
        self._forget()

    def close(self) -> None:
        """Ends the processes; logs are kept if asked for, or if the job did not end well."""
        if self._closed:
            return
        self._closed = True
        if self._adaptation is not None:
            self._adaptation.end()
        well = self.summary is not None and self.summary.outcome == "done"
        self._gateways.stop(keep_logs=self._keep_logs or not well)
        self._forget()
        if well and self._catalog_folder is not None:
            self._learn(self._catalog_folder)

    def _learn(self, folder: Path) -> None:
        """Keeps the rates of hops between known regions for later plans. A transfer does not fail for want of it."""
        today = datetime.now(timezone.utc).date().isoformat()
        plan, teaching = self.plan, self._teaching
        if self._adaptation is not None:
            plan = self._adaptation.plan_of_all
            teaching = teaching_hops(plan, self._gateways.deployment())
        with suppress(ConfigError, OSError):
            learn(folder, self.id, self.spec, plan, teaching, self._watch, date=today)

    def _forget(self) -> None:
        """Removes where the lead could be reached; all of it for a run that keeps nothing."""
        if self.spec.state_dir is None:
            self._gateways.remove()
            return
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.spec.state_dir, RUN_FILE))

    def _drain_to_end(self) -> None:
        self.drain()
        with suppress(GatewayLost):
            for _ in self.lines():
                pass

    def _lead_died(self) -> GatewayLost:
        how = self._gateways.last_words(self.plan.lead, LAST_WORDS_S)
        return GatewayLost(
            f"the lead ended without a word ({how})",
            hint=None if self._restart is None else f"what was acked is kept; {_resume_hint(self.id)}",
        )

    def _outcome_error(self) -> TransferError:
        summary = self.summary
        if summary is None:
            return Interrupted("interrupted", hint=_resume_hint(self.id), job_id=self.id)
        hint = summary.hint
        if summary.outcome in ("interrupted", "unavailable", "ceiling") and self.spec.state_dir is not None:
            hint = hint or _resume_hint(self.id)
        if summary.outcome == "interrupted" and self._over_ceiling:
            message = "stopped before egress and machines together cost more than the ceiling"
            return CeilingReached(message, hint=hint, summary=summary, job_id=self.id)
        error = ERROR_BY_OUTCOME[summary.outcome]
        return error(summary.message or _words(summary), hint=hint, summary=summary, job_id=self.id)


class Client:
    """Starts, resumes, cancels and lists jobs.

    `state_dir` defaults to `$TRADEWIND_STATE_DIR`, or else `$XDG_STATE_HOME/tradewind`; `gateway` is the path of the
    gateway program, found by itself when None. A client holds no connection and may be shared by threads.
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
        source: Place,
        destination: Place | Sequence[Place],
        options: Options | None = None,
        *,
        topology: str | None = None,
        on_event: EventCallback | None = None,
    ) -> Result:
        """Copies, and returns when every byte is proven. `topology` is the path of a topology file.

        A place is a URL or a local path, as text or as `pathlib.Path`.

        Raises UsageError before anything is started, and the TransferError of the job's outcome.
        """
        return self.start(source, destination, options, topology=topology).wait(on_event)

    def sync(
        self,
        source: Place,
        destination: Place | Sequence[Place],
        options: Options | None = None,
        *,
        topology: str | None = None,
        on_event: EventCallback | None = None,
    ) -> Result:
        """Copies what differs; with `Options(delete=True)` also removes what the source does not have."""
        options = options or Options()
        options = replace(options, recursive=True, compare=options.compare or "auto")
        return self.start(source, destination, options, topology=topology, verb="sync").wait(on_event)

    def start(
        self,
        source: Place,
        destination: Place | Sequence[Place],
        options: Options | None = None,
        *,
        topology: str | None = None,
        way: Way | None = None,
        verb: str = "cp",
        argv: Sequence[str] = (),
        keep_logs: bool = False,
    ) -> RunningJob:
        """Starts a job and returns at once. `way` takes the place of `topology` where one was planned.

        Raises UsageError, TopologyError, GatewayError.
        """
        options = options or Options()
        source, destinations = os.fspath(source), _texts(destination)
        self.check_filter(options.filter)
        if way is None:
            way = local_way() if topology is None else topology_way(topology)
        spec = resolve(source, destinations, options, way.plan)
        job_id = new_job_id()
        settings = {"concurrency": options.concurrency, "seal": options.seal}
        folder = self.store.path(job_id)
        if not options.dry_run:
            spec = replace(spec, state_dir=folder)
            request = {
                "verb": verb,
                "source": shown(source),
                "destinations": [shown(destination) for destination in destinations],
                "argv": list(argv),
                "settings": settings,
                "provider": dict(way.provider),
                "ceiling": None if way.ceiling is None else asdict(way.ceiling),
            }
            self.store.create(job_id, spec, request, way.document)
            self.store.prune()
        try:
            return self._launch(job_id, spec, way, settings, folder=folder, keep_logs=keep_logs)
        except BaseException:
            # Nothing was begun, so there is nothing to resume.
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def check_filter(self, filter: ObjectFilter) -> None:
        """Raises UsageError if a rule is no glob, GatewayError if the gateway program cannot be asked."""
        if filter.rules:
            try_task(self.gateway, {"task": "explain", "name": "any", "filter": to_document(filter)})

    def resume(self, job_id: str, *, keep_logs: bool = False, provider: Mapping[str, Any] | None = None) -> RunningJob:
        """Goes on with an interrupted job, on machines of the provider that it had unless another is given.

        Raises JobNotFound, JobBusy, UsageError if it has nothing left to do.
        """
        record = self.store.load(job_id)
        self.require_resumable(record)
        document = record.document
        spec = replace(JobSpec.from_document(document["spec"]), resume=True)
        ceiling = self._ceiling_of_next_run(record)
        way = stored_way(document["topology"], provider or document.get("provider"), ceiling)
        folder = self.store.path(job_id)
        return self._launch(job_id, spec, way, document["settings"], folder=folder, keep_logs=keep_logs)

    def _ceiling_of_next_run(self, record: JobRecord) -> Ceiling | None:
        """With what the machines of earlier runs cost, which is written down for the run after it."""
        stored = record.document.get("ceiling")
        if stored is None:
            return None
        ceiling = Ceiling(**stored).after(record.progress.elapsed_s)
        self.store.update(record.id, {"ceiling": asdict(ceiling)})
        return ceiling

    def require_resumable(self, record: JobRecord) -> None:
        """Raises JobBusy if the job runs, UsageError if it has nothing left to do."""
        self.store.require_unled(record.id)
        if record.state in ("done", "cancelled"):
            raise UsageError(f"job {record.id} is {record.state}; there is nothing to resume")

    def cancel(self, job_id: str) -> JobRecord:
        """Stops a job if it runs, and aborts its unfinished uploads. What is copied stays. Raises JobNotFound."""
        record = self.store.load(job_id)
        if record.state in ("done", "cancelled"):
            raise UsageError(f"job {job_id} is {record.state}; there is nothing to cancel")
        if record.state == "running":
            self._drain_running(job_id)
        end_abandoned(FleetJournal(self.store.state_dir), self.gateway, job_id)
        stores = [target["store"] for target in record.document["spec"]["targets"]]
        task = {"task": "cancel", "state_dir": self.store.path(job_id), "stores": stores}
        code = run_task(self.gateway, task)
        if code != 0:
            raise GatewayError(f"job {job_id} could not be cancelled wholly (exit code {code})")
        return self.store.load(job_id)

    def jobs(self) -> list[JobRecord]:
        """All jobs known here, oldest first."""
        return list(self.store.records())

    def unfinished(self, source: Place, destination: Place | Sequence[Place]) -> JobRecord | None:
        """The latest interrupted job from here to there, if it is among the last ones. Raises UsageError."""
        return self.store.unfinished(shown(os.fspath(source)), [shown(place) for place in _texts(destination)])

    def job(self, job_id: str) -> JobRecord:
        """One job. Raises JobNotFound."""
        return self.store.load(job_id)

    def _launch(
        self,
        job_id: str,
        spec: JobSpec,
        way: Way,
        settings: Mapping[str, Any],
        *,
        folder: str,
        keep_logs: bool,
    ) -> RunningJob:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        adaptation = self._adaptation(job_id, spec, way)

        def deploy(spec: JobSpec, plan: Plan) -> JobGateways:
            gateways = JobGateways(self.gateway, plan, folder, self.store.state_dir, way.provider, way.settings)
            run = RunSettings(
                job_id, settings.get("concurrency"), secrets.token_hex(32) if _seals(settings, plan) else None
            )
            self._deploy(spec, gateways, run, plan)
            if adaptation is not None:
                adaptation.begin(gateways, run)
            return gateways

        def deploy_again(spec: JobSpec, plan: Plan) -> JobGateways:
            return deploy(replace(spec, resume=True), plan)

        # Without a journal there is nothing to go on from.
        restart = None if spec.state_dir is None else deploy_again
        catalog_folder = None if way.provider["kind"] in EMULATED else Path(self.store.state_dir) / "catalog"
        gateways = deploy(spec, way.plan)
        return RunningJob(
            job_id,
            spec,
            way.plan,
            gateways,
            restart=restart,
            keep_logs=keep_logs,
            catalog_folder=catalog_folder,
            ceiling=way.ceiling,
            adaptation=adaptation,
        )

    def _adaptation(self, job_id: str, spec: JobSpec, way: Way) -> Adaptation | None:
        """What watches a planned way, and changes it where it may."""
        if way.question is None:
            return None
        from tradewind.transfer.adapt import Adaptation

        def changed(plan: Plan, spec: JobSpec) -> None:
            if spec.state_dir is not None:
                ceiling = None if adaptation.ceiling is None else asdict(adaptation.ceiling)
                changes = {"topology": topology_document(plan), "spec": to_document(spec), "ceiling": ceiling}
                self.store.update(job_id, changes)

        adaptation = Adaptation(way.question, way.plan, spec, replan=way.replan, on_change=changed)
        return adaptation

    @staticmethod
    def _deploy(spec: JobSpec, gateways: JobGateways, run: RunSettings, plan: Plan) -> None:
        """Gives the gateways their programs; the lead begins to work."""
        try:
            deployment = gateways.deployment()
            for name, program in compile_programs(deployment, spec, run).items():
                GatewayClient(deployment.addresses[name].control).put_program(to_document(program))
            if spec.state_dir is not None:
                write_json(os.path.join(spec.state_dir, RUN_FILE), {"lead": plan.lead, "fleet": gateways.fleet_id})
        except BaseException:
            gateways.kill()
            raise

    def _drain_running(self, job_id: str) -> None:
        folder = self.store.path(job_id)
        try:
            with open(os.path.join(folder, RUN_FILE), encoding="utf-8") as file:
                run = json.load(file)
            control = ControlFolder(FleetJournal(self.store.state_dir).path(run["fleet"]))
            try:
                GatewayClient(control.address(run["lead"])).drain()
            finally:
                control.close()
        except (OSError, ValueError, KeyError, GatewayLost):
            if self.store.is_led(job_id):
                raise JobBusy(f"job {job_id} is running, but its lead cannot be reached") from None
        else:
            self.store.wait_unled(job_id)


def copy(
    source: Place,
    destination: Place | Sequence[Place],
    options: Options | None = None,
    *,
    topology: str | None = None,
    on_event: EventCallback | None = None,
) -> Result:
    """Copies with a default Client; see Client.copy."""
    return Client().copy(source, destination, options, topology=topology, on_event=on_event)


def sync(
    source: Place,
    destination: Place | Sequence[Place],
    options: Options | None = None,
    *,
    topology: str | None = None,
    on_event: EventCallback | None = None,
) -> Result:
    """Makes the destination like the source with a default Client; see Client.sync."""
    return Client().sync(source, destination, options, topology=topology, on_event=on_event)


def shown(place: str) -> str:
    """A place as job lists show it: local paths absolute, pasted addresses by their store."""
    return str(parse_url(place, cwd=os.getcwd()))


def _texts(places: Place | Sequence[Place]) -> tuple[str, ...]:
    """One place or several, as text."""
    several = (places,) if isinstance(places, (str, os.PathLike)) else places
    return tuple(os.fspath(place) for place in several)


def _seals(settings: Mapping[str, Any], plan: Plan) -> bool:
    return bool(settings.get("seal")) and bool(plan.stations())


def _lead_of(gateways: JobGateways, plan: Plan) -> GatewayClient:
    return GatewayClient(gateways.deployment().addresses[plan.lead].control)


def _resume_hint(job_id: str) -> str:
    return f"go on with: tradewind jobs resume {job_id}"


def _words(summary: Summary) -> str:
    progress = summary.progress
    if summary.objects_not_deleted and not progress.objects_failed:
        return f"{format_count(summary.objects_not_deleted, 'object')} could not be deleted"
    if progress.objects_failed and summary.outcome in ("some_failed", "failed"):
        return f"{progress.objects_failed} of {format_count(progress.objects_total, 'object')} failed"
    return summary.outcome.replace("_", " ")
