"""Tradewind's processes on this host, found by a mark in their environment, which no file can forge."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tradewind.fleet.running import EXEC_LOOK_S, RunningProcess, changes_program, find_process

__all__ = ["HOME_VARIABLE", "MACHINE_VARIABLE", "mark_of", "marked_processes"]

#: Looks at a process that has no environment while it becomes another program.
EXEC_LOOKS_MAX = 100
#: Variables that hold the mark, a JSON object: of a process that is a machine, and of one at the home of a fleet.
MACHINE_VARIABLE = "TRADEWIND_MACHINE"
HOME_VARIABLE = "TRADEWIND_HOME"


def marked_processes(variable: str) -> Iterator[tuple[RunningProcess, Mapping[str, Any]]]:
    """Yield the processes of this user that have the mark and lead their process group, with the mark's content.

    A child of a gateway inherits its mark, but does not lead a group. Yields nothing without /proc.
    """
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        return
    for name in names:
        if name.isdigit() and (mark := _mark(int(name), variable)) is not None:
            process = find_process(int(name))
            if process.started is not None:
                yield process, mark


def mark_of(process: RunningProcess, variable: str) -> Mapping[str, Any] | None:
    """Return the content of a process's mark; None unless the process lives, is this user's and has the mark."""
    return _mark(process.pid, variable) if process.alive else None


def _mark(pid: int, variable: str) -> Mapping[str, Any] | None:
    wanted = f"{variable}=".encode()
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return None
        environment = _environment(pid)
        found = next((entry for entry in environment.split(b"\0") if entry.startswith(wanted)), None)
        if found is None or os.getpgid(pid) != pid:
            return None
        mark = json.loads(found[len(wanted) :])
    except (OSError, ValueError, RecursionError):
        return None  # The process has just ended, or another program set the variable.
    return mark if isinstance(mark, dict) else None


def _environment(pid: int) -> bytes:
    """Return the environment of a process. While it becomes another program, it has none for a moment."""
    is_last = False
    for _ in range(EXEC_LOOKS_MAX):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if environment := file.read():
                    return environment
            os.readlink(f"/proc/{pid}/exe")  # Fails for threads of the kernel and for zombies, which never have one.
            is_last = False
        except (FileNotFoundError, ProcessLookupError):
            if not changes_program(pid):
                if is_last:
                    raise
                is_last = True  # It may have become the other program between the two looks.
                continue
        time.sleep(EXEC_LOOK_S)
    return b""
