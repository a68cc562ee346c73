"""A database, a scheduler and a job runner of the service for tests, in this process and without a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tradewind.model.event import Progress
from tradewind.service.auth import ensure_admin
from tradewind.service.bindings import ServiceBinder
from tradewind.service.claims import ClaimTable
from tradewind.service.connections import ConnectionBook
from tradewind.service.database import ServiceDatabase
from tradewind.service.faults import Faults
from tradewind.service.grid import GridReader
from tradewind.service.jobs import JobQueue
from tradewind.service.machines import HERE_ONLY, MachineRules
from tradewind.service.runner import JobRunner
from tradewind.service.scheduler_lease import SchedulerLease
from tradewind.service.scheduling import ServiceScheduler
from tradewind.service.sealing import Sealer
from tradewind.service.settings import ServiceSettings

LEASE_MS = 60_000


def new_database(folder: Path) -> ServiceDatabase:
    """Return a new database on SQLite, with the admin token."""
    settings = ServiceSettings(state=folder / "state")
    settings.state.mkdir(mode=0o700)
    database = ServiceDatabase(settings.state)
    database.require_current()
    ensure_admin(database, settings)
    return database


def scheduler(
    database: ServiceDatabase,
    folder: Path,
    name: str,
    jobs_max: int = 8,
    progress: Callable[[str], Progress | None] = lambda _: None,
    *,
    tunes_links: bool = True,
    rules: MachineRules = HERE_ONLY,
) -> ServiceScheduler:
    """Return the scheduler of a server with room for `jobs_max` jobs, which has said that it is there."""
    claims = ClaimTable(database, name, jobs_max, LEASE_MS)
    claims.renew()
    lease, binder = SchedulerLease(database, name, LEASE_MS), ServiceBinder(GridReader(str(folder / "engine")))
    queue, faults = JobQueue(database), Faults()
    return ServiceScheduler(
        database, queue, claims, lease, binder, lambda *_: None, progress, faults, tunes_links=tunes_links, rules=rules
    )


def job_runner(database: ServiceDatabase, folder: Path) -> JobRunner:
    """Return the runner of a server for one job at a time, which has not started."""
    settings = ServiceSettings(state=folder / "state", allow_paths=(str(folder),), lease_s=LEASE_MS // 1000)
    book = ConnectionBook(database, Sealer.of(settings), settings)
    claims = ClaimTable(database, "this", 1, LEASE_MS)
    return JobRunner(database, JobQueue(database), claims, settings, GridReader(settings.engine_state), book, Faults())


def copy_request(folder: Path, limit_bytes_per_s: int | None = None) -> dict[str, Any]:
    """Return the request of a job that copies `source` in a folder to `copy`."""
    places = {"source": str(folder / "source"), "destination": [str(folder / "copy")]}
    how = {"verb": "cp", "recursive": True, "delete": False, "verify": "auto", "stall_s": 60}
    return {**places, **how, "limit_bytes_per_s": limit_bytes_per_s}
