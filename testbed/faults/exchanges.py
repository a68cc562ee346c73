"""The base of servers with faults: rules, a record of exchanges, and open connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from testbed.faults.rules import Action, Exchange, Request, Rule

Server = TypeVar("Server", bound="FaultyServer")


class FaultyServer(ABC):
    """The base of servers with faults. Use them as context managers."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        """Every request so far, in order of arrival."""
        self._rules: list[Rule] = []
        self._changed = threading.Condition()
        self._sockets: set[socket.socket] = set()

    def __enter__(self: Server) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def stop(self) -> None:
        """Close the port and every connection."""

    def add(self, rule: Rule) -> Rule:
        """Append a rule. Of the rules that match a request, the first acts."""
        with self._changed:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Remove all rules and clear the record."""
        with self._changed:
            self._rules.clear()
            self.exchanges.clear()

    def requests(self, when: Callable[[Request], bool]) -> list[Exchange]:
        """Return the exchanges so far whose request matches."""
        with self._changed:
            return [exchange for exchange in self.exchanges if when(exchange.request)]

    def wait_for(self, condition: Callable[[list[Exchange]], bool], timeout_s: float = 60.0) -> None:
        """Wait until the record meets ``condition``. Raises :class:`TimeoutError`."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self.exchanges), timeout_s):
                raise TimeoutError(f"not within {timeout_s:.0f} s; {len(self.exchanges)} requests so far")

    def cut(self) -> None:
        """End every open connection, including hanging ones. New ones are accepted."""
        with self._changed:
            sockets = list(self._sockets)
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def record(self, request: Request) -> tuple[Exchange, Action | None]:
        """Record a request and return the action that applies to it."""
        with self._changed:
            exchange = Exchange(request)
            self.exchanges.append(exchange)
            rule = next((rule for rule in self._rules if rule.strikes_at(request)), None)
            exchange.fault = type(rule.action).__name__ if rule else None
            self._changed.notify_all()
        return exchange, rule.action if rule else None

    def close_exchange(self, exchange: Exchange, status: int, body_bytes: int | None = None) -> None:
        """Record the end of an exchange, and how many body bytes were answered unless they were counted before."""
        with self._changed:
            exchange.status = status
            if body_bytes is not None:
                exchange.response_bytes = body_bytes
            self._changed.notify_all()

    def connected(self, connection: socket.socket, is_open: bool) -> None:
        """Update the list of open connections."""
        with self._changed:
            (self._sockets.add if is_open else self._sockets.discard)(connection)
