"""Folders that only their owner may enter: files in the state folder name processes to end and places to write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tradewind.errors import ConfigError

__all__ = ["FOLDER_MODE", "STATE_ENTRIES", "private_folder", "require_own", "state_folder"]

FOLDER_MODE = 0o700
#: What Tradewind keeps in a state folder.
STATE_ENTRIES = frozenset({"catalog", "fleets", "jobs", "skies"})
#: Bits of a mode that let others in.
_OTHERS = 0o077
_OTHERS_WRITE = 0o022


def private_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder and its missing parents with mode 0700, or take the others' rights from one that is there.

    Raises:
        ConfigError: it belongs to another user.
        OSError: it cannot be made.
    """
    folder = Path(path)
    _make(folder)
    mode = stat.S_IMODE(require_own(folder).st_mode)
    if mode & _OTHERS:
        folder.chmod(FOLDER_MODE)
    return folder


def state_folder(path: str | os.PathLike[str]) -> Path:
    """Make the state folder itself, as `private_folder` does. A folder with other things in it keeps its mode.

    Raises:
        ConfigError: it belongs to another user, or others may write to it and it has more in it than our folders.
        OSError: it cannot be made.
    """
    folder = Path(path)
    _make(folder)
    mode = stat.S_IMODE(require_own(folder).st_mode)
    if not mode & _OTHERS:
        return folder
    if STATE_ENTRIES.issuperset(os.listdir(folder)):
        folder.chmod(FOLDER_MODE)
    elif mode & _OTHERS_WRITE and not mode & stat.S_ISVTX:
        raise ConfigError(
            f"state folder {folder}: other users may write to it (mode {mode:04o})",
            hint=f"chmod go-w {folder}, or set TRADEWIND_STATE_DIR to another folder",
        )
    return folder


def require_own(path: Path) -> os.stat_result:
    """Return the status of a file or folder of this user. Raises ConfigError if another user owns it, OSError."""
    found = path.stat()
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"{path}: it belongs to user {found.st_uid}, not to {os.geteuid()}",
            hint="set TRADEWIND_STATE_DIR to a folder of your own",
        )
    return found


def _make(folder: Path) -> None:
    """`mkdir -p`, but missing parents get the same mode, which `os.makedirs` gives only to the last."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        if folder == folder.parent:
            break
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=FOLDER_MODE, exist_ok=True)
