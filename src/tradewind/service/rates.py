"""Limits on requests per second, by token bucket."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict

from tradewind.service.limits import RATES_MAX
from tradewind.service.problems import ApiProblem

__all__ = ["Rates"]


class Rates:
    """One bucket per name: it gains `per_s` requests each second and holds `burst` at most. Any thread may use it."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s, self._burst = per_s, burst
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, name: str, now_s: float) -> float:
        """Count a request; return 0, or the time until the next one is allowed [s]."""
        with self._lock:
            left, then_s = self._buckets.pop(name, (float(self._burst), now_s))
            left = min(self._burst, left + (now_s - then_s) * self._per_s)
            allowed = left >= 1
            self._buckets[name] = (left - 1 if allowed else left, now_s)
            if len(self._buckets) > RATES_MAX:
                self._buckets.popitem(last=False)
            return 0.0 if allowed else (1 - left) / self._per_s

    def require(self, name: str) -> None:
        """Count a request. Raises ApiProblem 429 if there are too many."""
        wait_s = self.wait_s(name, time.monotonic())
        if wait_s > 0:
            raise ApiProblem(429, "too many requests", headers={"Retry-After": str(math.ceil(wait_s))})
