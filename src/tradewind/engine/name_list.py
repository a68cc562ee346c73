"""The list of names of `--files-from`: read once, when the job begins, and kept in its folder.

So a resumed job uses the names with which it began, even if the user's file has changed or is gone, and pipes can be
read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from tradewind.errors import UsageError

__all__ = ["LIST_FILE", "STANDARD_INPUT", "keep_list", "opened_list"]

#: Name of the copy in the job's folder.
LIST_FILE = "names"
#: Path that means standard input.
STANDARD_INPUT = "-"
_BUFFER_BYTES = 1 << 20


@contextmanager
def opened_list(path: str | None) -> Iterator[BinaryIO | None]:
    """The open list; None where there is none. Waits for the writer of a pipe. Raises UsageError."""
    if path is None:
        yield None
        return
    with _open(path) as file:
        yield file


def keep_list(names: BinaryIO, folder: str) -> str:
    """Copy an open list to a job's folder, byte by byte, for its owner alone. Return the copy's path.

    Raises:
        UsageError: the list cannot be read.
        OSError: the copy cannot be written.
    """
    path = os.path.join(folder, LIST_FILE)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as copy:
        while part := _read(names):
            copy.write(part)
    return path


def _open(path: str) -> BinaryIO:
    try:
        return open(0, "rb", closefd=False) if path == STANDARD_INPUT else open(path, "rb")
    except OSError as error:
        raise _unreadable(path, error) from None


def _read(names: BinaryIO) -> bytes:
    try:
        return names.read(_BUFFER_BYTES)
    except OSError as error:
        raise _unreadable(str(names.name), error) from None


def _unreadable(path: str, error: OSError) -> UsageError:
    return UsageError(
        f"--files-from {path}: {error.strerror}", hint="name a file with one key a line, or - for standard input"
    )
