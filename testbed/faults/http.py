"""An HTTP/1.1 proxy in front of an object store that injects the faults of its rules.

It uses one thread with blocking sockets per connection: simple, and fast enough (hundreds of MB/s), because the
interpreter lock is released in every read and write.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from testbed.faults.exchanges import FaultyServer
from testbed.faults.rules import (
    Action,
    Answer,
    Call,
    Cut,
    Delay,
    Exchange,
    FlipRequest,
    FlipResponse,
    Hang,
    Request,
    Truncate,
)
from testbed.faults.stream import Head, Stream, StreamError

_NO_BODY_STATUSES = {204, 304}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpProxy(FaultyServer):
    """Listens on a free port of ``address``, and forwards requests to ``target`` (``http://127.0.0.1:PORT``).

    The target may use HTTPS if ``ca_file`` is the PEM of its CA. The proxy itself speaks plain HTTP. ``hides`` names a
    header, in lower case, that answers lose.
    """

    def __init__(
        self, target: str, address: str = "127.0.0.1", ca_file: Path | None = None, hides: str | None = None
    ) -> None:
        super().__init__()
        parts = urlsplit(target)
        if parts.scheme != ("https" if ca_file else "http") or parts.hostname is None or parts.port is None:
            raise ValueError(f"no such address with a port: {target}")
        self._target = (parts.hostname, parts.port)
        self._hides = hides
        self._tls = ssl.create_default_context(cafile=str(ca_file)) if ca_file else None
        self._listener = socket.create_server((address, 0), backlog=256)
        self.endpoint = f"http://{address}:{self._listener.getsockname()[1]}"
        self._stopped = False
        threading.Thread(target=self._accept, name="fault-proxy", daemon=True).start()

    def stop(self) -> None:
        """Close the port and every connection."""
        self._stopped = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        client, server = Stream(connection), _Upstream(self._target, self.connected, self._tls)
        self.connected(connection, True)
        try:
            while not self._stopped and (head := client.head()) is not None:
                if not self._exchange(client, server, head):
                    break
        except (OSError, StreamError, ValueError):
            # The peer sees the connection end. An HTTP proxy can do no more here.
            pass
        finally:
            server.close()
            self.connected(connection, False)
            connection.close()

    def _exchange(self, client: Stream, server: _Upstream, head: Head) -> bool:
        """Handle one request. Return whether the connection continues."""
        request = _parse(head)
        exchange, action = self.record(request)
        if isinstance(action, Cut):
            _reset(client.socket)
            return False
        if isinstance(action, Delay):
            time.sleep(action.seconds)
        if isinstance(action, Call):
            action.function()
        if head.headers.get("expect", "").lower() == "100-continue":
            client.socket.sendall(_CONTINUE)
        body = client.body(head, until_close=False)
        if isinstance(action, Answer):
            for piece in body:
                exchange.request_bytes += len(piece)
            self._answer(client, exchange, action)
            return not head.closes
        self._pass_request(server, head, body, exchange, action)
        if isinstance(action, Hang) and action.after_bytes is None:
            _wait_for_close(client.socket)
            return False
        return self._pass_answer(client, server, request, exchange, action) and not head.closes

    def _answer(self, client: Stream, exchange: Exchange, answer: Answer) -> None:
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Error><Code>{answer.code}</Code><Message>{escape(answer.message)}</Message>"
            f"<Resource>{escape(exchange.request.path)}</Resource><RequestId>FAULT</RequestId></Error>"
        ).encode()
        head = (
            f"HTTP/1.1 {answer.status} {answer.code}\r\nContent-Type: application/xml\r\n"
            f"x-ms-error-code: {answer.code}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        client.socket.sendall(head if exchange.request.method == "HEAD" else head + body)
        self.close_exchange(exchange, answer.status)

    def _pass_request(
        self, server: _Upstream, head: Head, body: Iterable[memoryview], exchange: Exchange, action: Action | None
    ) -> None:
        stream = server.stream()
        stream.socket.sendall(head.without("expect"))
        flip_at = action.at_byte if isinstance(action, FlipRequest) else None
        for piece in _flipped(body, flip_at):
            # A store that has already refused may have closed the connection. Its answer still explains why.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stream.socket.sendall(piece)
            exchange.request_bytes += len(piece)

    def _pass_answer(
        self, client: Stream, server: _Upstream, request: Request, exchange: Exchange, action: Action | None
    ) -> bool:
        stream = server.stream()
        head = stream.head()
        while head is not None and _status(head) in (100, 102, 103):
            head = stream.head()
        if head is None:
            raise StreamError("the store closed without an answer")
        status = _status(head)
        client.socket.sendall(head.raw if self._hides is None else head.without(self._hides))
        if request.method != "HEAD" and status not in _NO_BODY_STATUSES:
            flip_at = action.at_byte if isinstance(action, FlipResponse) else None
            until_close = head.content_length is None and not head.is_chunked
            for piece in _flipped(stream.body(head, until_close), flip_at):
                if _stops(client.socket, piece, exchange, action):
                    return False
                client.socket.sendall(piece)
                exchange.response_bytes += len(piece)
            self.close_exchange(exchange, status)
            return not (head.closes or until_close)
        self.close_exchange(exchange, status)
        return not head.closes


class _Upstream:
    """The connection to the real store, opened when first needed."""

    def __init__(
        self, target: tuple[str, int], connected: Callable[[socket.socket, bool], None], tls: ssl.SSLContext | None
    ) -> None:
        self._target, self._tls = target, tls
        self._connected = connected
        self._stream: Stream | None = None

    def stream(self) -> Stream:
        if self._stream is None:
            connection: socket.socket = socket.create_connection(self._target)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_hostname=self._target[0])
            self._connected(connection, True)
            self._stream = Stream(connection)
        return self._stream

    def close(self) -> None:
        if self._stream is not None:
            self._connected(self._stream.socket, False)
            self._stream.socket.close()
            self._stream = None


def _parse(head: Head) -> Request:
    method, target, _ = head.first_line.split(" ", 2)
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    # SDKs also put the operation's name into the query, where it has no effect.
    query.pop("x-id", None)
    return Request(method, unquote(parts.path), query, head.headers)


def _status(head: Head) -> int:
    return int(head.first_line.split(" ", 2)[1])


def _flipped(body: Iterable[memoryview], at_byte: int | None) -> Iterator[memoryview]:
    """Yield the pieces with the lowest bit of the body's byte ``at_byte`` inverted."""
    offset = 0
    for piece in body:
        if at_byte is not None and offset <= at_byte < offset + len(piece):
            changed = bytearray(piece)
            changed[at_byte - offset] ^= 1
            yield memoryview(changed)
        else:
            yield piece
        offset += len(piece)


def _stops(client: socket.socket, piece: memoryview, exchange: Exchange, action: Action | None) -> bool:
    """Return whether the answer's body ends, or hangs for good, within ``piece``."""
    if not isinstance(action, (Truncate, Hang)) or action.after_bytes is None:
        return False
    left = action.after_bytes - exchange.response_bytes
    if left >= len(piece):
        return False
    client.sendall(piece[:left])
    exchange.response_bytes += left
    if isinstance(action, Hang):
        _wait_for_close(client)
    return True


def _wait_for_close(client: socket.socket) -> None:
    """Block until the client closes the connection or the proxy is stopped."""
    with contextlib.suppress(OSError):
        while client.recv(64 << 10):
            pass


def _reset(connection: socket.socket) -> None:
    """End a connection with RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
