"""The ledger of a running job: counts machines, egress and requests, and records them in the database.

Whoever runs the job writes it: when machines are launched or end, at the job's end, and every SAVE_S between. Anybody
may read it. A job that cost nothing has no ledger.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tradewind.engine.jobs import client_lock
from tradewind.errors import CeilingReached, ConfigError, StateError
from tradewind.fleet.settings import LEASE_S
from tradewind.model.clock import suspended_s
from tradewind.model.document import to_document
from tradewind.model.event import JobStatus, Progress
from tradewind.model.files import read_regular
from tradewind.model.ledger import (
    OLD_JOB_SOURCE,
    JobPrices,
    Ledger,
    MachinePrice,
    MachineUse,
    Pieces,
    RunCount,
    run_requests,
)
from tradewind.model.plan import Plan
from tradewind.model.records import replace
from tradewind.model.units import format_count, format_usd
from tradewind.state.database import BUSY_S, TROUBLE, Database
from tradewind.state.ledger_rows import read_ledger, write_ledger

__all__ = ["SAVE_S", "JobLedger", "LedgerBook", "LedgerDamaged", "without_unlaunched"]

#: Maximum interval between writes of a ledger while its job runs.
SAVE_S = 5.0
#: Maximum life of a machine after the last write of the ledger: its lease may have been renewed until it was due
#: to be written again.
ALIVE_S_MAX = LEASE_S + SAVE_S
#: Maximum wait for another process's write while the job runs: the next write has everything.
SAVE_BUSY_S = 2.0
#: File in which the lead records its spending before it sends (lead/run/spending.rs): USD and bytes, over all runs.
SPENT_FILE = "spent"
#: Precision of the time that machines may run under a ceiling.
LEFT_STEP_S = 0.005
_FREE = MachinePrice(0.0)


class JobLedger:
    """Counts one job, in the process that runs it. Any thread may call it.

    `book` records it; None for a job that keeps nothing. `clock` counts seconds; `unix_s` is the Unix time at its
    present reading, so that a change of the system's clock does not change the cost. `suspended` counts the seconds
    that `clock` leaves out while this machine is suspended: rented machines are charged for them. `usd_max` is the
    ceiling, if there is one. `moves`: the job deletes its sources; `compares`: it lists its destinations.
    """

    def __init__(
        self,
        ledger: Ledger,
        book: LedgerBook | None,
        *,
        usd_max: float | None = None,
        destinations: int = 1,
        chunk_bytes: int = 1 << 24,
        moves: bool = False,
        compares: bool = False,
        clock: Callable[[], float] = time.monotonic,
        suspended: Callable[[], float] = suspended_s,
        unix_s: float | None = None,
    ) -> None:
        # All machines of earlier processes have ended. The heartbeat is ours, even if the clock was set back.
        self._ledger, self._book = replace(ledger, heartbeat_s=0.0, alive_s_max=ALIVE_S_MAX), book
        self._usd_max, self._destinations, self._chunk_bytes = usd_max, destinations, chunk_bytes
        self._moves, self._compares = moves, compares
        #: Parts that the present run has written.
        self._pieces = Pieces(chunk_bytes)
        self._clock, self._suspended = clock, suspended
        self._epoch_s = (time.time() if unix_s is None else unix_s) - clock() - suspended()
        self._lock = threading.Lock()
        #: The lead's sum over all runs at the start of the present run, as far as the ledger has it.
        self._base_usd = 0.0
        #: Bytes that deduplication and compression saved in the present run, by its latest line.
        self._saved_bytes = 0
        self._saved_s = float("-inf")
        #: True if the ledger is recorded or must be: from then on it is kept up to date.
        self._kept = ledger.total_usd(self.unix_s) > 0

    @property
    def usd(self) -> float:
        """The ceiling [USD]; infinite without one."""
        return float("inf") if self._usd_max is None else self._usd_max

    @property
    def usd_per_gb_max(self) -> float:
        """Return the egress of one GB over the most expensive route [USD]."""
        with self._lock:
            routes = self._ledger.prices.routes.values()
        return max((sum(edge.usd_per_gb for edge in edges) for edges in routes), default=float("inf"))

    @property
    def requests_usd(self) -> float:
        """Cost of the requests of all runs so far [USD]."""
        with self._lock:
            return self._ledger.usd_of("requests", self.unix_s)

    @property
    def ledger(self) -> Ledger:
        """The present counts."""
        with self._lock:
            return self._present()

    @property
    def unix_s(self) -> float:
        """Unix time of the ledger's clock."""
        return self._epoch_s + self._suspended() + self._clock()

    def spent_usd(self, egress_usd: float = 0.0, at_s: float | None = None) -> float:
        """Return the cost of the job, now or at a later time of the clock.

        `egress_usd` is the lead's latest figure for the egress of all runs, which may be newer than the counted one.
        """
        with self._lock:
            ledger = self._present()
            now_s = self._epoch_s + self._suspended() + (self._clock() if at_s is None else at_s)
            ledger = replace(ledger, heartbeat_s=max(now_s, ledger.heartbeat_s))
            return ledger.total_usd(now_s) + max(0.0, egress_usd - _egress_usd(ledger))

    def room_s(self, plan: Plan, without: Collection[str] = ()) -> float:
        """Return how long a plan's machines may run under the ceiling, beside those that already run; infinite without
        a ceiling.

        The machines in `without` already run.

        Raises CeilingReached if their minimum charge would exceed it.
        """
        if self._usd_max is None:
            return float("inf")
        spent_usd = self.spent_usd()
        with self._lock:
            known = self._ledger.prices.machines
            usd_per_s = sum(use.usd_per_s for use in self._ledger.machines if use.ended_s is None)
        prices = [known.get(gateway.region, _FREE) for gateway in plan.machines if gateway.name not in without]
        least_usd = sum(price.usd(0.0) for price in prices)
        usd_per_s += sum(price.usd_per_s for price in prices)
        left_usd = self._usd_max - spent_usd
        if left_usd <= 0 or least_usd > left_usd:
            raise CeilingReached(
                "no machines were started: the ceiling leaves too little for them",
                hint=f"{format_usd(spent_usd)} of {format_usd(self._usd_max)} is spent, "
                f"and {format_count(len(prices), 'machine')} cost {format_usd(least_usd)} at least",
            )
        return left_usd / usd_per_s if usd_per_s > 0 else float("inf")

    def can_pay(self, usd: float) -> bool:
        """Return whether the ceiling leaves this much besides what is spent; always without a ceiling."""
        return self._usd_max is None or self.spent_usd() + usd <= self._usd_max

    def left_s(self, most_s: float) -> float:
        """Return how long the living machines may continue, up to `most_s`, before they exceed the ceiling.

        If the ceiling is already exceeded, the present cost counts as the ceiling: machines that cost nothing more may
        continue for `most_s`.
        """
        now_s = self._clock()
        allowed_usd = max(self.usd, self.spent_usd(at_s=now_s))
        if self.spent_usd(at_s=now_s + most_s) <= allowed_usd:
            return most_s
        # Within their minimum, machines cost nothing more, so the cost is piecewise linear and the time is searched.
        least_s = 0.0
        while most_s - least_s > LEFT_STEP_S:
            middle_s = (least_s + most_s) / 2
            if self.spent_usd(at_s=now_s + middle_s) <= allowed_usd:
                least_s = middle_s
            else:
                most_s = middle_s
        return least_s

    def begin_run(self) -> None:
        """Begin a run: a lead starts, and no machine of an earlier process is alive.

        The lead reads the cost of earlier runs from the same file, so it is not counted twice. Raises StateError if the
        ledger of a job with a ceiling cannot be written, because a later process could not enforce the ceiling.
        """
        with self._lock:
            carried_usd, is_exact = _carried_over_usd(None if self._book is None else self._book.folder)
            counted = _with_egress(self._ledger, carried_usd)
            # Bytes counted beyond an exact sum were not sent after all: the next run may still spend their cost.
            self._base_usd = _egress_usd(counted) if is_exact else carried_usd
            self._ledger = replace(counted, runs=(*counted.runs, RunCount(counted.run + 1)))
            self._saved_bytes, self._pieces = 0, Pieces(self._chunk_bytes)
            # If the client is killed before its first order, the job must have prices.
            self._kept = self._kept or counted.prices.cost_anything
            if self._usd_max is None:
                self._save()
            else:
                self._write()

    def add_prices(self, prices: JobPrices) -> None:
        """Add the prices of another plan, which has machines in other regions."""
        with self._lock:
            self._ledger = replace(self._ledger, prices=self._ledger.prices.joined(prices))

    def launched(self, fleet: str, name: str, region: str) -> None:
        """Record that a machine was ordered. A known living machine is not counted twice."""
        with self._lock:
            if any((use.fleet, use.name, use.ended_s) == (fleet, name, None) for use in self._ledger.machines):
                return
            price = self._ledger.prices.machines.get(region, _FREE)
            use = MachineUse.of(max(1, self._ledger.run), fleet, name, region, self.unix_s, price)
            self._ledger = replace(self._ledger, machines=(*self._ledger.machines, use))
            self._save()

    def reported(self, fleet: str, name: str, began_unix_s: float | None, price: MachinePrice | None) -> None:
        """Record when a machine's billing began, and its price if it is not the planned one.

        Times before its order or after now are corrected, because clocks differ.
        """
        with self._lock:

            def as_reported(use: MachineUse) -> MachineUse:
                if (use.fleet, use.name, use.ended_s) != (fleet, name, None):
                    return use
                if began_unix_s is not None:
                    use = replace(use, launched_s=min(max(use.launched_s, began_unix_s), self.unix_s))
                return use if price is None else use.at(price)

            self._change_machines(as_reported)

    def refused(self, fleet: str, names: Collection[str]) -> None:
        """Remove machines that were ordered but not launched: they cost nothing."""
        with self._lock:
            kept = self._ledger.without(fleet, names)
            if kept.machines != self._ledger.machines:
                self._ledger = kept
                self._save()

    def _change_machines(self, change: Callable[[MachineUse], MachineUse]) -> None:
        changed = tuple(change(use) for use in self._ledger.machines)
        if changed != self._ledger.machines:
            self._ledger = replace(self._ledger, machines=changed)
            self._save()

    def ended(
        self,
        fleet: str,
        names: Collection[str] | None = None,
        ago_s: float = 0.0,
    ) -> None:
        """Record that machines of a fleet ended `ago_s` ago; all of them without `names`. Earlier ends stay."""
        with self._lock:
            end_s = self.unix_s - ago_s

            def as_ended(use: MachineUse) -> MachineUse:
                gone = use.fleet == fleet and use.ended_s is None and (names is None or use.name in names)
                return replace(use, ended_s=max(use.launched_s, end_s)) if gone else use

            self._change_machines(as_ended)

    def see(self, document: Mapping[str, Any]) -> None:
        """Record a progress or final line of the present run's lead. An older line changes nothing."""
        progress = Progress.from_document(document)
        with self._lock:
            if not self._ledger.runs:
                return
            *others, count = self._ledger.runs
            self._pieces.see(progress)
            read, write = run_requests(
                progress,
                self._destinations,
                self._chunk_bytes,
                moves=self._moves,
                compares=self._compares,
                pieces=self._pieces.count,
            )
            count = replace(
                count,
                egress_usd=self._egress_of(count, progress),
                read=_most(count.read, read),
                write=_most(count.write, write),
                route_bytes=_route_bytes(progress, count.route_bytes),
                duplicate_bytes=max(count.duplicate_bytes, progress.duplicate_bytes),
            )
            self._ledger = replace(self._ledger, runs=(*others, count))
            if self._clock() - self._saved_s >= SAVE_S:
                self._save()

    def _egress_of(self, count: RunCount, progress: Progress) -> float:
        """Return the egress of the present run [USD]: the larger figure, unless a line knows of more saved bytes.

        A lead books bytes at their full price, and refunds what was saved when they arrive.
        """
        usd, saved_bytes = progress.cost_usd - self._base_usd, sum(hop.saved_bytes for hop in progress.hops)
        if saved_bytes < self._saved_bytes:
            return count.egress_usd
        is_newer, self._saved_bytes = saved_bytes > self._saved_bytes, saved_bytes
        return usd if is_newer else max(count.egress_usd, usd)

    def beat(self) -> None:
        """Write the ledger if a write is due."""
        with self._lock:
            if self._clock() - self._saved_s >= SAVE_S:
                self._save()

    def save(self) -> None:
        """Write the ledger."""
        with self._lock:
            self._save()

    def _present(self) -> Ledger:
        return replace(self._ledger, heartbeat_s=max(self.unix_s, self._ledger.heartbeat_s))

    def _save(self) -> None:
        # A full disk must not end the job: the sums in memory stay correct, and so does the ceiling.
        with suppress(StateError, ConfigError, OSError):
            self._write(SAVE_BUSY_S)

    def _write(self, busy_s: float = BUSY_S) -> None:
        self._saved_s = self._clock()
        self._ledger = self._present()
        # A machine launched just now costs nothing yet.
        self._kept = self._kept or self._ledger.total_usd(self._ledger.heartbeat_s + SAVE_S) > 0
        if self._book is not None and self._kept:
            self._book.write(self._ledger, busy_s)


