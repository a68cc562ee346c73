"""Connections of a flow that fail on its proxies. Pure: counts and times in, a decision out."""

from __future__ import annotations

import math

__all__ = ["AWAY_S", "FAILED_MAX", "FailedConnections"]

FAILED_MAX = 3
"""Consecutive connections that may fail, although their destination did not refuse them; then new ones go direct."""
AWAY_S = 60.0
"""Time for which they do."""


class FailedConnections:
    """The consecutive failures of one flow."""

    def __init__(self) -> None:
        self._failed = self._established = self._run = 0
        self._until_s = -math.inf

    def count(self, failed: int, established: int, now_s: float) -> None:
        """Take in the counts since the start of the proxy."""
        more_failed, more_established = failed - self._failed, established - self._established
        self._failed, self._established = failed, established
        self._run = 0 if more_established > 0 else self._run + max(0, more_failed)
        if self._run >= FAILED_MAX:
            self._until_s, self._run = now_s + AWAY_S, 0

    def are_too_many(self, now_s: float) -> bool:
        """Return whether new connections go direct at this time."""
        return now_s < self._until_s
