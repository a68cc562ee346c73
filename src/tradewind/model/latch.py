"""An event that Ctrl-C cannot break.

A KeyboardInterrupt may be raised between any two steps of Python code. In `threading.Event`, `Condition` and
`queue.Queue`, whose locking is Python code, it may leave their lock taken, and every other thread that needs it then
waits for ever. `with` on a plain lock and the methods of `SimpleQueue` are single steps.
"""

from __future__ import annotations

import queue
import threading
from contextlib import suppress

__all__ = ["Latch"]


class Latch:
    """Is set once, and stays set. Any thread may use it, also one that a KeyboardInterrupt may interrupt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._waiting: list[queue.SimpleQueue[None]] = []

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._set

    def set(self) -> None:
        """Set it and wake all who wait."""
        with self._lock:
            self._set = True
            for waiter in self._waiting:
                waiter.put(None)
            self._waiting = []

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return whether it is set, or gets set within the timeout."""
        waiter: queue.SimpleQueue[None] = queue.SimpleQueue()
        with self._lock:
            if self._set:
                return True
            self._waiting.append(waiter)
        try:
            with suppress(queue.Empty):
                waiter.get(timeout=timeout_s)
        finally:
            with self._lock, suppress(ValueError):
                self._waiting.remove(waiter)
        return self._set
