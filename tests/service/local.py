"""A database and a scheduler of the service for tests, in this process and without a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tradewind.model.event import Progress
from tradewind.service.auth import ensure_admin
from tradewind.service.bindings import ServiceBinder
from tradewind.service.claims import ClaimTable
from tradewind.service.database import ServiceDatabase
from tradewind.service.grid import GridReader
from tradewind.service.jobs import JobQueue
from tradewind.service.scheduler_lease import SchedulerLease
from tradewind.service.scheduling import ServiceScheduler
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
) -> ServiceScheduler:
    """Return the scheduler of a server with room for `jobs_max` jobs, which has said that it is there."""
    claims = ClaimTable(database, name, jobs_max, LEASE_MS)
    claims.renew()
    lease, binder = SchedulerLease(database, name, LEASE_MS), ServiceBinder(GridReader(str(folder / "engine")))
    return ServiceScheduler(database, JobQueue(database), claims, lease, binder, lambda *_: None, progress)
