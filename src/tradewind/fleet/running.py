"""Processes of this host by id, distinguished from later processes with the same id."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tradewind.model.records import dataclass

__all__ = ["EXEC_LOOK_S", "RunningProcess", "changes_program", "find_process"]

#: Interval of polling for the end of a process, where the kernel cannot notify us.
POLL_S = 0.05
#: Maximum wait for a process that becomes another program, and the time between two looks at it.
EXEC_S = 0.1
EXEC_LOOK_S = 0.001


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process that was running at some time. `started` is its start in ticks since boot; None if the kernel does not
    report it.
    """

    pid: int
    started: int | None

    @property
    def alive(self) -> bool:
        """True if the process still runs. A zombie does not count, nor does another process with the same id.

        /proc may hide the processes of other users (`hidepid`). Such a process counts as this one: its id is all that
        is known of it.
        """
        if self.started is not None:
            return _stat(self.pid) == self.started or _is_hidden(self.pid)
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    @property
    def stopped(self) -> bool:
        """True if a signal or a debugger has stopped the process. False without /proc."""
        try:
            return self.alive and _fields(self.pid)[0] in "Tt"
        except OSError:
            return False

    def wait(self, timeout_s: float) -> bool:
        """Wait up to the timeout for the process to end; return whether it has. It need not be a child."""
        if not self.alive:
            return True
        deadline_s = time.monotonic() + timeout_s
        with suppress(OSError, AttributeError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.alive:
                    select.select([descriptor], [], [], timeout_s)
                return not self.alive
            finally:
                os.close(descriptor)
        while self.alive and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        return not self.alive

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group that this process leads. No effect if the process is gone.

        No effect either if its start is unknown: its id may belong to another process by now.
        """
        if self.started is not None and self.alive:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def document(self) -> dict[str, Any]:
        """Return the process as a JSON object."""
        return {"pid": self.pid, "started": self.started}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RunningProcess:
        """Return the process in a JSON object."""
        return cls(int(document["pid"]), document["started"])


def find_process(pid: int) -> RunningProcess:
    """Return the process that has this id now."""
    return RunningProcess(pid, _stat(pid))


def changes_program(pid: int) -> bool:
    """Return whether a process may be about to become another program: its first thread has ended, others have not.

    If another thread calls `exec`, the kernel ends the first one, and then gives its place to the caller. In between,
    /proc shows a zombie without environment, folder and program.
    """
    try:
        return _fields(pid)[0] == "Z" and len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def _stat(pid: int) -> int | None:
    """Return the start of a process from /proc; None if it is gone or a zombie, or without /proc.

    Waits up to EXEC_S for a process that becomes another program.
    """
    deadline_s = time.monotonic() + EXEC_S
    try:
        while (fields := _fields(pid))[0] in "ZX":
            if time.monotonic() >= deadline_s or not (changes_program(pid) or _fields(pid)[0] not in "ZX"):
                return None
            time.sleep(EXEC_LOOK_S)
    except OSError:
        return None
    return int(fields[19])


def _is_hidden(pid: int) -> bool:
    """Return whether a process of another user runs that /proc does not show."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return not os.path.exists(f"/proc/{pid}")
    except (ProcessLookupError, OverflowError):
        pass
    return False


def _fields(pid: int) -> list[str]:
    """Return the fields of a process in /proc after its name: its state first. Raises OSError."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
