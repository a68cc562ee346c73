"""HiGHS's branch and bound of one programme with whole machines, ended when its work or its CPU time is spent.

HiGHS does not look at limits everywhere: between two nodes, and within one, it can calculate on without asking. A
programme with `APART_COLUMNS_MIN` columns or more is therefore solved by a child process (`apart.py`), which the kernel
ends.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from tradewind.planner.linear import Programme, load, quiet_highs
from tradewind.planner.meter import checks_work, search_work
from tradewind.planner.network import FloatArray

__all__ = ["APART_COLUMNS_MIN", "MixedAnswer", "MixedLimits", "Progress", "Status", "solve_mixed"]

APART_COLUMNS_MIN = 1000
"""Minimum columns for a child process. For smaller programmes its start (0.2 CPU-s, once per process) costs more than
the search."""
WHOLE_TOLERANCE = 1e-8
"""Tolerance for whole machines in the branch and bound. HiGHS's own 1e-6 lets its bound save a millionth of a machine,
more than the gap within which an answer counts as proven."""


class Status(enum.Enum):
    """End of a branch and bound."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    STOPPED = "stopped"
    """Its work or time was spent."""


@dataclass(frozen=True, slots=True)
class MixedLimits:
    """Limits of a branch and bound."""

    work: float
    """Work in the units of `Meter`: the same on every machine."""
    cpu_s: float
    """Backstop where HiGHS does not count its work, and for very slow machines."""
    relative_gap: float
    columns: int
    """Size of the programme for the meter."""


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """Best point and best bound so far, in the units of the programme, which is minimised."""

    bound: float = -np.inf
    objective: float = np.inf
    values: FloatArray | None = None
    """Values per column; ``None`` before the first point."""


@dataclass(frozen=True, slots=True, eq=False)
class MixedAnswer:
    """Result of a branch and bound."""

    status: Status
    found: Progress
    work: float


def solve_mixed(
    programme: Programme,
    start: FloatArray | None,
    limits: MixedLimits,
    report: Callable[[Progress], None] | None = None,
) -> MixedAnswer:
    """Run HiGHS's branch and bound in this process.

    Args:
        programme: to be solved.
        start: a point to begin with, per column.
        limits: work and CPU time; HiGHS is asked to stop at either.
        report: called with each better point and each better bound.
    """
    highs = quiet_highs(limits.relative_gap)
    highs.setOptionValue("presolve", "off")  # Halves the median and cuts the worst of these programmes by four.
    highs.setOptionValue("mip_feasibility_tolerance", WHOLE_TOLERANCE)
    load(highs, programme)
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = start
        highs.setSolution(solution)
    checks, best, began = 0, Progress(), time.process_time()

    def check(kind: Any, message: str, out: Any, answer: Any, data: Any) -> None:
        nonlocal checks, best
        before = best
        if kind == highspy.cb.HighsCallbackType.kCallbackMipImprovingSolution:
            best = Progress(best.bound, float(out.objective_function_value), np.array(out.mip_solution))
        else:
            checks += 1
            if float(out.mip_dual_bound) > best.bound:
                best = Progress(float(out.mip_dual_bound), best.objective, best.values)
            spent = checks_work(checks, limits.columns) >= limits.work  # iterations are known only afterwards
            if spent or time.process_time() - began >= limits.cpu_s:
                answer.user_interrupt = True
        if report is not None and best is not before:
            report(best)

    highs.setCallback(check, None)
    highs.startCallback(highspy.cb.HighsCallbackType.kCallbackMipInterrupt)
    if report is not None:
        highs.startCallback(highspy.cb.HighsCallbackType.kCallbackMipImprovingSolution)
    highs.run()
    info, status = highs.getInfo(), highs.getModelStatus()
    work = search_work(max(0, int(info.simplex_iteration_count)), checks, limits.columns)
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return MixedAnswer(Status.INFEASIBLE, Progress(), work)
    ended = Status.OPTIMAL if status == highspy.HighsModelStatus.kOptimal else Status.STOPPED
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return MixedAnswer(ended, Progress(float(info.mip_dual_bound)), work)
    values = np.array(highs.getSolution().col_value)
    found = Progress(float(info.mip_dual_bound), float(info.objective_function_value), values)
    return MixedAnswer(ended, found, work)
