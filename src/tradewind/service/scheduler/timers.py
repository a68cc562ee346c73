"""Timers in the order of the times, and of their setting where those are equal."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

__all__ = ["Timers"]


class Timers:
    """Timers, each with a kind and the name of what it is about. They are never removed: it may be out of date."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str, str]] = []
        self._numbers = 0

    def next_s(self) -> float:
        """Return the time of the next timer; infinity if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def set(self, at_s: float, kind: str, name: str) -> None:
        """Add a timer."""
        self._numbers += 1
        heapq.heappush(self._heap, (at_s, self._numbers, kind, name))

    def take_due(self, now_s: float) -> Iterator[tuple[str, str]]:
        """Remove the timers that are due, and yield kind and name of each. Timers may be set meanwhile."""
        while self.next_s() <= now_s:
            _, _, kind, name = heapq.heappop(self._heap)
            yield kind, name
