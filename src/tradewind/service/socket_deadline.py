"""A time after which sockets are shut, also those whose peer sends a byte now and then and so never times out."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType

__all__ = ["SocketDeadline"]


class SocketDeadline:
    """A context in which watched sockets are shut after a time. Any thread may use it."""

    def __init__(self, after_s: float) -> None:
        self._lock, self._watched, self._has_passed = threading.Lock(), list[socket.socket](), False
        self._timer = threading.Timer(after_s, self._pass)
        self._timer.daemon = True

    def __enter__(self) -> SocketDeadline:
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._timer.cancel()
        with self._lock:
            for one in self._watched:
                one.close()
            self._watched.clear()

    def watch(self, plain: socket.socket) -> None:
        """Shut a socket at the deadline. A socket of TLS takes the descriptor of the plain one away, so watch that."""
        with self._lock:
            self._watched.append(plain.dup())
            if self._has_passed:
                self._shut()

    def _pass(self) -> None:
        with self._lock:
            self._has_passed = True
            self._shut()

    def _shut(self) -> None:
        for one in self._watched:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
