"""When a job will finish: an interval that contains the real end in a stated share of cases.

The point estimate is simple: bytes ahead and own bytes, divided by rates. The interval is split conformal prediction
(Vovk, Gammerman and Shafer, 2005): quantiles of real duration / estimated duration, over the latest jobs of the same
kind. A job that has waited longer than its estimate is compared only with jobs that had waited so long, too.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque

from tradewind.model.records import dataclass

__all__ = ["COVERAGE", "Calibration", "Eta"]

#: The end of the year 9999.
LATEST_UNIX_S_MAX = 253_402_300_799
COVERAGE = 0.9
"""Share of jobs whose end lies in the interval."""
AIM = 0.93
"""Share that quantiles are taken for. Load changes while a job waits, so the latest jobs are not quite like it."""
SCORES_MAX = 1000
"""Latest jobs that an interval is computed from."""
SCORES_MIN = 20
"""With fewer jobs than this the interval is `WIDE`."""
WIDE = (0.05, 20.0)
"""Real duration / estimated duration before there are enough jobs to compare with."""


@dataclass(frozen=True)
class Eta:
    """The job ends between `earliest_s` and `latest_s` with probability `COVERAGE`."""

    earliest_s: float
    latest_s: float

    @property
    def unix_ms(self) -> tuple[int, int] | None:
        """The two times as Unix times [ms]; None if the job may last until after the year 9999.

        A job of many bytes at a low rate may: no calendar has such a time, and no database keeps it.
        """
        if self.latest_s > LATEST_UNIX_S_MAX:
            return None
        return round(self.earliest_s * 1000), round(self.latest_s * 1000)


class Calibration:
    """Durations of jobs of one kind, in multiples of their estimates."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, estimate_s: float, real_s: float) -> None:
        """Add a finished job."""
        score = real_s / max(estimate_s, 1e-9)
        self._latest.append(score)
        insort(self._sorted, score)
        if len(self._latest) > SCORES_MAX:
            del self._sorted[bisect_right(self._sorted, self._latest.popleft()) - 1]

    def interval(self, since_s: float, estimate_s: float, now_s: float) -> Eta:
        """Return when a job ends that began at `since_s`, was estimated then, and has not ended at `now_s`."""
        passed = (now_s - since_s) / max(estimate_s, 1e-9)
        at = bisect_right(self._sorted, passed)
        count = len(self._sorted) - at
        if count < SCORES_MIN:
            low, high = WIDE[0], max(WIDE[1], passed * WIDE[1])
        else:
            tail = (1 - AIM) / 2
            low = self._sorted[at + max(int(tail * (count + 1)) - 1, 0)]
            high = self._sorted[at + min(int((1 - tail) * (count + 1)), count - 1)]
        return Eta(max(now_s, since_s + low * estimate_s), max(now_s, since_s + high * estimate_s))
