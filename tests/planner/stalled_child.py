"""A solver's child process whose HiGHS never comes back: it calculates and asks nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tradewind.planner import apart
from tradewind.planner.mixed import MixedAnswer, Progress

__all__ = ["serve", "stall"]


def serve(line_fd: str, life_fd: str) -> None:
    """Report one point of the knapsack, then calculate for ever."""
    vars(apart)["solve_mixed"] = _reporting
    apart.serve(line_fd, life_fd)


def stall(line_fd: str, life_fd: str) -> None:
    """Calculate for ever without a word."""
    vars(apart)["solve_mixed"] = _silent
    apart.serve(line_fd, life_fd)


def _reporting(programme: Any, start: Any, limits: Any, report: Callable[[Progress], None] | None) -> MixedAnswer:
    assert report is not None
    report(Progress(-12.0, -5.0, np.array([1.0, 0.0, 0.0])))
    return _silent(programme, start, limits, report)


def _silent(programme: Any, start: Any, limits: Any, report: Any) -> MixedAnswer:
    while True:
        pass
