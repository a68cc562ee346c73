"""Limits of CPU time, so that the result depends little on how busy the machine is, and of wall time as a bound."""

from __future__ import annotations

import time

from tradewind.model.records import dataclass

__all__ = ["WALL_MORE_S", "CpuDeadline", "deadline_in"]

WALL_MORE_S = 15.0
"""Wall time beyond the CPU time after which a search ends anyway [s]."""


@dataclass(frozen=True, slots=True)
class CpuDeadline:
    """The end of a search in this thread."""

    cpu_s: float
    """CPU time of the thread at the end."""
    wall_s: float
    """Monotonic time at the end, at the latest."""

    @property
    def wall_left_s(self) -> float:
        """Wall time that is left; 0 at the end."""
        return max(0.0, self.wall_s - time.monotonic())

    @property
    def left_s(self) -> float:
        """CPU time that is left; 0 at the end."""
        return max(0.0, min(self.cpu_s - time.thread_time(), self.wall_left_s))

    @property
    def is_over(self) -> bool:
        """True if the search must end."""
        return self.left_s <= 0

    def part(self, part: float) -> CpuDeadline:
        """Return the end of a part of the time that is left."""
        return CpuDeadline(time.thread_time() + part * self.left_s, self.wall_s)

    def but(self, cpu_s: float) -> CpuDeadline:
        """Return the end that leaves so much of the CPU time."""
        return CpuDeadline(self.cpu_s - cpu_s, self.wall_s)

    def until(self, cpu_s: float) -> CpuDeadline:
        """Return the end after so much CPU time from now, or this one if it is earlier."""
        return CpuDeadline(min(self.cpu_s, time.thread_time() + cpu_s), self.wall_s)


def deadline_in(cpu_s: float, wall_more_s: float = WALL_MORE_S) -> CpuDeadline:
    """Return the deadline after `cpu_s` seconds of CPU time of this thread, or `wall_more_s` more of wall time."""
    return CpuDeadline(time.thread_time() + cpu_s, time.monotonic() + cpu_s + wall_more_s)
