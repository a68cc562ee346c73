"""The documents of an OIDC issuer, over HTTPS or, from this machine, plain HTTP: bounded in size and time."""

from __future__ import annotations

import json
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.error import URLError
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from tradewind.service.limits import ISSUER_BYTES_MAX, ISSUER_TIMEOUT_S
from tradewind.service.socket_deadline import SocketDeadline

__all__ = ["read_document"]


def read_document(url: str) -> Any:
    """Return a JSON document. Raises OSError, HTTPException, ValueError, RecursionError."""
    with SocketDeadline(ISSUER_TIMEOUT_S) as deadline:
        opener = build_opener(_NoRedirects, _Plain(deadline), _Tls(deadline))
        with opener.open(url, timeout=ISSUER_TIMEOUT_S) as answer:
            text = answer.read(ISSUER_BYTES_MAX + 1)
    if len(text) > ISSUER_BYTES_MAX:
        raise URLError(f"{url}: more than {ISSUER_BYTES_MAX:,} bytes")
    return json.loads(text)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        """Refuse: the answer is then an error."""


class _WatchedConnection(HTTPConnection):
    deadline: SocketDeadline

    def connect(self) -> None:
        super().connect()
        self.deadline.watch(self.sock)


class _WatchedTlsConnection(HTTPSConnection, _WatchedConnection):
    """Its handshake is watched, too: it calls `connect` of the plain one first."""


def _watched(
    kind: type[_WatchedConnection], deadline: SocketDeadline, *arguments: Any, **others: Any
) -> _WatchedConnection:
    made = kind(*arguments, **others)
    made.deadline = deadline
    return made


class _Plain(HTTPHandler):
    def __init__(self, deadline: SocketDeadline) -> None:
        super().__init__()
        self._connection = partial(_watched, _WatchedConnection, deadline)

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._connection, req)


class _Tls(HTTPSHandler):
    def __init__(self, deadline: SocketDeadline) -> None:
        super().__init__()
        self._connection = partial(_watched, _WatchedTlsConnection, deadline)

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._connection, req)
