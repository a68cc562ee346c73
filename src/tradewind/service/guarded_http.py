"""HTTP connections of the server, guarded against clients that are slow on purpose, or open too many of them.

Uvicorn ends a connection that is idle between two requests. It waits for ever for the rest of a head or a body, and for
a client that does not read its answer. This protocol class, which uvicorn takes as an option, ends these, too.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tradewind.service.limits import (
    BODY_S_MAX,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
    HEAD_S_MAX,
    UNREAD_S_MAX,
)

__all__ = ["guarded_http"]

_LOG = logging.getLogger("tradewind.service.http")
_LOG.setLevel(logging.ERROR)

#: Share of the files that the process may open that connections may be.
FILES_SHARE = 0.5


class ConnectionCount:
    """The connections of one server by address, and how many there may be."""

    def __init__(self, *, is_behind_proxy: bool) -> None:
        files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        some = CONNECTIONS_MAX if files_max == resource.RLIM_INFINITY else int(files_max * FILES_SHARE)
        self.most = min(CONNECTIONS_MAX, some)
        # All connections of a proxy come from its address.
        self.most_of_address = self.most if is_behind_proxy else min(CONNECTIONS_PER_ADDRESS_MAX, self.most)
        self.by_address: Counter[str] = Counter()

    def add(self, address: str) -> bool:
        """Count a connection, and return true; false if there are too many."""
        if self.by_address.total() >= self.most or self.by_address[address] >= self.most_of_address:
            return False
        self.by_address[address] += 1
        return True

    def remove(self, address: str) -> None:
        """Count a connection that has ended."""
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]


def guarded_http(*, is_behind_proxy: bool) -> type[H11Protocol]:
    """Return the protocol class of one server."""
    count = ConnectionCount(is_behind_proxy=is_behind_proxy)

    class Guarded(_GuardedHttp):
        def __init__(self, *args: Any, **others: Any) -> None:
            super().__init__(count, *args, **others)

    return Guarded


class _GuardedHttp(H11Protocol):
    def __init__(self, count: ConnectionCount, *args: Any, **others: Any) -> None:
        super().__init__(*args, **others)
        self._count = count
        # Uvicorn warns of each request that is no HTTP, so that a client could fill the log.
        self.logger = _LOG
        #: Timers of what the client must do: complete a head or a body, or read an answer.
        self._deadlines: dict[object, asyncio.TimerHandle] = {}
        self._address: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or end it if there are too many."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if not self._count.add(address):
            transport.abort()
            return
        self._address = address
        self._set_deadline(h11.IDLE, HEAD_S_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        for what in list(self._deadlines):
            self._end_deadline(what)
        if self._address is not None:
            self._count.remove(self._address)
            self._address = None

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the client. They extend no deadline: only a complete head or body ends it."""
        super().data_received(data)
        state = self.conn.their_state
        for other in self._deadlines.keys() & {h11.IDLE, h11.SEND_BODY} - {state}:
            self._end_deadline(other)
        if state is h11.IDLE and self.conn.trailing_data[0]:
            self._set_deadline(state, HEAD_S_MAX)
        elif state is h11.SEND_BODY:
            self._set_deadline(state, BODY_S_MAX)

    def pause_writing(self) -> None:
        """Note that the client does not read its answer."""
        super().pause_writing()
        self._set_deadline("read", UNREAD_S_MAX)

    def resume_writing(self) -> None:
        """Note that the client reads."""
        super().resume_writing()
        self._end_deadline("read")

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, also if its client has not read the last answer."""
        super().timeout_keep_alive_handler()
        self._set_deadline("read", UNREAD_S_MAX)

    def _set_deadline(self, what: object, after_s: float) -> None:
        """Abort the connection at a time unless the deadline ends before. A deadline is never extended."""
        if (what not in self._deadlines and not self.transport.is_closing()) or what == "read":
            self._deadlines.setdefault(what, self.loop.call_later(after_s, self.transport.abort))

    def _end_deadline(self, what: object) -> None:
        deadline = self._deadlines.pop(what, None)
        if deadline is not None:
            deadline.cancel()
