"""Leases of a fleet's machines: renewed all at the same time, and how long each may live at most."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from tradewind.errors import GatewayError
from tradewind.fleet.calls import each_of
from tradewind.gateway.client import GatewayClient

__all__ = ["RENEWALS_PER_LEASE", "RENEWAL_S_MAX", "Leases"]

#: Leases are renewed so many times before they expire.
RENEWALS_PER_LEASE = 3
#: A machine answers a renewal within so long, or the renewal counts as failed until the next one.
RENEWAL_S_MAX = 10.0


class Leases:
    """The leases of one fleet. `client_of` returns the client of a gateway; it raises KeyError for one that is gone.

    `report` gets one line about what goes wrong, `note` the name and the lease [s] of a machine that was renewed.
    """

    def __init__(
        self,
        client_of: Callable[[str], GatewayClient],
        report: Callable[[str], None],
        note: Callable[[str, float], None],
    ) -> None:
        self._client_of, self._report, self._note = client_of, report, note
        self._clock: Callable[[], float] = time.monotonic
        #: When each machine ends by itself at the latest, unless it is renewed.
        self._expiries_s: dict[str, float] = {}
        #: Machines whose last renewal failed.
        self._unrenewed: set[str] = set()

    def begin(self, name: str, lease_s: float) -> None:
        """A machine is ordered with a lease."""
        self._expiries_s[name] = self._clock() + lease_s
        self._unrenewed.discard(name)

    def end(self, name: str) -> None:
        """A machine is gone."""
        self._expiries_s.pop(name, None)

    def expired_s(self, name: str) -> float:
        """Return since when the lease of a machine has expired [s]; zero or less if it has not, or is unknown."""
        now_s = self._clock()
        return now_s - self._expiries_s.get(name, now_s)

    def renew(self, names: Collection[str], lease_s: int) -> None:
        """Renew leases. The first failure in a row is reported; whoever needs the machine notices when it ends."""
        each_of([*names], lambda name: self._renew_one(name, lease_s))

    def _renew_one(self, name: str, lease_s: int) -> None:
        timeout_s = min(RENEWAL_S_MAX, lease_s / RENEWALS_PER_LEASE)
        try:
            client = self._client_of(name)
            # Also if the answer is lost, the machine may have the new lease.
            self._expiries_s[name] = max(self._expiries_s.get(name, 0.0), self._clock() + timeout_s + lease_s)
            client.renew_lease(lease_s, timeout_s)
            self._expiries_s[name] = self._clock() + lease_s
            self._note(name, lease_s)
        except KeyError:
            self._expiries_s.pop(name, None)  # Its machine was ended meanwhile.
        except GatewayError as error:
            if name not in self._unrenewed and self._is_known(name):
                self._unrenewed.add(name)
                self._report(f"the lease of machine {name} could not be renewed: {error}")
        else:
            self._unrenewed.discard(name)

    def _is_known(self, name: str) -> bool:
        try:
            self._client_of(name)
        except KeyError:
            return False
        return True
