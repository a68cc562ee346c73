"""Fleets of a state folder: their machines, their launch, and their end, with the cost for their job."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from tradewind.engine.everywhere import FAILURES, Everywhere, typed_error
from tradewind.engine.forgetting import forget_fleet
from tradewind.engine.gateways import job_of
from tradewind.engine.jobs import JobStore
from tradewind.engine.ledger import LedgerBook
from tradewind.errors import StateError, TradewindError
from tradewind.fleet.boots import Boot, BootBook, BootKind, UsualBoot
from tradewind.fleet.calls import InFlight
from tradewind.fleet.ending import end_extra, end_fleet
from tradewind.fleet.fleet_records import Attempt, FleetRecord, UnreadableFleet
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.owner import pid_namespace
from tradewind.fleet.patience import Patience
from tradewind.fleet.provider import FLEET_TAG
from tradewind.fleet.providers import make_provider
from tradewind.fleet.remains import Remains, look_for_remains
from tradewind.fleet.tcp_windows import TcpWindows, tcp_windows
from tradewind.fleet.warm import WarmBook
from tradewind.model.ledger import Ledger, MachinePrice
from tradewind.model.records import dataclass, replace
from tradewind.model.sites import Sites
from tradewind.model.units import SECONDS_PER_HOUR

__all__ = ["Attempt", "Boot", "BootKind", "FleetEnd", "FleetState", "Fleets", "UsualBoot", "WarmReceipt"]


@dataclass(frozen=True, slots=True)
class FleetState:
    """A fleet that was not closed. `alive` has the names of its running machines; None if the provider cannot say.

    `lease_end_unix_s` is the time at which its last machine ends unless a lease is renewed; None if no lease was noted.
    """

    record: FleetRecord
    alive: tuple[str, ...] | None
    lease_end_unix_s: float | None
    is_of_this_pid_namespace: bool

    @property
    def is_warm(self) -> bool:
        """True if its machines wait for a job."""
        return self.record.is_warm and self.record.ownership == "abandoned"


@dataclass(frozen=True, slots=True)
class WarmReceipt:
    """What the machines of a warm fleet have cost, by list prices. What jobs used is in their ledgers, too."""

    fleet: str
    machine_s: float
    usd: float
    idle_s: float
    idle_usd: float
    uses: int


@dataclass(frozen=True, slots=True)
class FleetEnd:
    """Result of ending a fleet: the number of machines ended, or why it failed.

    `unbooked` says why the ledger of its job could not be written. With `is_kept` only the machines that a killed job
    had added to a warm fleet were ended.
    """

    id: str
    machines: int = 0
    error: TradewindError | None = None
    job_id: str | None = None
    unbooked: str | None = None
    receipt: WarmReceipt | None = None
    is_kept: bool = False
    remains: Remains | None = None
    """Remains of the fleet; None if its machines cannot leave anything, or it is kept."""
    usd: float | None = None
    """Cost of its machines for its job, by list prices; None if nobody counted it, or a living command still does.
    """


class Fleets:
    """The fleets of one state folder."""

    def __init__(self, store: JobStore, gateway: str | None) -> None:
        self._store, self._gateway = store, gateway or ""
        self._journal = FleetJournal(store.state_dir, store.unix_s)
        #: Gets a line if the end of machines takes long because a provider does not answer.
        self.say: Callable[[str], None] | None = None

    @property
    def folder(self) -> str:
        """Path of the folder that contains the fleets."""
        return str(self._journal.folder)

    def states(self) -> Iterator[FleetState]:
        """Yield each fleet that was not closed, oldest first. Raises ConfigError."""
        return map(self._state, self._journal.records())

    def _state(self, record: FleetRecord) -> FleetState:
        lease_end_unix_s = max(self._journal.lease_ends(record.id).values(), default=None)
        is_here = record.owner.pid_namespace == pid_namespace()
        return FleetState(record, self._alive(record), lease_end_unix_s, is_here)

    def page(self, after: str | None, limit: int) -> tuple[list[FleetState], str | None]:
        """Return up to `limit` fleets after the one with the id `after`, and the id to continue after, if there is one.

        They are in the order of their ids, oldest first. Only their providers are asked. Raises ConfigError.
        """
        records = sorted(self._journal.records(), key=lambda record: record.id)
        rest = [record for record in records if after is None or record.id > after]
        found = [self._state(record) for record in rest[:limit]]
        return found, rest[limit - 1].id if len(rest) > limit else None

    def machines(self, state: FleetState) -> list[dict[str, Any]]:
        """Return the machines of a fleet for JSON: their start by phases, their leases and, if it is warm, prices."""
        fleet_id, leases = state.record.id, self._journal.lease_ends(state.record.id)
        boots = {boot.name: boot for boot in self.boots(fleet_id)}
        keeping = WarmBook(self._journal).keeping(fleet_id)
        kept = {} if keeping is None else keeping.machines
        return [
            {
                "name": name,
                "region": region,
                "type": kept[name].type if name in kept else (boots[name].type if name in boots else None),
                "alive": None if state.alive is None else name in state.alive,
                "lease_end_unix_ms": round(leases[name] * 1000) if name in leases else None,
                "usd_per_hour": kept[name].usd_per_s * SECONDS_PER_HOUR if name in kept else None,
                "phases_s": boots[name].phases_s if name in boots else {},
            }
            for name, region in sorted(state.record.machines.items())
        ]

    def users(self, record: FleetRecord) -> list[str]:
        """Return the jobs that use a fleet now: its own, or those that use it as a warm fleet. Raises StateError."""
        open_uses = [use.job for use in WarmBook(self._journal).uses(record.id) if use.ended_unix_s is None]
        found = map(job_of, [record.purpose, *open_uses])
        return list(dict.fromkeys(job_id for job_id in found if job_id is not None))

    def cost_usd(self, record: FleetRecord) -> float | None:
        """Return the cost of a fleet's machines so far, at list prices; None if nobody counts it. Raises StateError."""
        receipt = self._receipt(record.id)
        return self._job_usd(record) if receipt is None else receipt().usd

    def _job_usd(self, record: FleetRecord) -> float | None:
        """Return what the machines of a fleet have cost its job so far; None without a job or a ledger."""
        job_id = job_of(record.purpose)
        ledger = None if job_id is None else self._ledger(job_id)
        if ledger is None:
            return None
        own = tuple(use for use in ledger.machines if use.fleet == record.id)
        return replace(ledger, machines=own, earlier_usd=0.0).usd_of("machine", self._store.unix_s())

    def everywhere(self, sites: Sites) -> Everywhere:
        """Return what Tradewind has at these sites, whichever state folder knows of it."""
        return Everywhere(sites, self._journal, self._gateway, self._launched_at)

    def _launched_at(self, fleet_id: str, name: str) -> MachinePrice | None:
        """Return the price at which a machine was launched; None if this state folder does not know it."""
        try:
            keeping = WarmBook(self._journal).keeping(fleet_id)
            if keeping is not None and name in keeping.machines:
                kept = keeping.machines[name]
                return MachinePrice(kept.usd_per_s, kept.price_source)
            job_id = job_of(self._journal.load(fleet_id).purpose)
            ledger = None if job_id is None else self._ledger(job_id)
        except TradewindError:
            return None
        uses = () if ledger is None else ledger.machines
        found = [use for use in uses if (use.fleet, use.name) == (fleet_id, name)]
        return MachinePrice(found[-1].usd_per_s, found[-1].source) if found else None

    def _ledger(self, job_id: str) -> Ledger | None:
        return LedgerBook(self._store.database, job_id, self._store.path(job_id)).read()

    def unreadable(self) -> Sequence[UnreadableFleet]:
        """Return the unreadable records: their machines may run. Raises ConfigError."""
        return self._journal.unreadable()

    def attempts(self, fleet_id: str) -> Sequence[Attempt]:
        """Return each attempt to launch a machine of a fleet, oldest first. Raises UsageError if it is unknown."""
        return self._journal.attempts(fleet_id)

    def boots(self, fleet_id: str) -> Sequence[Boot]:
        """Return the starts of a fleet's machines that answered, oldest first."""
        return BootBook(self._journal).of_fleet(fleet_id)

    def usual_boots(self, fleet_id: str) -> dict[BootKind, UsualBoot]:
        """Return the usual start of each kind of machines that a fleet has, from all starts in this state folder."""
        usual = BootBook(self._journal).usual()
        return {kind: usual[kind] for kind in dict.fromkeys(boot.kind for boot in self.boots(fleet_id))}

    def tcp_windows(self, fleet_id: str) -> Sequence[TcpWindows]:
        """Return the largest TCP windows of those gateways of a fleet that run and answer."""
        return tcp_windows(self._journal.path(fleet_id))

    def open_count(self) -> int:
        """Return the number of fleets that were not closed. No provider is asked. Raises ConfigError."""
        return sum(1 for _ in self._journal.records())

    def unknown(self, fleet_ids: Iterable[str]) -> list[str]:
        """Return those fleets of which this state folder has no open record. Raises UsageError for an invalid id."""
        known = {record.id for record in self._journal.records()} | {one.id for one in self._journal.unreadable()}
        return [fleet_id for fleet_id in fleet_ids if self._journal.path(fleet_id).name not in known]

    def forget(self, fleet_id: str, sites: Sites) -> list[str]:
        """Remove the record of a fleet that cannot be read; return the places that were asked and do not know it.

        Raises TradewindError if a place knows the fleet or cannot be asked: see `forget_fleet`.
        """
        return forget_fleet(fleet_id, self._journal, sites, self._gateway)

    def end(self, fleet_ids: Iterable[str]) -> Iterator[FleetEnd]:
        """End these fleets, whoever uses them; a failure does not stop the others.

        Raises UsageError before anything ends, if one is unknown.
        """
        return self._end([self._journal.load(fleet_id) for fleet_id in fleet_ids])

    def end_abandoned(self) -> Iterator[FleetEnd]:
        """End all fleets whose command is gone, and remove what killed commands have left. Raises ConfigError.

        Of a warm fleet that nobody uses, only the machines end that a killed job has added.
        """
        self._journal.remove_remains()
        yield from self.end_unclaimed([record for record in self._journal.records() if record.abandoned])
        yield from self._end_warm_remains()

    def _end_warm_remains(self) -> Iterator[FleetEnd]:
        """End what killed jobs have left on warm fleets that nobody uses. Raises ConfigError."""
        for record in self._journal.records():
            is_free = record.is_warm and record.ownership == "abandoned"
            if is_free and self._journal.claim(record.id):
                try:
                    yield from self._end_remains(record)
                finally:
                    self._journal.give_back(record.id)

    def end_unused(self) -> Iterator[FleetEnd]:
        """End all fleets that no command uses, warm ones, too. Raises ConfigError."""
        self._journal.remove_remains()
        return self.end_unclaimed([record for record in self._journal.records() if record.ownership == "abandoned"])

    def end_unclaimed(self, records: Sequence[FleetRecord]) -> Iterator[FleetEnd]:
        """End those of these fleets that no job has claimed, and no command has ended, in the meantime."""
        for record in records:
            if self._journal.claim(record.id):
                try:
                    if self._journal.is_open(record.id):
                        yield from self._end([record])
                finally:
                    self._journal.give_back(record.id)

    def _end(self, records: Sequence[FleetRecord]) -> Iterator[FleetEnd]:
        for record in records:
            is_free, receipt = record.ownership == "abandoned", None
            jobs: Sequence[str] = ()
            try:
                with suppress(StateError):  # The machines must end, even if their uses cannot be read.
                    receipt = self._receipt(record.id)
                    jobs = self._jobs_of(record)
                ended = end_fleet(record, self._journal, self._gateway, Patience(say=self.say))
                provider = make_provider(record.provider, self._gateway, self._journal)
                remains = look_for_remains(provider, record.id, InFlight())
            except FAILURES as error:
                yield FleetEnd(record.id, error=typed_error(error))
                continue
            # A living owner charges its job itself.
            job_id, unbooked = self._book_ends(record, jobs if is_free else (), ended.unlaunched)
            usd, shown = None, None
            with suppress(StateError):  # The other fleets must end nevertheless.
                shown = None if receipt is None else receipt()
                usd = self._job_usd(record) if is_free and unbooked is None else None
            yield FleetEnd(
                record.id,
                ended.machines,
                job_id=job_id or job_of(record.purpose),
                unbooked=unbooked,
                receipt=shown,
                remains=remains,
                usd=usd,
            )

    def _end_remains(self, record: FleetRecord) -> Iterator[FleetEnd]:
        """End the charges and the extra machines of jobs that were killed while they used a warm fleet."""
        book = WarmBook(self._journal)
        try:
            keeping = book.keeping(record.id)
            if keeping is None or all(use.ended_unix_s is not None for use in book.uses(record.id)):
                return
            kept = {name: machine.region for name, machine in keeping.machines.items()}
            machines = end_extra(record, kept, self._journal, self._gateway)
        except FAILURES as error:
            yield FleetEnd(record.id, error=typed_error(error), is_kept=True)
            return
        job_id, unbooked = self._book_ends(record, self._jobs_of(record))
        book.returned(record.id)
        if machines or unbooked is not None:
            yield FleetEnd(record.id, machines, job_id=job_id, unbooked=unbooked, is_kept=True)

    def _jobs_of(self, record: FleetRecord) -> list[str]:
        """Return the job of a fleet, and those that used it while it was warm."""
        found = map(job_of, [record.purpose, *(use.job for use in WarmBook(self._journal).uses(record.id))])
        return list(dict.fromkeys(job_id for job_id in found if job_id is not None))

    def _receipt(self, fleet_id: str) -> Callable[[], WarmReceipt] | None:
        """Return how to get the cost of a warm fleet until then, when it may have ended; None for other fleets.

        Its leases and uses are read now. Raises StateError.
        """
        book, read_s = WarmBook(self._journal), time.time()
        if (keeping := book.keeping(fleet_id)) is None:
            return None
        lapses, uses = self._journal.lease_ends(fleet_id), book.uses(fleet_id)

        def receipt() -> WarmReceipt:
            now_s, spans = time.time(), list[tuple[str, float]]()
            for name, began_s, ended_s in self._journal.lives(fleet_id):
                # A machine that no job used has ended with its lease, and nobody has noted that.
                end_s = min(ended_s or now_s, lapses.get(name, now_s))
                spans.append((name, max(0.0, end_s - began_s)))
            used = [(use.machine, (use.ended_unix_s or read_s) - use.began_unix_s) for use in uses]
            prices = {name: one.usd_per_s for name, one in keeping.machines.items()}
            least_s = {name: one.billed_s_min for name, one in keeping.machines.items()}
            usd = sum(prices.get(name, 0.0) * max(span, least_s.get(name, 0.0)) for name, span in spans)
            used_usd = sum(prices.get(name, 0.0) * span for name, span in used)
            machine_s, used_s = sum(span for _, span in spans), sum(span for _, span in used)
            idle_s, idle_usd = max(0.0, machine_s - used_s), max(0.0, usd - used_usd)
            return WarmReceipt(fleet_id, machine_s, usd, idle_s, idle_usd, len({use.job for use in uses}))

        return receipt

    def _book_ends(
        self, record: FleetRecord, jobs: Iterable[str], unlaunched: Collection[str] = ()
    ) -> tuple[str | None, str | None]:
        """Charge jobs for the machines of a fleet until now. Return the first that failed, and why; or the last job."""
        job_id: str | None = None
        for job_id in jobs:
            try:
                book = LedgerBook(self._store.database, job_id, self._store.path(job_id))
                book.end_fleet(record.id, self._store.unix_s(), unlaunched)
            except (StateError, OSError) as error:
                return job_id, str(error)
        return job_id, None

    def _alive(self, record: FleetRecord) -> tuple[str, ...] | None:
        try:
            provider = make_provider(record.provider, self._gateway, self._journal)
            machines = provider.machines({FLEET_TAG: record.id})
        except FAILURES:
            return None
        return tuple(machine.name for machine in machines if not machine.ended)
