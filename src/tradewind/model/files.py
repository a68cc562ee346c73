"""The state folder and its files: location, permissions, and files that are safe to open."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from tradewind.errors import ConfigError

__all__ = [
    "FOLDER_MODE",
    "STATE_ENTRIES",
    "STATE_VARIABLE",
    "config_folder",
    "open_regular",
    "private_folder",
    "read_regular",
    "require_own",
    "state_folder",
    "state_home",
]

STATE_VARIABLE = "TRADEWIND_STATE_DIR"


def state_home(setting: str | None = None) -> str:
    """Return the setting; by default `$TRADEWIND_STATE_DIR`, then `$XDG_STATE_HOME/tradewind` (`~/.local/state`).

    Args:
        setting: `state_dir` from flags, environment and configuration, if the caller has read them.
    """
    folder = setting or os.environ.get(STATE_VARIABLE)
    if not folder:
        folder = os.path.join(os.environ.get("XDG_STATE_HOME") or "~/.local/state", "tradewind")
    return os.path.abspath(os.path.expanduser(folder))


def config_folder() -> str:
    """Return `$XDG_CONFIG_HOME/tradewind` (`~/.config`), which need not exist."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "tradewind")


FOLDER_MODE = 0o700
#: Entries of Tradewind in a state folder.
STATE_ENTRIES = frozenset(
    {
        "catalog",
        "fleets",
        "jobs",
        "skies",
        "state.sqlite",
        "state.sqlite-journal",
        "state.sqlite-shm",
        "state.sqlite-wal",
    }
)
#: Mode bits that give access to others.
_OTHERS = 0o077
_OTHERS_WRITE = 0o022


def private_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder and its missing parents with mode 0700; remove others' permissions from an existing one.

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
    """Make the state folder itself, like `private_folder`. A folder with unrelated entries keeps its mode.

    Raises:
        ConfigError: it belongs to another user, or is writable by others and has unrelated entries.
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
    """Return the status of a file or folder of this user. Raises OSError, or ConfigError if another user owns it."""
    found = path.stat()
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"{path}: it belongs to user {found.st_uid}, not to {os.geteuid()}",
            hint="set TRADEWIND_STATE_DIR to a folder of your own",
        )
    return found


def _make(folder: Path) -> None:
    """Do `mkdir -p`, with the same mode for missing parents (`os.makedirs` sets it only on the last folder)."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        if folder == folder.parent:
            break
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=FOLDER_MODE, exist_ok=True)


def open_regular(path: str | os.PathLike[str]) -> int:
    """Open a file for reading and return its descriptor. A pipe, on which opening would block, is an error.

    Raises:
        OSError: it cannot be opened, or is not a regular file (EINVAL).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return descriptor


def read_regular(path: str | os.PathLike[str]) -> str:
    """Return the text of a file. Raises OSError, also if it is not a regular file, and UnicodeDecodeError."""
    with open(open_regular(path), encoding="utf-8") as file:
        return file.read()
