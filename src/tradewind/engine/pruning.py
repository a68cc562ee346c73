"""Old jobs: which of them may be removed, and the cost records that go with them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress

from tradewind.engine.gateways import open_fleets
from tradewind.engine.jobs import JobRecord, JobStore
from tradewind.engine.ledger import LedgerBook
from tradewind.errors import JobBusy, JobNotFound, JobUnreadable
from tradewind.fleet.journal import FleetJournal
from tradewind.model.ledger import Ledger
from tradewind.model.records import dataclass

__all__ = ["Pruned", "prune", "prune_oldest"]

#: States of jobs that are over: they do not run, and cannot be resumed. So is a job that failed before its lead began:
#: only its cost is left of it.
OVER = ("done", "cancelled")
#: Maximum jobs kept that are over; the oldest are removed first.
OVER_JOBS_MAX = 1000
#: Number of excess jobs that must accumulate before jobs are removed.
OVER_JOBS_SLACK = 100


@dataclass(frozen=True, slots=True)
class Pruned:
    """Jobs that were removed, or would be. `costly` of them had a cost record that was not zero, of `usd` together."""

    jobs: tuple[str, ...] = ()
    costly: int = 0
    usd: float = 0.0


def prune(store: JobStore, before_unix_ms: int, *, dry_run: bool = False) -> Pruned:
    """Remove the jobs that were created before this time and are over, with their folders and records.

    A job stays if it runs, can be resumed, is unreadable, or if one of its machines or fleets has not ended. With
    `dry_run` nothing is removed. Raises StateError.
    """
    query = "SELECT id FROM jobs WHERE created_unix_ms < ? ORDER BY id"
    return _removed(store, [job_id for (job_id,) in store.database.rows(query, (before_unix_ms,))], dry_run=dry_run)


def prune_oldest(store: JobStore) -> Pruned:
    """Remove the oldest jobs that are over, beyond OVER_JOBS_MAX, and what is left of jobs that were never recorded.

    The same jobs stay as with `prune`. Raises StateError.
    """
    store.remove_remains()
    # Jobs that failed can be resumed. Those that are open in the database may be over by their status.
    found = store.database.row("SELECT count(*) FROM jobs WHERE state != 'failed' OR summary IS NULL")
    if found is None or found[0] < OVER_JOBS_MAX + OVER_JOBS_SLACK:
        return Pruned()
    over = [record.id for record in store.records() if _is_over(store, record)]
    removed = _removed(store, over[: max(0, len(over) - OVER_JOBS_MAX)])
    store.remove_rows_without_folder()
    return removed


def _removed(store: JobStore, job_ids: Iterable[str], *, dry_run: bool = False) -> Pruned:
    fleets = FleetJournal(store.state_dir)
    removed: list[str] = []
    costs: list[float] = []
    for job_id in job_ids:
        with suppress(JobBusy, JobNotFound, JobUnreadable, OSError), ExitStack() as held:
            if not _is_over(store, store.load(job_id)):
                continue
            # Its process may still end machines, although the job is done.
            held.callback(store.hold(job_id).release)
            ledger = LedgerBook(store.database, job_id, store.path(job_id)).read()
            if not _is_over(store, store.load(job_id)) or open_fleets(fleets, job_id) or _has_machines(ledger):
                continue
            if not dry_run:
                store.forget(job_id)
            removed.append(job_id)
            costs.append(_usd(ledger))
    return Pruned(tuple(removed), sum(usd > 0 for usd in costs), sum(costs))


def _is_over(store: JobStore, record: JobRecord) -> bool:
    return record.state in OVER or (record.state == "failed" and not store.has_begun(record.id))


def _has_machines(ledger: Ledger | None) -> bool:
    return ledger is not None and any(use.ended_s is None for use in ledger.machines)


def _usd(ledger: Ledger | None) -> float:
    return 0.0 if ledger is None else sum(line.usd for line in ledger.lines(time.time()))
