"""A solver's child process whose HiGHS never returns: it computes and makes no callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tradewind.planner import milp
from tradewind.planner.milp import MilpProgress, MilpResult

__all__ = ["serve_child", "stall"]


def serve_child(line_fd: str, life_fd: str) -> None:
    """Report one point of the knapsack, then compute for ever."""
    vars(milp)["solve_milp"] = _reporting
    milp.serve_child(line_fd, life_fd)


def stall(line_fd: str, life_fd: str) -> None:
    """Compute for ever without reporting a point."""
    vars(milp)["solve_milp"] = _silent
    milp.serve_child(line_fd, life_fd)


def _reporting(model: Any, start: Any, limits: Any, report: Callable[[MilpProgress], None] | None) -> MilpResult:
    assert report is not None
    report(MilpProgress(-12.0, -5.0, np.array([1.0, 0.0, 0.0])))
    return _silent(model, start, limits, report)


def _silent(model: Any, start: Any, limits: Any, report: Any) -> MilpResult:
    while True:
        pass