class LedgerDamaged(StateError):
    """The ledger of a job exists but is unreadable. Without it, the job would seem to have cost less."""


class LedgerBook:
    """The recorded ledger of one job. `folder` is the job's, where its lead records its spending."""

    def __init__(self, database: Database, job_id: str, folder: str) -> None:
        self.folder = folder
        self._database, self._job_id = database, job_id

    def read(self) -> Ledger | None:
        """Return the ledger; None if it is missing or unreadable: see `whole`. Raises StateError."""
        try:
            return self.whole()
        except LedgerDamaged:
            return None

    def whole(self) -> Ledger | None:
        """Return the ledger; None if it is missing. Raises LedgerDamaged, StateError."""
        try:
            return read_ledger(self._database, self._job_id)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LedgerDamaged(
                f"the cost of job {self._job_id} is unknown: its ledger in {self._database.path} is damaged",
                hint=f"restore the database from a copy: {TROUBLE}",
            ) from error

    def is_damaged(self) -> bool:
        """Return whether the ledger exists but is unreadable. Raises StateError."""
        try:
            self.whole()
        except LedgerDamaged:
            return True
        return False

    def write(self, ledger: Ledger, busy_s: float = BUSY_S) -> None:
        """Record a ledger, replacing the previous one; it survives a power loss. Raises StateError."""
        with self._database.transaction(busy_s=busy_s) as connection:
            write_ledger(connection, self._job_id, ledger)

    def present(self, job: Mapping[str, Any], progress: Progress, found: Ledger | None) -> Ledger:
        """Return the ledger that was `found`, with its lead's spending since; without one, the figures of the record.

        Older versions kept no ledger: the machines of a job under a ceiling were charged by the time of its last run.
        """
        carried_usd, _ = _carried_over_usd(self.folder)
        return _ledger_of_old(job, progress, carried_usd) if found is None else _with_egress(found, carried_usd)

    def end_fleet(self, fleet: str, now_s: float, unlaunched: Collection[str] = ()) -> None:
        """Record that the machines of a fleet have ended, unless a process runs the job and counts them itself.

        Those that were never launched are removed. Raises OSError, StateError.
        """
        with self._nobody_elses() as ledger:
            if ledger is None:
                return
            ended = ledger.without(fleet, unlaunched).ended(now_s, (fleet,))
            if ended != ledger:
                self.write(ended)

    def end_machines(self, now_s: float, unlaunched: Mapping[str, Collection[str]] | None = None) -> None:
        """Record that all machines of the job have ended, unless a process runs it and counts them itself.

        Those that were never launched, by fleet, are removed. Raises OSError, StateError.
        """
        with self._nobody_elses() as ledger:
            if ledger is not None:
                self.write(without_unlaunched(ledger, unlaunched or {}).ended(now_s))

    @contextmanager
    def _nobody_elses(self) -> Iterator[Ledger | None]:
        """Lock the ledger within the block, and yield it; None if it is missing, or a process runs the job."""
        lock = None if self.read() is None else client_lock(self.folder)
        try:
            yield None if lock is None else self.read()
        finally:
            if lock is not None:
                lock.release()


