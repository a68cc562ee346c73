"""An event that stays consistent after Ctrl-C.

A KeyboardInterrupt may be raised between any two steps of Python code. `threading.Event`, `Condition` and `queue.Queue`
lock in Python code: an interrupt may leave their lock held, and every other thread that needs it waits for ever. `with`
on a plain lock and the methods of `SimpleQueue` are single steps.
"""

from __future__ import annotations

import queue
import threading
from contextlib import suppress

__all__ = ["Latch"]


class Latch:
    """A flag that is set once. Any thread may use it, including one that a KeyboardInterrupt may interrupt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._waiting: list[queue.SimpleQueue[None]] = []

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._set

    def set(self) -> None:
        """Set it and wake all waiting threads."""
        with self._lock:
            self._set = True
            for waiter in self._waiting:
                waiter.put(None)
            self._waiting = []

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return whether it is set within the timeout."""
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
