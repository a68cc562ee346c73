"""Gateways as processes of this host, seen from outside: for tests that stop, kill or measure them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tradewind.fleet.process_table import HOME_VARIABLE, MACHINE_VARIABLE
from tradewind.fleet.provider import NAME_TAG

__all__ = ["gateway_name", "gateways_of"]


def gateway_name(pid: int) -> str | None:
    """Name of the gateway that a process is; None for any other process. Raises OSError if it has ended."""
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
    """Process id by gateway name, of the gateways that a process started; of this one without `client`."""
    parent = os.getpid() if client is None else client
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) != parent:
                continue
            name = gateway_name(int(entry.name))
        except OSError:
            continue
        if name is not None:
            found[name] = int(entry.name)
    return found
