"""Hosts that the user's own ssh configuration names."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from glob import glob
from pathlib import Path

__all__ = ["CONFIG_S", "address_of", "host_aliases"]

#: Timeout of `ssh -G`, which only reads its configuration [s].
CONFIG_S = 10.0
#: Maximum number of names that are read from a configuration.
ALIASES_MAX = 200
#: Maximum depth of files that include others. ssh has the same.
DEPTH_MAX = 16


def host_aliases(config: Path) -> list[str]:
    """Return the names in the `Host` lines of an ssh configuration and the files that it includes, without patterns.

    Files that cannot be read have none.
    """
    return list(dict.fromkeys(_names_in(config, DEPTH_MAX, set())))[:ALIASES_MAX]


def _names_in(config: Path, depth: int, read: set[Path]) -> Iterator[str]:
    """Yield the names of a file that is not in `read`, which gets it."""
    if config in read:
        return
    read.add(config)
    try:
        lines = config.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            words = shlex.split(line.replace("=", " ", 1), comments=True)
        except ValueError:
            continue
        keyword = words[0].lower() if words else ""
        if keyword == "host":
            yield from (word for word in words[1:] if not set(word) & set("*?!"))
        elif keyword == "include" and depth > 0:
            for pattern in words[1:]:
                # As ssh does: a path that is not absolute is one in ~/.ssh.
                path = os.path.join(os.path.expanduser("~/.ssh"), os.path.expanduser(pattern))
                for found in sorted(glob(path)):
                    yield from _names_in(Path(found), depth - 1, read)


def address_of(name: str, config: str | None = None) -> str | None:
    """Return the address that ssh connects to for a name; None if ssh cannot say."""
    words = ["ssh", *([] if config is None else ["-F", config]), "-G", "--", name]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=CONFIG_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    settings = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    return settings.get("hostname") if done.returncode == 0 else None
