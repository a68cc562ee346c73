"""The threads that run the jobs of the service.

One thread runs the scheduler, if it is this server's turn, and adopts jobs that were started. Each adopted job has one
more thread, in which `JobWorker` works on it until it is not active any more or its lease is lost.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from tradewind.engine.engine import Engine
from tradewind.errors import StateError, TradewindError
from tradewind.service.bindings import ServiceBinder
from tradewind.service.claims import ClaimTable
from tradewind.service.connections import ConnectionBook
from tradewind.service.database import ServiceDatabase
from tradewind.service.faults import Faults
from tradewind.service.grid import GridReader
from tradewind.service.job_traces import JobTraces
from tradewind.service.job_worker import OWN_PAUSE_S, JobWorker
from tradewind.service.jobs import JobLease, JobQueue, LeaseLost
from tradewind.service.leases import LeaseKeeper
from tradewind.service.limits import ORPHANS_EVERY_S, PASS_EVERY_S, PROBE_EVERY_S
from tradewind.service.orphans import Orphans
from tradewind.service.schedule_runner import ScheduleRunner
from tradewind.service.scheduler_lease import SchedulerLease
from tradewind.service.scheduling import ServiceScheduler
from tradewind.service.settings import ServiceSettings
from tradewind.service.store_prober import StoreProber

__all__ = ["JobRunner"]

_LOG = logging.getLogger("tradewind.service")
#: Time without progress, in leases, after which the scheduling thread counts as hanging.
HUNG_LEASES_MIN = 4.0
#: Time for the threads of jobs to end when the server stops.
STOP_S = 60.0
#: Time for the thread that ends orphaned fleets: it may wait for a provider, and the next server tries again.
ORPHANS_STOP_S = 2.0


class JobRunner:
    """Runs jobs until it is closed. `changed` is called after each change that it makes."""

    def __init__(
        self,
        database: ServiceDatabase,
        queue: JobQueue,
        claims: ClaimTable,
        settings: ServiceSettings,
        grid: GridReader,
        connections: ConnectionBook,
        faults: Faults,
        traces: JobTraces | None = None,
    ) -> None:
        self._database, self._claims, self._settings, self._faults = database, claims, settings, faults
        right = self._right = SchedulerLease(database, claims.owner, settings.lease_s * 1000)
        self._leases = LeaseKeeper(claims, right, settings.lease_s, faults)
        # A server ends the machines of one that was killed, so they are charged by the clock that both share.
        self._engine = Engine(state_dir=settings.engine_state, gateway=settings.gateway, unix_s=database.clock.unix_s)
        self._wake, self._closing = threading.Event(), threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        self._worker = JobWorker(
            database, queue, self._leases, self._engine, settings, connections, faults, traces, self._closing
        )
        binder = ServiceBinder(grid)
        self._scheduling = ServiceScheduler(
            database,
            queue,
            claims,
            right,
            binder,
            self._worker.fail,
            self._worker.progress,
            faults,
            tunes_links=settings.tunes_links,
            rules=settings.machines,
        )
        self._schedules = ScheduleRunner(database, queue, faults, traces, right.progressed)
        self._next_s = 0.0
        self._stores = StoreProber(database, settings.gateway, self.wake)
        self._prober = threading.Thread(target=self._probe, name="stores", daemon=True)
        self._orphans = Orphans(self._engine)
        self._ender = threading.Thread(target=self._end_orphans, name="orphans", daemon=True)
        self._scheduler = threading.Thread(target=self._schedule, name="scheduler", daemon=True)

    @property
    def engine(self) -> Engine:
        """The engine that has the jobs' records."""
        return self._engine

    @property
    def scheduling(self) -> ServiceScheduler:
        """The scheduler, which decides while it is this server's turn."""
        return self._scheduling

    @property
    def is_alive(self) -> bool:
        """Return whether all threads of the runner live, so that jobs are scheduled, run and kept.

        A scheduling thread that has made no progress for HUNG_LEASES_MIN hangs.
        """
        threads = self._scheduler, self._prober, self._ender, self._leases.thread
        is_moving = self._right.silent_leases() < HUNG_LEASES_MIN
        return all(thread.is_alive() for thread in threads) and is_moving and not self._closing.is_set()

    def start(self) -> None:
        """Begin with the jobs that were active when their server ended. Raises StateError."""
        if not self._settings.is_replica:
            self._claims.end_others()
        self._leases.start()
        self._scheduler.start()
        self._prober.start()
        self._ender.start()
        self.wake()

    def wake(self) -> None:
        """Look at the jobs now: one was submitted or changed."""
        self._wake.set()

    def close(self) -> None:
        """Drain the running jobs and release them; another server, or the next one, resumes them."""
        self._closing.set()
        self._wake.set()
        with suppress(StateError):
            self._claims.close()
        if self._scheduler.ident is not None:
            self._scheduler.join(STOP_S)
            self._prober.join(STOP_S)
            self._ender.join(ORPHANS_STOP_S)
        with suppress(StateError):
            self._scheduling.leave()
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(STOP_S)
        self._leases.close()
        with suppress(StateError):
            self._claims.leave()
        self._engine.close()

    def _schedule(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(self._next_s)
            self._wake.clear()
            if self._closing.is_set():
                return
            try:
                self._pass()
            except TradewindError as error:
                self._next_s = OWN_PAUSE_S
                _LOG.error("scheduling: %s", error)

    def _pass(self) -> None:
        """Schedule, if it is this server's turn to, and attend the jobs that this server has or can adopt.

        A fault of the program in one of them stops neither the others nor the next pass.
        """
        self._next_s = PASS_EVERY_S
        if not self._faults.pause_s("scheduling"):
            self._schedule_jobs()
        if not self._faults.pause_s("schedules"):
            with self._faults.caught("schedules", recovers=False):
                self._schedules.step(is_scheduling=self._scheduling.is_scheduling)
        if not self._faults.pause_s("adoption"):
            with self._faults.caught("adoption"):
                self._adopt()

    def _schedule_jobs(self) -> None:
        """Schedule once. After a fault of the program, let another server try."""
        with self._faults.caught("scheduling") as step:
            self._next_s = min(PASS_EVERY_S, self._scheduling.step())
        if step.fault is not None:
            self._scheduling.leave()

    def _adopt(self) -> None:
        own = self._leases.held()
        self._right.progressed()
        adopted = self._claims.adopt(self._settings.jobs_max - len(own))
        self._leases.add(adopted)
        for lease in [*own, *adopted]:
            self._attend(lease)

    def _probe(self) -> None:
        """Ask the stores that are down, until they answer."""
        while not self._closing.wait(max(PROBE_EVERY_S, self._faults.pause_s("stores"))):
            try:
                with self._faults.caught("stores"):
                    if self._scheduling.is_scheduling:
                        self._stores.step()
            except TradewindError as error:
                _LOG.error("asking stores: %s", error)

    def _end_orphans(self) -> None:
        """End the machines of killed servers and commands, at once and from time to time."""
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            try:
                with self._faults.caught("orphans"):
                    self._orphans.step()
            except TradewindError as error:
                _LOG.error("machines of killed commands: %s", error)
            pause_s = max(ORPHANS_EVERY_S, self._faults.pause_s("orphans"))

    def _attend(self, lease: JobLease) -> None:
        """Give an active job a thread unless it has one."""
        with self._lock:
            if lease.job in self._threads:
                return
            thread = threading.Thread(target=self._work, args=(lease,), name=f"job {lease.job}", daemon=True)
            thread.start()  # It needs the lock to end. If it cannot start, a later pass tries again.
            self._threads[lease.job] = thread

    def _work(self, lease: JobLease) -> None:
        """Work on a job until it is not active any more, its lease is lost, or the server ends."""
        try:
            with self._faults.caught("jobs") as step:
                self._work_while_leased(lease)
            if step.fault is None:
                # Otherwise each pass would give the job another thread, whose end begins the next pass.
                self._leases.drop(lease)
            else:  # The next pass gives the job another thread.
                _LOG.error("job %s: fault %s", lease.job, step.fault)
                self._closing.wait(self._faults.pause_s("jobs"))
        finally:
            if self._closing.is_set():
                with suppress(StateError):
                    self._claims.release(lease)
            with self._lock:
                del self._threads[lease.job]
            self._wake.set()

    def _work_while_leased(self, lease: JobLease) -> None:
        try:
            self._worker.work(lease)
        except LeaseLost:
            _LOG.warning("job %s: the lease is lost; its run was stopped", lease.job)
