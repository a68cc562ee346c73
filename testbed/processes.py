"""Gateways as processes of this host, seen from outside: for tests that stop, kill or measure them."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["gateways_of"]


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
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "serve" in words and "--control" in words:
            found[words[words.index("--control") + 1].rpartition("/")[2]] = int(entry.name)
    return found
