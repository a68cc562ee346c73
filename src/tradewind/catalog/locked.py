"""A lock for the user's part of the catalog: one writer at a time reads, changes and rewrites whole tables."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tradewind.errors import ConfigError
from tradewind.model.files import private_folder
from tradewind.model.locks import LOOK_EVERY_S, try_lock

__all__ = ["LOCK_FILE", "LOCK_S_MAX", "one_writer"]

LOCK_FILE = ".lock"
LOCK_S_MAX = 30.0
"""Timeout for the lock. A writer needs milliseconds."""


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Hold the catalog's lock within the block; create its folder if it is missing.

    Raises:
        ConfigError: another process holds the lock for LOCK_S_MAX, or the folder is another user's.
        OSError: the folder cannot be written.
    """
    private_folder(folder)
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline_s = time.monotonic() + LOCK_S_MAX
    try:
        while not try_lock(descriptor):
            if time.monotonic() >= deadline_s:
                raise ConfigError(
                    f"{folder}: another process has been writing for {LOCK_S_MAX:.0f} s",
                    hint="wait for it to end, and try again",
                )
            time.sleep(LOOK_EVERY_S)
        yield
    finally:
        os.close(descriptor)