def without_unlaunched(ledger: Ledger, unlaunched: Mapping[str, Collection[str]]) -> Ledger:
    """Return the ledger without machines that were ordered but not launched, by fleet."""
    for fleet, names in unlaunched.items():
        ledger = ledger.without(fleet, names)
    return ledger


def _ledger_of_old(job: Mapping[str, Any], progress: Progress, carried_usd: float) -> Ledger:
    egress_usd = max(carried_usd, progress.cost_usd)
    runs = (RunCount(1, egress_usd),) if egress_usd > 0 else ()
    old = job.get("ceiling") or {}
    usd_per_s = float(old.get("machines_usd_per_s", 0.0))
    if usd_per_s == 0:
        return Ledger(runs=runs)
    lasted_s = max(0.0, old["boot_s"] + progress.elapsed_s - old["since_s"])
    gateways = (job.get("topology") or {}).get("gateways", {})
    price = MachinePrice(usd_per_s / max(1, len(gateways)), OLD_JOB_SOURCE)
    regions = {entry.get("region", "site:local"): price for entry in gateways.values()}
    return Ledger(JobPrices(regions), None, (), runs, old["earlier_usd"] + usd_per_s * lasted_s)


def _route_bytes(progress: Progress, counted: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes sent over each route that arrived, including those before it was removed and added again."""
    found: Counter[str] = Counter()
    for hop in progress.hops:
        found[hop.name] += hop.bytes - hop.saved_bytes
    return dict(found | Counter(counted))


def _most(counted: Any, found: Any) -> Any:
    """Return the larger number of each kind of request: a late line has smaller numbers."""
    both = {name: max(number, getattr(found, name)) for name, number in to_document(counted).items()}
    return type(counted)(**both)


def _with_egress(ledger: Ledger, usd: float) -> Ledger:
    """Return the ledger with at least this egress: the last run spent more after its owner's last write."""
    counted_usd, runs = _egress_usd(ledger), ledger.runs or (RunCount(1),)
    if usd <= counted_usd:
        return ledger
    last = replace(runs[-1], egress_usd=runs[-1].egress_usd + usd - counted_usd)
    return replace(ledger, runs=(*runs[:-1], last))


def _egress_usd(ledger: Ledger) -> float:
    return sum(count.egress_usd for count in ledger.runs)


def _carried_over_usd(folder: str | None) -> tuple[float, bool]:
    """Return the egress of earlier runs from which the next lead starts (lead/run/spending.rs reads the same files).

    Also return whether that figure is exact: it was written before anything was sent, and is not a sum that was seconds
    old when a lead died.
    """
    if folder is None:
        return 0.0, False
    with suppress(OSError, ValueError, IndexError):
        return float((Path(folder) / SPENT_FILE).read_text(encoding="ascii").split()[0]), True
    try:
        status = JobStatus.from_document(json.loads(read_regular(Path(folder) / "status.json")))
    except (OSError, ValueError, KeyError):
        return 0.0, False
    return status.progress.cost_usd, status.state != "running"
