"""Processes of this machine by id, distinguished from later processes with the same id."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["RunningProcess", "find_process"]

#: Where the kernel cannot tell us of an end, it is asked so often.
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process that was running at some time. `started` is its start in ticks since boot; None if the kernel does not
    report it.
    """

    pid: int
    started: int | None

    @property
    def alive(self) -> bool:
        """True if it still runs. A zombie, and another process of the same number, do not count."""
        if self.started is not None:
            return _stat(self.pid) == self.started
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def wait(self, timeout_s: float) -> bool:
        """Return whether it has ended within the timeout; it need not be a child."""
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
        """Sends a signal to its process group, which it leads; nothing if it is gone.

        Nothing either where its start is not known: by then its number may be another process's.
        """
        if self.started is not None and self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"pid": self.pid, "started": self.started}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RunningProcess:
        """From JSON."""
        return cls(int(document["pid"]), document["started"])


def find_process(pid: int) -> RunningProcess:
    """The process that has this id now."""
    return RunningProcess(pid, _stat(pid))


def _stat(pid: int) -> int | None:
    """Its start, from Linux's /proc; None if it is gone, a zombie, or there is no /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
