"""Find gateways among the processes of this host, for tests that stop, kill or measure them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tradewind.fleet.process_table import HOME_VARIABLE, MACHINE_VARIABLE
from tradewind.fleet.provider import NAME_TAG

__all__ = ["gateway_name", "gateways_of", "owner_of"]


def gateway_name(pid: int) -> str | None:
    """Return the name of the gateway that a process runs; None for other processes. Raises OSError if it has ended."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    if words[1:2] != ["serve"]:
        return None
    marks = dict(
        entry.split("=", 1) for entry in _environment(pid) if entry.startswith((HOME_VARIABLE, MACHINE_VARIABLE))
    )
    if MACHINE_VARIABLE in marks:
        return str(json.loads(marks[MACHINE_VARIABLE])["tags"][NAME_TAG])
    if HOME_VARIABLE in marks:
        return str(json.loads(marks[HOME_VARIABLE])["name"])
    return words[words.index("--control") + 1].rpartition("/")[2] if "--control" in words else None


def _environment(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")


def gateways_of(client: int | None = None) -> dict[str, int]:
    """Return the process ids of the gateways that `client` started, by name; by default those of this process."""
    found = {}
    for pid in _children(os.getpid() if client is None else client):
        with suppress(OSError):
            name = gateway_name(pid)
            if name is not None:
                found[name] = pid
    return found


def owner_of(client: int) -> int:
    """Return the process id of the owner of the fleet that `client` started. Raises ValueError unless there is one."""
    found = []
    for pid in _children(client):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"owner"]:
                found.append(pid)
    (pid,) = found
    return pid


def _children(parent: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                yield int(entry.name)
