"""Leases of a fleet's machines: renew them concurrently, and know when each expires at the latest."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from tradewind.errors import GatewayError
from tradewind.fleet.calls import each_of
from tradewind.fleet.settings import LEASE_S_MIN
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.process import STOP_S
from tradewind.model.clock import elapsed_s

__all__ = ["RENEWALS_PER_LEASE", "RENEWAL_S_MAX", "Leases", "lease_within"]

#: Number of renewals within the length of one lease.
RENEWALS_PER_LEASE = 3
#: Timeout of one renewal. A failed one is not retried before the next is due.
RENEWAL_S_MAX = 10.0
#: Timeout of the question whether a gateway answers. Leases must be renewed in time meanwhile.
ANSWER_S_MAX = 5.0


def lease_within(room_s: float, longest_s: int, least_s: float = 0.0) -> int:
    """Return a lease with which machines that nobody renews end before they have run for `room_s`, as under a ceiling.

    A machine ends by itself within STOP_S after its lease. The lease is at most `longest_s`, and never shorter than
    `least_s` or LEASE_S_MIN, even if that exceeds the ceiling.
    """
    return math.ceil(min(longest_s, max(room_s - STOP_S, least_s, LEASE_S_MIN)))


class Leases:
    """The leases of one fleet.

    `client_of` returns the client of a gateway, and raises KeyError if it is gone. `report` gets one line per problem,
    `note` the name of a machine and the length of its renewed lease [s].
    """

    def __init__(
        self,
        client_of: Callable[[str], GatewayClient],
        report: Callable[[str], None],
        note: Callable[[str, float], None],
    ) -> None:
        self._client_of, self._report, self._note = client_of, report, note
        self._clock: Callable[[], float] = elapsed_s
        #: Latest time at which each machine ends by itself unless its lease is renewed.
        self._expiries_s: dict[str, float] = {}
        #: Time at which each machine was launched, or last answered a renewal.
        self._seen_s: dict[str, float] = {}
        #: Machines whose last renewal failed.
        self._unrenewed: set[str] = set()
        self._is_closed = False

    def close(self) -> None:
        """Begin no further renewal. One under way ends within RENEWAL_S_MAX."""
        self._is_closed = True

    def begin(self, name: str, lease_s: float) -> None:
        """Add a machine that was ordered with a lease."""
        self._seen_s[name] = self._clock()
        self._expiries_s[name] = self._seen_s[name] + lease_s
        self._unrenewed.discard(name)

    def end(self, name: str) -> None:
        """Remove a machine that is gone."""
        self._expiries_s.pop(name, None)
        self._seen_s.pop(name, None)

    def expired_s(self, name: str) -> float:
        """Return how long ago the lease of a machine expired [s]; zero or less if it has not, or is unknown."""
        now_s = self._clock()
        return now_s - self._expiries_s.get(name, now_s)

    def unseen_s(self, name: str) -> float:
        """Return how long ago a machine was surely alive [s]; infinite if that is unknown."""
        return self._clock() - self._seen_s.get(name, float("-inf"))

    def answers(self, name: str) -> bool:
        """Ask a gateway for a sign of life, and return whether it gave one."""
        try:
            self._client_of(name).version(ANSWER_S_MAX)
        except (KeyError, GatewayError):
            return False
        self._seen_s[name] = self._clock()
        return True

    def renew(self, names: Collection[str], lease_s: int) -> None:
        """Renew leases concurrently. Only the first of consecutive failures of a machine is reported."""
        each_of([*names], lambda name: self._renew_one(name, lease_s))

    def _renew_one(self, name: str, lease_s: int) -> None:
        if self._is_closed:
            return
        timeout_s = min(RENEWAL_S_MAX, lease_s / RENEWALS_PER_LEASE)
        try:
            client = self._client_of(name)
            # The machine may have the new lease even if its answer is lost.
            self._expiries_s[name] = max(self._expiries_s.get(name, 0.0), self._clock() + timeout_s + lease_s)
            client.renew_lease(lease_s, timeout_s)
            self._seen_s[name] = self._clock()
            self._expiries_s[name] = self._seen_s[name] + lease_s
            self._note(name, lease_s)
        except KeyError:
            self._expiries_s.pop(name, None)  # The machine was ended meanwhile.
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
