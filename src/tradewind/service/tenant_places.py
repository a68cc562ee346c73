"""Places for work of which a server does a limited number at a time, in total and for each tenant."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from tradewind.service.problems import ApiProblem

__all__ = ["TenantPlaces"]


class TenantPlaces:
    """At most `places` in total, and `per_tenant` for one tenant. Any thread may use it.

    A tenant that gets no place is answered with the message `busy`, and may try again after `again_s`.
    """

    def __init__(self, places: int, per_tenant: int, busy: str, again_s: int) -> None:
        self._places, self._per_tenant, self._busy, self._again_s = places, per_tenant, busy, again_s
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """Number of places that are taken."""
        return self._taken.total()

    def enter(self, tenant: str) -> Callable[[], None]:
        """Take a place, and return what gives it back. Raises ApiProblem 429 if there is none."""
        with self._lock:
            if self.taken >= self._places or self._taken[tenant] >= self._per_tenant:
                raise ApiProblem(429, self._busy, headers={"Retry-After": str(self._again_s)})
            self._taken[tenant] += 1
        return lambda: self._leave(tenant)

    def _leave(self, tenant: str) -> None:
        with self._lock:
            self._taken[tenant] -= 1
            self._taken += Counter()  # Without the tenants that have none.
