"""Counted work of one question. Unlike time, it is the same on every machine and at any load.

Every loop of the planner either ends after a named number of steps, or counts its work here and stops at the limit.
The answer is then the best that was found, with the remaining gap.
"""

from __future__ import annotations

from tradewind.model.records import dataclass

__all__ = ["WORK_MAX", "WORK_PER_CPU_S", "WorkBudget", "checks_work", "search_work"]

WORK_MAX = 50_000
"""Work of one question with one destination: about 3 CPU-s."""
WORK_PER_CPU_S = 15_000
"""Work that a 2024 processor does in a second. Estimates the work of a search that was killed before it reported."""
RELAXATION_WORK = 200
"""Overhead of a relaxation beside its simplex iterations, in iterations of the same model."""
COLUMNS_MIN = 2000
"""Smaller models count as this many columns: for them, handing the model to HiGHS takes longer than solving it."""
COLUMNS_OF_WORK = 1e4
"""A simplex iteration of a model with this many columns is one unit of work."""


TREE_WORK_PER_REGION = 0.33
"""Work of one search for the cheapest distribution tree, per region."""
TREE_WORK_PER_SPLIT = 0.027
"""The same per split of the destinations; there are 3^k splits for k destinations."""
SEARCH_ITERATION_WORK = 7
"""Cost of a simplex iteration within a branch and bound, in iterations of a linear program alone: cuts, heuristics
and several rows per column make it more expensive. Measured: 90 µs at 2,000 columns."""
SEARCH_CHECK_WORK = 150
"""Cost of the remaining work between two checks of a branch and bound. Measured: 2 ms there."""
RUNNING_CHECK_WORK = 400
"""Both together per check, while the iterations are unknown."""


@dataclass(slots=True)
class WorkBudget:
    """Work done for one question, and its limit: the same on every machine and at any load, unlike time."""

    work_max: float = WORK_MAX
    done: float = 0.0
    parent: WorkBudget | None = None
    """Budget of the enclosing question; work counted here counts there too."""

    def count(self, iterations: int, columns: int) -> None:
        """Count one linear program."""
        self._add((RELAXATION_WORK + iterations) * _size(columns))

    def count_tree(self, regions: int, destinations: int) -> None:
        """Count one search for the cheapest distribution tree."""
        self._add(TREE_WORK_PER_REGION * regions + TREE_WORK_PER_SPLIT * 3.0**destinations)

    def _add(self, work: float) -> None:
        self.done += work
        if self.parent is not None:
            self.parent._add(work)

    def count_search(self, work: float) -> None:
        """Count one branch and bound with this much work (`search_work`)."""
        self._add(work)

    @property
    def left(self) -> float:
        """Return the work that may still be done."""
        left = max(0.0, self.work_max - self.done)
        return left if self.parent is None else min(left, self.parent.left)

    @property
    def spent(self) -> bool:
        """True if the limit is reached."""
        return self.done >= self.work_max or (self.parent is not None and self.parent.spent)


def search_work(iterations: int, checks: int, columns: int) -> float:
    """Return the work of a branch and bound after this many simplex iterations and checks of its limits."""
    return (SEARCH_ITERATION_WORK * iterations + SEARCH_CHECK_WORK * checks) * _size(columns)


def checks_work(checks: int, columns: int) -> float:
    """Return the assumed work of a running branch and bound, of which only the checks are known."""
    return RUNNING_CHECK_WORK * checks * _size(columns)


def _size(columns: int) -> float:
    """Return the work of one simplex iteration."""
    return max(columns, COLUMNS_MIN) / COLUMNS_OF_WORK
