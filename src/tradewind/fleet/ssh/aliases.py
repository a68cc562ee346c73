"""Hosts that the user's own ssh configuration names."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

__all__ = ["address_of", "host_aliases"]

#: Timeout of `ssh -G`, which only reads its configuration [s].
CONFIG_S = 10.0
#: Maximum number of names that are read from a configuration.
ALIASES_MAX = 200


def host_aliases(config: Path) -> list[str]:
    """Return the names in the `Host` lines of an ssh configuration, without patterns; empty if it cannot be read."""
    try:
        lines = config.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    names = []
    for line in lines:
        try:
            words = shlex.split(line.replace("=", " ", 1), comments=True)
        except ValueError:
            continue
        if words and words[0].lower() == "host":
            names += [word for word in words[1:] if not set(word) & set("*?!")]
    return list(dict.fromkeys(names))[:ALIASES_MAX]


def address_of(name: str, config: str | None = None) -> str | None:
    """Return the address that ssh connects to for a name; None if ssh cannot say."""
    words = ["ssh", *([] if config is None else ["-F", config]), "-G", "--", name]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=CONFIG_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    settings = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    return settings.get("hostname") if done.returncode == 0 else None
