"""File locks that belong to an open file: they end with their holder, and can be tested without acquiring them.

On Linux they are open file description locks (`F_OFD_SETLK`), which also hold between hosts of network file systems and
in other PID namespaces. A `flock` can only be tested by acquiring it, and then another process may be refused.
Elsewhere `flock`s are used, and a test acquires a shared one for a moment.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
import time
from collections.abc import Callable

from tradewind.model.files import open_regular

__all__ = ["LOOK_EVERY_S", "FileLock", "is_locked", "try_lock", "wait_unlocked"]

#: Interval at which a lock is polled until it is released.
LOOK_EVERY_S = 0.05

#: `struct flock` of 64-bit Linux: type, whence, start, length, process id.
_FLOCK = "hhqqi4x"
_LINUX = sys.platform == "linux"


def try_lock(descriptor: int) -> bool:
    """Acquire the exclusive lock of an open file until it is closed. Return False if another open file holds it. Raises
    OSError.
    """
    try:
        if _LINUX:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _whole(fcntl.F_WRLCK))
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # EAGAIN, EACCES
        return False
    return True


class FileLock:
    """The exclusive lock of a file, held until `release` or until this process ends for any reason."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, path: str | os.PathLike[str]) -> FileLock | None:
        """Acquire the lock of a file, which is created if missing; return None if the lock is held. Raises OSError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
            taken = try_lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        if taken:
            return cls(descriptor)
        os.close(descriptor)
        return None

    def release(self) -> None:
        """Release the lock. Releasing it again is not an error."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def is_locked(path: str | os.PathLike[str]) -> bool:
    """Return whether a living process holds the lock of a file; False if the file is missing. Raises OSError."""
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return False
    try:
        if _LINUX:
            found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _whole(fcntl.F_RDLCK))
            return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def wait_unlocked(
    path: str | os.PathLike[str], timeout_s: float, is_to_stop: Callable[[], bool] = lambda: False
) -> bool:
    """Return whether the lock of a file becomes free within the timeout, and before `is_to_stop` returns true. Raises
    OSError.
    """
    deadline_s = time.monotonic() + timeout_s
    while is_locked(path):
        if is_to_stop() or time.monotonic() >= deadline_s:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def _whole(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
