"""HiGHS's branch and bound of one MILP, with limits on work and CPU time.

HiGHS does not check its limits everywhere: it can run for long between two nodes, or within one. Therefore a child
process solves models with `CHILD_COLUMNS_MIN` columns or more, and the kernel kills it when its CPU time is used up.
The child reports each better point and bound, so that the best is known when it is killed. It is kept for the next
model. It ends with its parent, however the parent ends: the kernel signals it when the parent's end of a pipe closes.
"""

from __future__ import annotations

import atexit
import enum
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

import highspy
import numpy as np

from tradewind.model.life_pipe import end_when_closed
from tradewind.model.records import dataclass
from tradewind.planner.budget import WORK_PER_CPU_S, checks_work, search_work
from tradewind.planner.linear import MilpModel, load, quiet_highs
from tradewind.planner.network import FloatArray

__all__ = [
    "CHILD_COLUMNS_MIN",
    "MilpLimits",
    "MilpProgress",
    "MilpResult",
    "MilpStatus",
    "end_children",
    "serve_child",
    "solve_in_child",
    "solve_milp",
]

CHILD_COLUMNS_MIN = 1000
"""Minimum columns for a child process. For smaller models its start (0.2 CPU-s, once per process) costs more than
the search."""
WHOLE_TOLERANCE = 1e-8
"""Tolerance for whole machines in the branch and bound. HiGHS's own 1e-6 lets its bound save a millionth of a machine,
more than the gap within which an answer counts as proven."""


class MilpStatus(enum.Enum):
    """End of a branch and bound."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    STOPPED = "stopped"
    """Its limit on work or time was reached."""


@dataclass(frozen=True, slots=True)
class MilpLimits:
    """Limits of a branch and bound."""

    work: float
    """Work in the units of `WorkBudget`: the same on every machine."""
    cpu_s: float
    """Backstop where HiGHS does not count its work, and for very slow machines."""
    relative_gap: float
    columns: int
    """Size of the model for the work budget."""


@dataclass(frozen=True, slots=True, eq=False)
class MilpProgress:
    """Best point and best bound so far, in the units of the model, which is minimised."""

    bound: float = -np.inf
    objective: float = np.inf
    values: FloatArray | None = None
    """Values per column; ``None`` before the first point."""


@dataclass(frozen=True, slots=True, eq=False)
class MilpResult:
    """Result of a branch and bound."""

    status: MilpStatus
    found: MilpProgress
    work: float


def solve_milp(
    model: MilpModel,
    start: FloatArray | None,
    limits: MilpLimits,
    report: Callable[[MilpProgress], None] | None = None,
) -> MilpResult:
    """Run HiGHS's branch and bound in this process.

    Args:
        model: to be solved.
        start: a point to begin with, per column.
        limits: work and CPU time; HiGHS is asked to stop at either.
        report: called with each better point and each better bound.
    """
    highs = quiet_highs(limits.relative_gap)
    highs.setOptionValue("presolve", "off")  # Halves the median and cuts the worst of these models by four.
    highs.setOptionValue("mip_feasibility_tolerance", WHOLE_TOLERANCE)
    load(highs, model)
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = start
        highs.setSolution(solution)
    checks, best, began = 0, MilpProgress(), time.process_time()

    def check(kind: Any, message: str, out: Any, solution: Any, data: Any) -> None:
        nonlocal checks, best
        before = best
        if kind == highspy.cb.HighsCallbackType.kCallbackMipImprovingSolution:
            best = MilpProgress(best.bound, float(out.objective_function_value), np.array(out.mip_solution))
        else:
            checks += 1
            if float(out.mip_dual_bound) > best.bound:
                best = MilpProgress(float(out.mip_dual_bound), best.objective, best.values)
            spent = checks_work(checks, limits.columns) >= limits.work  # HiGHS reports iterations only at the end
            if spent or time.process_time() - began >= limits.cpu_s:
                solution.user_interrupt = True
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
        return MilpResult(MilpStatus.INFEASIBLE, MilpProgress(), work)
    ended = MilpStatus.OPTIMAL if status == highspy.HighsModelStatus.kOptimal else MilpStatus.STOPPED
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return MilpResult(ended, MilpProgress(float(info.mip_dual_bound)), work)
    values = np.array(highs.getSolution().col_value)
    found = MilpProgress(float(info.mip_dual_bound), float(info.objective_function_value), values)
    return MilpResult(ended, found, work)


STARTS_MAX = 2
"""A child that ends for any other reason than its CPU time (memory, a signal from outside) is replaced once."""
PROGRAM = "import sys; sys.path[:] = sys.argv[3:]; from tradewind.planner import milp; milp.serve_child(*sys.argv[1:3])"


class _Child:
    """One child process."""

    def __init__(self) -> None:
        self.line, theirs = Pipe()
        life, self._life = Pipe(duplex=False)
        with theirs, life:
            fds = (theirs.fileno(), life.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *map(str, fds), *map(str, sys.path)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )

    def wait(self) -> int:
        """Wait until the child ends, and return its exit code: negative if a signal ended it."""
        return self._process.wait()

    def end(self) -> None:
        """End it."""
        self.line.close()
        self._life.close()
        self._process.kill()
        self._process.wait()


_free: list[_Child] = []
"""Idle children, waiting for a model."""


def solve_in_child(model: MilpModel, start: FloatArray | None, limits: MilpLimits) -> MilpResult:
    """Run `solve_milp` in a child process; if the child is killed, return its best point and bound so far."""
    best = MilpProgress()
    for _ in range(STARTS_MAX):
        try:
            child = _free.pop() if _free else _Child()
        except OSError:  # No process available: use the result without the search.
            continue
        try:
            child.line.send((model, start, limits))
            while True:
                message = child.line.recv()
                if isinstance(message, MilpResult):
                    _free.append(child)
                    return message
                best = message
        except (EOFError, OSError):
            code = child.wait()
            child.end()
            if code > 0:
                raise RuntimeError(f"the solver's process failed with exit code {code}") from None
            if code == -signal.SIGXCPU:
                break
        except BaseException:  # Ctrl-C among them
            child.end()
            raise
    return MilpResult(MilpStatus.STOPPED, best, min(limits.work, limits.cpu_s * WORK_PER_CPU_S))


def end_children() -> None:
    """End the children that wait for a model."""
    while _free:
        _free.pop().end()


atexit.register(end_children)
os.register_at_fork(after_in_child=_free.clear)


def serve_child(line_fd: str, life_fd: str) -> None:
    """Run the main loop of a child: solve the models that arrive on the pipe, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles Ctrl-C, and ends the child
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end_when_closed(int(life_fd))
    with Connection(int(line_fd)) as line, suppress(EOFError, OSError):
        while True:
            model, start, limits = line.recv()
            _limit_cpu(limits.cpu_s)
            line.send(solve_milp(model, start, limits, line.send))


def _limit_cpu(cpu_s: float) -> None:
    """Have the kernel end this process a second or two after HiGHS should have stopped by itself."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + cpu_s) + 1
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))
