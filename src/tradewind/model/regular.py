"""Open our own files, which another program may have replaced: only regular files, without waiting for a writer."""

from __future__ import annotations

import errno
import os
import stat

__all__ = ["open_regular", "read_regular"]


def open_regular(path: str | os.PathLike[str]) -> int:
    """Return a descriptor to read a file. A pipe in its place, which would be waited for, is an error.

    Raises:
        OSError: it cannot be opened, or it is not a regular file (EINVAL).
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
