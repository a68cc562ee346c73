"""A child process that ends with its parent, however the parent ends."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys

__all__ = ["end_when_closed"]


def end_when_closed(fd: int) -> None:
    """Have the kernel send SIGIO, which ends this process, when the parent's end of a pipe closes."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    watch = select.poll()
    watch.register(fd, 0)
    if watch.poll(0):  # The pipe closed before.
        sys.exit(0)
