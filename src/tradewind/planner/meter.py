"""The work of one question, counted: the same on every machine and at any load, unlike time.

Every loop of the planner either ends after a number of steps that has a name, or counts its work here and ends when it
is spent. It then answers with the best that was found, and with the gap that is left.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WORK_MAX", "Meter"]

WORK_MAX = 50_000
"""Work of one question with one destination: some 3 CPU-s."""
RELAXATION_WORK = 200
"""Overhead of a relaxation beside its simplex iterations, in iterations of the same programme."""
COLUMNS_MIN = 2000
"""Smaller programmes cost no less: handing them over takes longer than solving them."""
COLUMNS_OF_WORK = 1e4
"""A simplex iteration of a programme with so many columns is one unit of work."""


TREE_WORK_PER_REGION = 0.33
"""Work of one search for the cheapest distribution tree, per region."""
TREE_WORK_PER_SPLIT = 0.027
"""The same per way of splitting the destinations, of which there are 3^k for k destinations."""
CHECK_WORK = 400
"""Work assumed between two checks of a branch and bound, as `RELAXATION_WORK`; iterations are counted afterwards."""


@dataclass(slots=True)
class Meter:
    """Counts the work of one question: the same on every machine and at any load, unlike time."""

    work_max: float = WORK_MAX
    done: float = 0.0
    whole: Meter | None = None
    """Meter of the enclosing question; work counted here counts there too."""

    def count(self, iterations: int, columns: int) -> None:
        """Count one linear programme."""
        self._add((RELAXATION_WORK + iterations) * _size(columns))

    def count_tree(self, regions: int, destinations: int) -> None:
        """Count one search for the cheapest distribution tree."""
        self._add(TREE_WORK_PER_REGION * regions + TREE_WORK_PER_SPLIT * 3.0**destinations)

    def _add(self, work: float) -> None:
        self.done += work
        if self.whole is not None:
            self.whole._add(work)

    def checks_left(self, columns: int) -> int:
        """Return how many checks of a branch and bound the work that is left pays for, at least one."""
        left = self.work_max - self.done
        if self.whole is not None:
            left = min(left, self.whole.work_max - self.whole.done)
        return max(1, int(left / (CHECK_WORK * _size(columns))))

    @property
    def spent(self) -> bool:
        """True if what has been found by now must do."""
        return self.done >= self.work_max or (self.whole is not None and self.whole.spent)


def _size(columns: int) -> float:
    """Work of one simplex iteration."""
    return max(columns, COLUMNS_MIN) / COLUMNS_OF_WORK
