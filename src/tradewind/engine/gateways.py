"""The gateways of a job: a fleet with its logs in the job's folder."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import FleetTaken, GatewayError, JobBusy
from tradewind.fleet.boots import Boot, BootBook
from tradewind.fleet.fleet import Fleet, Replanner
from tradewind.fleet.fleet_records import FleetRecord
from tradewind.fleet.given import GivenCredentials
from tradewind.fleet.journal import TAKEN_HINT, FleetJournal
from tradewind.fleet.providers import make_provider
from tradewind.fleet.settings import FleetSettings, Meter
from tradewind.model.files import remove_folder
from tradewind.model.latch import Latch
from tradewind.model.locks import LOOK_EVERY_S
from tradewind.model.plan import Deployment, Plan
from tradewind.model.program import Program
from tradewind.model.records import dataclass, replace

if TYPE_CHECKING:
    from tradewind.fleet.remains import Look, Remains

#: Maximum wait for another command that is ending a fleet of a job [s]. It may try for OUTAGE_S, and then has to end.
OTHER_END_S = 180.0


@dataclass(frozen=True, slots=True)
class EndedRuns:
    """Result of ending the fleets of killed runs.

    `unlaunched` has the machines of each fleet that were ordered and never launched, `left` what could not be removed.
    """

    unlaunched: Mapping[str, frozenset[str]]
    left: Sequence[Remains]


@dataclass(frozen=True, slots=True)
class WarmChoice:
    """A warm fleet for a run. If it cannot be used, the run fails if it `is_required`, else it rents machines."""

    fleet: str
    is_required: bool


class JobGateways:
    """The running gateways of one plan. Closing them removes their sockets; logs stay if requested.

    `folder` is the job's, `journal` the one in which fleets are recorded. `report` gets one line about each problem
    of the machines while they run; `meter` counts how long they live. `warm` is the warm fleet to use.
    `credentials` are those of the job's stores, in place of this machine's. Once `stopping` is set, the machines are
    started no further.
    """

    def __init__(
        self,
        binary: str,
        plan: Plan,
        folder: str,
        journal: FleetJournal,
        provider: Mapping[str, Any],
        settings: FleetSettings,
        *,
        report: Callable[[str], None],
        meter: Meter | None = None,
        warm: WarmChoice | None = None,
        credentials: GivenCredentials | None = None,
        stopping: Latch | None = None,
        replan: Replanner | None = None,
    ) -> None:
        """Start the gateways. Raises GatewayError; FleetTaken if a required warm fleet cannot be used.

        `replan` is as for `Fleet`. A warm fleet has the machines of its plan, and is not planned again.
        """
        self._folder = folder
        self._logs = os.path.join(folder, "logs")
        maker = make_provider(provider, binary, journal, logs=Path(self._logs))
        job_id = os.path.basename(folder)
        if left := end_abandoned(journal, binary, job_id, stopping).left:
            from tradewind.engine.remains import remains_lines

            for line in remains_lines(left):
                report(line)

        def start(settings: FleetSettings, taken: str | None) -> Fleet:
            return Fleet(
                maker,
                journal,
                plan,
                binary,
                purpose=_purpose(job_id),
                settings=settings,
                report=report,
                meter=meter,
                logs=Path(self._logs),
                taken=taken,
                credentials=credentials,
                stopping=stopping,
                replan=replan if taken is None else None,
            )

        if warm is None:
            self._fleet = start(settings, None)
            return
        from tradewind.fleet.warm import WarmBook

        # The plan's prices are those of machines that were started, and paid for their minimum time, before.
        settings = replace(settings, states_prices=True)
        try:
            keeping = WarmBook(journal).keeping(warm.fleet)
            if keeping is None:
                raise FleetTaken(f"warm fleet {warm.fleet} has ended", hint=TAKEN_HINT)
            lease_s = keeping.lease_s(settings.lease_s)
            self._fleet = start(replace(settings, keeping=keeping, lease_s=lease_s), warm.fleet)
        except FleetTaken as error:
            if warm.is_required:
                raise
            report(f"{error}; other machines are rented")
            self._fleet = start(settings, None)

    @property
    def fleet_id(self) -> str:
        """The id under which the fleet is recorded."""
        return self._fleet.id

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the gateways, including the lead's."""
        return tuple(gateway.name for gateway in self._fleet.plan.gateways)

    def living(self) -> set[str]:
        """Return the gateways whose machines are alive."""
        return self._fleet.living()

    def spot(self) -> set[str]:
        """Return the gateways on spot machines, which the cloud may take back."""
        return {name for name, machine in self._fleet.machines.items() if machine.spot}

    def leaving(self) -> dict[str, float]:
        """Return the gateways whose machines the cloud takes back, each with the time for which it still works [s]."""
        return self._fleet.leaving()

    def grow(self, plan: Plan, ready_s_max: float, replaced: Collection[str] = ()) -> Deployment:
        """Start the additional machines of another plan, ready within `ready_s_max`; see Fleet.grow.

        Raises GatewayError, with nothing more running.
        """
        return self._fleet.grow(plan, ready_s_max, replaced)

    def shrink(self, plan: Plan) -> None:
        """End the gateways that a plan does not have."""
        self._fleet.shrink(plan)

    def moved(self, names: Iterable[str]) -> None:
        """Note that bytes move on routes of these gateways."""
        self._fleet.moved(names)

    def deployment(self) -> Deployment:
        """Return the plan with the addresses that the gateways reported."""
        return self._fleet.deployment()

    def give_program(self, deployment: Deployment, program: Program) -> None:
        """Give a gateway the credentials of its stores and then its program. Raises GatewayError."""
        self._fleet.give_program(deployment, program)

    def ending(self, name: str, timeout_s: float) -> str:
        """Describe how a gateway ended that should be running; wait up to the timeout for its end."""
        return self._fleet.ending(name, timeout_s)

    def crash(self, name: str) -> None:
        """End a gateway as if it had failed by itself."""
        self._fleet.crash(name)

    def stop(self, *, keep_logs: bool, grace_s: float) -> None:
        """End all gateways within `grace_s` and remove their files; keep the logs if requested."""
        self._fleet.close(grace_s=grace_s)
        if not keep_logs:
            remove_folder(self._logs)

    def kill(self) -> None:
        """End all gateways at once. The journal survives."""
        self._fleet.close(grace_s=0.0)

    def hurry(self) -> None:
        """Let the end of the gateways not wait any longer for a provider that does not answer."""
        self._fleet.hurry()

    def look_for_remains(self) -> Look | None:
        """Begin to look for what the ended fleet has left; None if it cannot have left anything."""
        return self._fleet.look_for_remains()

    def remove(self) -> None:
        """Remove the job's folder, after a run that keeps nothing."""
        remove_folder(self._folder)


