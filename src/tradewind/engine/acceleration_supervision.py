"""The state of an acceleration's supervisor: it may be killed, stopped by a signal, or hang."""

from __future__ import annotations

import os

from tradewind.fleet.owner import pid_namespace
from tradewind.fleet.running import RunningProcess, find_process
from tradewind.model.acceleration import LIVING, AccelerationState, Supervision, SupervisorProcess

__all__ = ["SILENT_S", "supervision_of", "this_supervisor"]

#: A supervisor that has written no state for this time is reported: it writes one each second, but a look at a proxy
#: may take 5 s, and the end of machines some more.
SILENT_S = 30.0


def this_supervisor() -> SupervisorProcess:
    """Return this process as a supervisor."""
    process = find_process(os.getpid())
    return SupervisorProcess(process.pid, process.started, pid_namespace())


def supervision_of(state: AccelerationState, *, held: bool, now_s: float) -> Supervision | None:
    """Return whether the supervisor works; None if the acceleration has ended. `now_s` is Unix time.

    `held` is true if a process holds the acceleration's lock. A process id decides only in the PID namespace of the
    supervisor. A supervisor that starts machines writes no state, so its silence means nothing.
    """
    if state.phase not in LIVING:
        return None
    if not held:
        return "gone"
    recorded = state.process
    if recorded is not None and recorded.pid_namespace == pid_namespace():
        process = RunningProcess(recorded.pid, recorded.started)
        if not process.alive:
            return "gone"  # Another process holds the lock, to end or resume it.
        if process.stopped:
            return "stopped"
    is_silent = state.phase != "starting" and now_s - state.updated_unix_s >= SILENT_S
    return "silent" if is_silent else "working"
