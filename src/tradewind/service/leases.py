"""Keeps the leases of one server: renews them, and knows when they can no longer be relied on.

It also renews the right to schedule while a pass of the scheduler lasts.

The database's clock decides when another server may adopt a job. This server counts from before each renewal by its own
monotonic clock, which does not stop while the machine is suspended, and stops relying on its leases earlier: so it has
stopped its runs when another server may begin.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from tradewind.errors import StateError
from tradewind.model.clock import elapsed_s
from tradewind.service.claims import ClaimTable
from tradewind.service.faults import Faults
from tradewind.service.jobs import JobLease, LeaseLost
from tradewind.service.scheduler_lease import SchedulerLease

__all__ = ["LeaseKeeper"]

_LOG = logging.getLogger("tradewind.service")
#: Interval at which the states of the server's jobs are read.
LOOK_S = 0.25
#: Share of a lease after which it is renewed, and after which it is not relied on.
RENEW_SHARE = 0.2
RELIABLE_SHARE = 0.7


class LeaseKeeper:
    """Renews the leases of a server in a thread of its own. Any thread may ask for them."""

    def __init__(self, claims: ClaimTable, right: SchedulerLease, lease_s: float, faults: Faults) -> None:
        self._claims, self._right, self._lease_s, self._faults = claims, right, lease_s, faults
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._held: dict[JobLease, str] = {}
        #: Leases with the time of their claim, which a look that began earlier does not know [s].
        self._added: dict[JobLease, float] = {}
        #: Leases with the time at which they were over, which a look that began earlier does not know [s].
        self._over: dict[JobLease, float] = {}
        self._reliable_until_s = 0.0
        self._renewed_s = -lease_s
        self.thread = threading.Thread(target=self._keep, name="leases", daemon=True)

    def start(self) -> None:
        """Renew the leases from now on. Raises StateError if the database cannot be reached."""
        self._look()
        self.thread.start()

    def add(self, claimed: Mapping[JobLease, str]) -> None:
        """Keep the leases of jobs that were claimed just now."""
        with self._lock:
            now_s = elapsed_s()
            self._held.update(claimed)
            self._added.update(dict.fromkeys(claimed, now_s))

    def drop(self, lease: JobLease) -> None:
        """Forget a lease whose job needs no more work. If the lease is not over, the next look finds it again."""
        with self._lock:
            self._held.pop(lease, None)
            self._added.pop(lease, None)
            self._over[lease] = elapsed_s()

    def held(self) -> list[JobLease]:
        """Return the leases that can be relied on."""
        with self._lock:
            return list(self._held) if elapsed_s() < self._reliable_until_s else []

    def state(self, lease: JobLease) -> str:
        """Return the state of a job of this server. Raises LeaseLost."""
        with self._lock:
            state = self._held.get(lease)
            if state is None or elapsed_s() >= self._reliable_until_s:
                raise LeaseLost(lease.job)
            return state

    def close(self) -> None:
        """Renew no more."""
        self._closing.set()
        if self.thread.ident is not None:
            self.thread.join()

    def _keep(self) -> None:
        is_failing = False
        while not self._closing.wait(LOOK_S):
            try:
                with self._faults.caught("leases"):  # Without a pause: leases expire.
                    self._look()
                    self._right.keep()
                is_failing = False
            except StateError as error:
                if not is_failing:
                    _LOG.error("leases cannot be renewed: %s", error)
                is_failing = True

    def _look(self) -> None:
        began_s = elapsed_s()
        is_due = began_s - self._renewed_s >= self._lease_s * RENEW_SHARE
        held = self._claims.renew() if is_due else self._claims.held()
        with self._lock:
            self._added = {lease: added_s for lease, added_s in self._added.items() if added_s >= began_s}
            self._over = {lease: over_s for lease, over_s in self._over.items() if over_s >= began_s}
            found = {**{lease: self._held[lease] for lease in self._added}, **held}
            self._held = {lease: state for lease, state in found.items() if lease not in self._over}
            if is_due:
                self._renewed_s, self._reliable_until_s = began_s, began_s + self._lease_s * RELIABLE_SHARE