def end_abandoned(journal: FleetJournal, binary: str, job_id: str, stopping: Latch | None = None) -> EndedRuns:
    """End the fleets that killed runs of a job left behind, and remove what else they left.

    The caller has the job, so another command that has one of them is ending it: wait for that, and wait out outages of
    providers, until `stopping` is set.

    Raises GatewayError, also if it was stopped; JobBusy if the other command takes longer than OTHER_END_S.
    """
    stopping = stopping or Latch()
    purpose = _purpose(job_id)
    unlaunched: dict[str, frozenset[str]] = {}
    left: list[Remains] = []
    for fleet_id in [record.id for record in journal.records() if record.purpose == purpose]:
        record = _claimed(journal, fleet_id, stopping)
        if record is not None:
            from tradewind.fleet.calls import InFlight
            from tradewind.fleet.ending import end_fleet
            from tradewind.fleet.patience import Patience
            from tradewind.fleet.remains import look_for_remains

            try:
                unlaunched[fleet_id] = end_fleet(record, journal, binary, Patience(stopping)).unlaunched
            finally:
                journal.give_back(fleet_id)
            # A killed client has made an address or a disk for a machine that it had not yet ordered.
            remains = look_for_remains(make_provider(record.provider, binary, journal), fleet_id, InFlight())
            left += [] if remains is None or remains.is_nothing else [remains]
    # Another command that has ended a fleet cannot change the ledger of a job that somebody holds.
    for fleet_id, names in journal.unlaunched_of(purpose).items():
        unlaunched[fleet_id] = unlaunched.get(fleet_id, frozenset()) | names
    return EndedRuns(unlaunched, left)


def _claimed(journal: FleetJournal, fleet_id: str, stopping: Latch) -> FleetRecord | None:
    """Claim an abandoned fleet, and return its record; None if it has ended or is not abandoned.

    Raises JobBusy after OTHER_END_S, GatewayError once `stopping` is set.
    """
    deadline_s = time.monotonic() + OTHER_END_S
    while True:
        record = next((found for found in journal.records() if found.id == fleet_id), None)
        if record is None or record.ownership == "elsewhere":
            return None
        if record.abandoned and journal.claim(fleet_id):
            return record
        if time.monotonic() >= deadline_s:
            raise JobBusy(
                f"another command is ending the machines of fleet {fleet_id}", hint="try again when it is done"
            )
        if stopping.wait(LOOK_EVERY_S):
            raise GatewayError(f"stopped while another command was ending the machines of fleet {fleet_id}")


def open_fleets(journal: FleetJournal, job_id: str) -> set[str]:
    """Return the fleets of the job that were not closed. Raises ConfigError."""
    return {record.id for record in journal.records() if record.purpose == _purpose(job_id)}


def boots_of(journal: FleetJournal, job_id: str) -> list[Boot]:
    """Return the starts of all machines of a job that answered, oldest first. Raises StateError."""
    return BootBook(journal).of_purpose(_purpose(job_id))


def job_of(purpose: str) -> str | None:
    """Return the job of a fleet with this purpose; None for a fleet without a job."""
    job_id = purpose.removeprefix(_purpose(""))
    return job_id if purpose == _purpose(job_id) and job_id == os.path.basename(job_id) else None


def _purpose(job_id: str) -> str:
    return f"job {job_id}"
