"""The renewals of a fleet: of its machines' leases and of its heartbeat, in a thread of their own until it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.leases import RENEWAL_S_MAX, RENEWALS_PER_LEASE, Leases, lease_within
from tradewind.fleet.owner import HEARTBEAT_S
from tradewind.fleet.settings import FleetSettings, Meter
from tradewind.gateway.process import STOP_S
from tradewind.model.clock import elapsed_s
from tradewind.model.latch import Latch

if TYPE_CHECKING:
    from tradewind.fleet.keeping import Keeper

__all__ = ["Renewals"]


class Renewals:
    """Renews the leases of one fleet, shorter ones as the cost ceiling comes near.

    `machines` returns the names of the machines that answer, `charge_dead` reports dead ones to the meter. `changing`
    is held while the fleet is closed: nothing is recorded of a fleet that `ended` says is closed.
    """

    def __init__(
        self,
        fleet_id: str,
        journal: FleetJournal,
        leases: Leases,
        settings: FleetSettings,
        *,
        meter: Meter | None,
        keeper: Keeper | None,
        ended: Latch,
        changing: threading.Lock,
        machines: Callable[[], Collection[str]],
        charge_dead: Callable[[], None],
    ) -> None:
        self._fleet_id, self._journal, self._leases, self._settings = fleet_id, journal, leases, settings
        self._meter, self._keeper, self._ended, self._changing = meter, keeper, ended, changing
        self._machines, self._charge_dead = machines, charge_dead
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Renew from now on."""
        self._thread = threading.Thread(target=self._renew, name=f"leases of {self._fleet_id}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let a renewal under way end, as it would lengthen the lease of a machine that was given back."""
        self._leases.close()
        if self._thread is not None:
            self._thread.join(RENEWAL_S_MAX)

    def lease_s(self, least_s: float = 0.0) -> int:
        """Return the lease for the next renewal: short enough that unrenewed machines stay below the cost ceiling."""
        longest_s = self._settings.lease_s
        if self._keeper is not None:
            longest_s = self._keeper.keeping.lease_s(longest_s)
        if self._meter is None:
            return longest_s
        return lease_within(self._meter.left_s(longest_s + STOP_S), longest_s, least_s)

    def renew_all(self) -> int:
        """Renew all leases, and return their length [s]. The lead at home has no lease."""
        lease_s = self.lease_s()
        self._leases.renew(self._machines(), lease_s)
        return lease_s

    def shorten(self, names: Collection[str]) -> None:
        """Renew the leases of machines at once if the cost ceiling comes near, as they may have been longer before."""
        lease_s = self.lease_s()
        if lease_s < self._settings.lease_s:
            self._leases.renew([name for name in self._machines() if name in names], lease_s)

    def _renew(self) -> None:
        """Renew all leases concurrently, and the record's heartbeat, until the fleet ends.

        After a suspension of this machine the leases are renewed within HEARTBEAT_S, because they have become shorter.
        """
        due_s = elapsed_s() + self._settings.lease_s / RENEWALS_PER_LEASE
        while not self._ended.wait(min(HEARTBEAT_S, max(0.0, due_s - elapsed_s()))):
            with self._changing:
                if not self._ended.is_set():
                    self._journal.beat(self._fleet_id)
            self._charge_dead()
            if elapsed_s() >= due_s:
                due_s = elapsed_s() + self.renew_all() / RENEWALS_PER_LEASE
