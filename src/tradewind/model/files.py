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
    "USER_FILE_BYTES_MAX",
    "config_folder",
    "open_private",
    "open_regular",
    "private_folder",
    "read_regular",
    "read_user_file",
    "remove_folder",
    "require_own",
    "state_folder",
    "state_home",
    "write_user_file",
]

STATE_VARIABLE = "TRADEWIND_STATE_DIR"
#: Maximum length of a rule file, configuration or JSON document that a user names.
USER_FILE_BYTES_MAX = 4 << 20


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
        "accelerations",
        "catalog",
        "console",
        "fleets",
        "guests",
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
_OWN_FOLDER = "use a folder of your own: TRADEWIND_STATE_DIR names it, and --state that of `tradewind serve`"
#: Errors of a place in which this user can make no folder.
_WRONG_PLACE = frozenset({errno.EACCES, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EROFS})


def private_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder and its missing parents with mode 0700; remove others' permissions from an existing one.

    Raises:
        ConfigError: it belongs to another user, another user has made an entry, or no folder can be made there.
        OSError: the disk is full or fails.
    """
    folder = Path(path)
    _make(folder)
    mode = stat.S_IMODE(require_own(folder).st_mode)
    if mode & _OTHERS:
        _make_private(folder, mode)
    return folder


def state_folder(path: str | os.PathLike[str]) -> Path:
    """Make the state folder itself, like `private_folder`. A folder with unrelated entries keeps its mode.

    Raises:
        ConfigError: it belongs to another user, is writable by others and has unrelated entries or theirs, or cannot be
            made there.
        OSError: the disk is full or fails.
    """
    folder = Path(path)
    _make(folder)
    mode = stat.S_IMODE(require_own(folder).st_mode)
    if not mode & _OTHERS:
        return folder
    if STATE_ENTRIES.issuperset(os.listdir(folder)):
        _make_private(folder, mode)
    elif mode & _OTHERS_WRITE:  # Even with the sticky bit, another user may make a link `jobs`, or a journal of SQLite.
        raise ConfigError(
            f"state folder {folder}: other users may write to it (mode {mode:04o})",
            hint=f"chmod go-w {folder}, or set TRADEWIND_STATE_DIR to another folder",
        )
    return folder


def _make_private(folder: Path, mode: int) -> None:
    """Remove others' permissions. Raises ConfigError if another user has made an entry, such as a link or a token."""
    if mode & _OTHERS_WRITE:
        folder.chmod(mode & ~_OTHERS_WRITE)  # From here on, nobody else can make an entry.
        try:
            _require_own_entries(folder)
        except ConfigError:
            folder.chmod(mode)  # The next call must look again.
            raise
    folder.chmod(FOLDER_MODE)


def _require_own_entries(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.lstat().st_uid != os.geteuid():
            raise ConfigError(
                f"{folder}: another user has made {entry.name}",
                hint=f"remove {entry}, or use another folder",
            )


def require_own(path: Path) -> os.stat_result:
    """Return the status of a file or folder of this user. Raises OSError, or ConfigError if another user owns it."""
    found = path.stat()
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"{path}: it belongs to user {found.st_uid}, not to {os.geteuid()}",
            hint=_OWN_FOLDER,
        )
    return found


def _make(folder: Path) -> None:
    """Do `mkdir -p`, with the same mode for missing parents (`os.makedirs` sets it only on the last folder)."""
    missing = []
    try:
        while not folder.is_dir():
            missing.append(folder)
            if folder == folder.parent:
                break
            folder = folder.parent
        for folder in reversed(missing):
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    except OSError as error:
        if error.errno not in _WRONG_PLACE:
            raise
        raise ConfigError(f"folder {folder} cannot be made: {error.strerror}", hint=_OWN_FOLDER) from None


def open_private(path: str, flags: int) -> int:
    """Open a file, and make a missing one readable only by its owner: the `opener` of a file in a private folder."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def open_regular(path: str | os.PathLike[str], *, bytes_max: int | None = None) -> int:
    """Open a file for reading and return its descriptor. A pipe, on which opening would block, is an error.

    Raises:
        OSError: it cannot be opened, is not a regular file (EINVAL), or is longer than `bytes_max` (EFBIG).
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    if bytes_max is not None and found.st_size > bytes_max:
        os.close(descriptor)
        raise _too_long(path, bytes_max)
    return descriptor


def read_user_file(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file or pipe that a user names, of at most USER_FILE_BYTES_MAX.

    Waits for the end of a pipe that a program writes to, such as the shell's `<(…)`.

    Raises:
        OSError: it cannot be read, is longer (EFBIG), or is a pipe that no program writes to (EINVAL).
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        os.set_blocking(descriptor, True)
        content = file.read(USER_FILE_BYTES_MAX + 1)
        if not content and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no program writes to this pipe", os.fspath(path))
    if len(content) > USER_FILE_BYTES_MAX:
        raise _too_long(path, USER_FILE_BYTES_MAX)
    return content


def _too_long(path: str | os.PathLike[str], bytes_max: int) -> OSError:
    return OSError(errno.EFBIG, f"longer than {bytes_max >> 20} MiB", os.fspath(path))


def read_regular(path: str | os.PathLike[str]) -> str:
    """Return the text of a file. Raises OSError, also if it is not a regular file, and UnicodeDecodeError."""
    with open(open_regular(path), encoding="utf-8") as file:
        return file.read()


def remove_folder(path: str | os.PathLike[str]) -> None:
    """Remove a private folder and all that is in it, as far as possible. Links are not followed.

    A short job removes folders with a file or two. Importing `shutil`, with three compressors, would cost it 2 ms.
    """
    try:
        if not os.path.islink(path):
            with os.scandir(path) as entries:
                for entry in entries:
                    (os.rmdir if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)
            os.rmdir(path)
            return
    except FileNotFoundError:
        return
    except OSError:  # It has a folder that is not empty, or something that cannot be removed.
        pass
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def write_user_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file that a user names, and replace what is there. Raises ConfigError."""
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)}: {error.strerror}", hint="name a file that can be written") from None
