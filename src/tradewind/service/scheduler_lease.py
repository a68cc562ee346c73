"""The right to schedule: one replica has it at a time, with a number that grows with each holder.

A pass may take longer than a lease: the first one of a new holder reads all jobs. So another thread renews the lease
meanwhile. Otherwise, with many jobs, each holder would lose it before its first decision, and no job would ever start.
It does so only while the pass reports progress: a thread that hangs loses the lease, and another server schedules.

Each transaction that carries out decisions checks it. So a replica that has lost the right, and does not know it yet,
changes nothing, and its successor has read the jobs after its last change.
"""

from __future__ import annotations

import logging
import threading
import time

from sqlalchemy import Connection, insert, select, update

from tradewind.service.database import ServiceDatabase, database_unix_ms
from tradewind.service.scheduling_tables import schedulers

__all__ = ["SchedulerLease"]

_LOG = logging.getLogger("tradewind.service")
NAME = "scheduler"
#: Share of the lease after which it is renewed.
RENEW_SHARE = 0.3
#: Share of the lease after which `keep` renews it during a pass.
KEEP_SHARE = 0.5
#: Maximum time without progress of a pass, in leases, and the least of it: one statement of the database may take long.
#: Beyond it, the lease is not renewed.
SILENT_LEASES_MAX, SILENT_S_MIN = 1.0, 10.0


class SchedulerLease:
    """The lease of one server. `lease_ms` is its length [ms]."""

    def __init__(self, database: ServiceDatabase, owner: str, lease_ms: int) -> None:
        self._database, self._owner, self._lease_ms = database, owner, lease_ms
        self._epoch: int | None = None
        self._renewed_s = 0.0
        self._progressed_s = time.monotonic()
        self._is_silent = False
        self._lock = threading.Lock()

    def progressed(self) -> None:
        """Note that the scheduling thread has done a part of its pass: it does not hang."""
        self._progressed_s = time.monotonic()

    def silent_leases(self) -> float:
        """Return for how long the scheduling thread has made no progress, in leases."""
        return (time.monotonic() - self._progressed_s) * 1000 / self._lease_ms

    def hold(self) -> int | None:
        """Acquire or renew the lease; return its number, or None while another server has it. Raises StateError."""
        self._progressed_s = now_s = time.monotonic()
        if self._epoch is not None and now_s - self._renewed_s < self._lease_ms / 1000 * RENEW_SHARE:
            return self._epoch
        with self._lock:
            return self._acquired(now_s)

    def keep(self) -> None:
        """Renew the lease if it is held and the pass makes progress. Another thread calls this. Raises StateError."""
        if not self._lock.acquire(blocking=False):
            return  # It is being acquired or released.
        try:
            epoch, now_s, lease_s = self._epoch, time.monotonic(), self._lease_ms / 1000
            is_due = now_s - self._renewed_s >= lease_s * KEEP_SHARE
            if epoch is None or not is_due or self._hangs(now_s, lease_s):
                return
            mine = schedulers.c.name == NAME, schedulers.c.owner == self._owner, schedulers.c.epoch == epoch
            with self._database.write_rows() as connection:
                until = database_unix_ms(connection) + self._lease_ms
                is_lost = connection.execute(update(schedulers).where(*mine).values(lease_unix_ms=until)).rowcount == 0
            self._epoch, self._renewed_s = (None if is_lost else epoch), now_s
        finally:
            self._lock.release()

    def _hangs(self, now_s: float, lease_s: float) -> bool:
        """Return whether the pass makes no progress, and log that it has ceased to."""
        before, silent_s = self._is_silent, now_s - self._progressed_s
        self._is_silent = silent_s > max(lease_s * SILENT_LEASES_MAX, SILENT_S_MIN)
        if self._is_silent and not before:
            _LOG.error("the scheduler has made no progress for %.0f s: another server may schedule", silent_s)
        return self._is_silent

    def _acquired(self, now_s: float) -> int | None:
        """Acquire or renew the lease; return its number, or None while another server has it."""
        clock_ms = self._database.clock_ms
        query = select(schedulers.c.owner, schedulers.c.epoch, schedulers.c.lease_unix_ms, clock_ms).where(
            schedulers.c.name == NAME
        )
        with self._database.read() as connection:
            found = connection.execute(query).first()
            if found is not None and found[0] != self._owner and found[2] >= found[3]:
                self._epoch = None
                return None
        with self._database.write() as connection:
            found = connection.execute(query).first()
            until = database_unix_ms(connection) + self._lease_ms
            if found is None:
                row = {"name": NAME, "owner": self._owner, "epoch": 1, "lease_unix_ms": until}
                connection.execute(insert(schedulers).values(**row))
                epoch = 1
            elif found[0] != self._owner and found[2] >= found[3]:
                self._epoch = None
                return None
            else:
                epoch = found[1] + (found[0] != self._owner)
                values = {"owner": self._owner, "epoch": epoch, "lease_unix_ms": until}
                connection.execute(update(schedulers).where(schedulers.c.name == NAME).values(**values))
        self._epoch, self._renewed_s = epoch, now_s
        return epoch

    def is_held(self, connection: Connection) -> bool:
        """Return whether this server still has the lease, in a transaction that excludes all others that decide."""
        query = select(schedulers.c.owner, schedulers.c.epoch).where(schedulers.c.name == NAME)
        found = connection.execute(query).first()
        if found is None or tuple(found) != (self._owner, self._epoch):
            self._epoch = None
            return False
        return True

    def leave(self) -> None:
        """Give the lease up, so that another server schedules at once. Raises StateError."""
        with self._lock:
            with self._database.write_rows() as connection:
                mine = schedulers.c.name == NAME, schedulers.c.owner == self._owner
                connection.execute(update(schedulers).where(*mine).values(lease_unix_ms=0))
            self._epoch = None
