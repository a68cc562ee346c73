"""Branch and bound in a child process that the kernel ends when its CPU time is spent, whatever HiGHS does.

The child reports each better point and bound, so what it had found is known when it is ended. It is kept for the next
programme. It dies with its parent, however that ends: the kernel signals it when the other end of its life line closes.
"""

from __future__ import annotations

import atexit
import fcntl
import math
import os
import resource
import select
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe

from tradewind.planner.linear import Programme
from tradewind.planner.meter import WORK_PER_CPU_S
from tradewind.planner.mixed import MixedAnswer, MixedLimits, Progress, Status, solve_mixed
from tradewind.planner.network import FloatArray

__all__ = ["end_children", "serve", "solve_apart"]

STARTS_MAX = 2
"""A child that ends for another reason than its CPU time (memory, a signal from outside) is replaced once."""
PROGRAM = "import sys; sys.path[:] = sys.argv[3:]; from tradewind.planner.apart import serve; serve(*sys.argv[1:3])"


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
        """Wait for its own end, and return its exit code: negative if a signal ended it."""
        return self._process.wait()

    def end(self) -> None:
        """End it."""
        self.line.close()
        self._life.close()
        self._process.kill()
        self._process.wait()


_free: list[_Child] = []
"""Children that wait for a programme."""


def solve_apart(programme: Programme, start: FloatArray | None, limits: MixedLimits) -> MixedAnswer:
    """Do the same as `mixed.solve_mixed` in a child process; if it is ended, return the best point and bound so far."""
    best = Progress()
    for _ in range(STARTS_MAX):
        try:
            child = _free.pop() if _free else _Child()
        except OSError:  # No process available: use what is known without the search.
            continue
        try:
            child.line.send((programme, start, limits))
            while True:
                said = child.line.recv()
                if isinstance(said, MixedAnswer):
                    _free.append(child)
                    return said
                best = said
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
    return MixedAnswer(Status.STOPPED, best, min(limits.work, limits.cpu_s * WORK_PER_CPU_S))


def end_children() -> None:
    """End the children that wait for a programme."""
    while _free:
        _free.pop().end()


atexit.register(end_children)
os.register_at_fork(after_in_child=_free.clear)


def serve(line_fd: str, life_fd: str) -> None:
    """Solve what comes through the line, until it closes. The child's whole life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends the child
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _die_when_closed(int(life_fd))
    with Connection(int(line_fd)) as line, suppress(EOFError, OSError):
        while True:
            programme, start, limits = line.recv()
            _limit_cpu(limits.cpu_s)
            line.send(solve_mixed(programme, start, limits, line.send))


def _die_when_closed(fd: int) -> None:
    """Have the kernel send SIGIO, which ends a process, when the parent's end of a pipe closes."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    watch = select.poll()
    watch.register(fd, 0)
    if watch.poll(0):  # it closed before
        sys.exit(0)


def _limit_cpu(cpu_s: float) -> None:
    """Have the kernel end this process a second or two after HiGHS should have stopped by itself."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + cpu_s) + 1
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))
