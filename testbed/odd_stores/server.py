"""The odd store as an HTTP server on loopback."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from testbed.faults.exchanges import FaultyServer
from testbed.faults.rules import (
    Action,
    Answer,
    Call,
    Cut,
    Delay,
    FlipRequest,
    FlipResponse,
    Hang,
    Request,
    Truncate,
)
from testbed.odd_stores.azure_dialect import AzureDialect
from testbed.odd_stores.exchange import Asking, Drip, Edit, Endless, Instead, Later, Refused, Reply, Wait
from testbed.odd_stores.habits import Habits
from testbed.odd_stores.objects import Objects
from testbed.odd_stores.xml_dialect import XmlDialect

Kind = Literal["s3", "gcs", "azure"]
KINDS: list[Kind] = list(get_args(Kind))
KEEP_ALIVE_S = 0.1
"""Pause between the spaces that :class:`Wait` sends while an answer is held back."""


class OddStore(FaultyServer):
    """A server of one kind."""

    def __init__(self, kind: Kind, habits: Habits | None = None) -> None:
        super().__init__()
        self.kind = kind
        self.habits = habits or Habits()
        if self.habits.etags is None:
            self.habits.etags = "opaque" if kind == "azure" else "md5"
        self.objects = Objects(self.habits)
        self.dialect = (
            AzureDialect(self.objects, self.habits)
            if kind == "azure"
            else XmlDialect(self.objects, self.habits, "x-goog-" if kind == "gcs" else "x-amz-")
        )
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="odd-store", daemon=True).start()

    def stop(self) -> None:
        """Close the port and every connection."""
        self._server.shutdown()
        self._server.server_close()
        self.cut()

    def carry_out(self, asking: Asking) -> Reply:
        """Carry out a request and return the answer, a success or a refusal."""
        try:
            return self.dialect.answer(asking)
        except Refused as refused:
            return refused.reply()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: a client may close early."""


def _handler(store: OddStore) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        pass

    Handler.store = store
    return Handler


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    store: OddStore
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def setup(self) -> None:
        super().setup()
        self.store.connected(self.connection, True)

    def finish(self) -> None:
        self.store.connected(self.connection, False)
        for each in (self.wfile, self.rfile):
            # The rest cannot be sent to a client that is gone, but both files must be closed.
            with contextlib.suppress(OSError):
                each.close()

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the time of the store's clock."""
        now = time.time() if timestamp is None else timestamp
        return super().date_time_string(now + self.store.habits.clock_ahead_s)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def parse_request(self) -> bool:
        """Route every method to :meth:`serve`."""
        parsed = super().parse_request()
        for name in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            setattr(self, f"do_{name}", self.serve)
        return parsed

    def serve(self) -> None:
        """Handle one request."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        query.pop("x-id", None)
        request = Request(self.command, unquote(parts.path), query, headers)
        asking = self.store.dialect.read(request, self._body(headers))
        exchange, action = self.store.record(asking)
        exchange.request_bytes = len(asking.body)
        try:
            reply = self._act(asking, action)
            if reply is None:
                self.close_connection = True
                return
            self._send(reply, action)
            self.store.close_exchange(exchange, reply.status, len(reply.body))
        except OSError:
            self.close_connection = True

    def _body(self, headers: dict[str, str]) -> bytes:
        if "chunked" not in headers.get("transfer-encoding", ""):
            return self.rfile.read(int(headers.get("content-length", "0")))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _act(self, asking: Asking, action: Action | None) -> Reply | None:
        """Return the answer after applying the action; ``None`` if the connection ends without one."""
        if isinstance(action, Cut):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return None
        if isinstance(action, Delay):
            time.sleep(action.seconds)
        if isinstance(action, Call):
            action.function()
        if isinstance(action, Answer):
            return Refused(action.status, action.code, action.message).reply()
        if isinstance(action, Instead):
            return action.function(asking)
        if isinstance(action, FlipRequest):
            asking = Asking(**{**vars(asking), "body": _flipped(asking.body, action.at_byte)})
        if isinstance(action, Later):
            threading.Thread(target=self._carry_out_later, args=(asking, action), daemon=True).start()
            return None
        if isinstance(action, Wait):
            return self._wait(asking, action)
        reply = self.store.carry_out(asking)
        if isinstance(action, Edit):
            reply = action.function(reply) or reply
        if isinstance(action, Hang) and action.after_bytes is None:
            self._wait_for_close()
            return None
        return reply

    def _carry_out_later(self, asking: Asking, action: Later) -> None:
        action.due()
        self.store.carry_out(asking)
        action.done()

    def _wait(self, asking: Asking, action: Wait) -> Reply | None:
        reply = self.store.carry_out(asking)
        if not action.keep_alive:
            action.open()
            return reply
        opened = threading.Event()

        def wait() -> None:
            action.open()
            opened.set()

        threading.Thread(target=wait, daemon=True).start()
        self._head(Reply(200, {**reply.headers, "transfer-encoding": "chunked"}), None)
        while not opened.wait(KEEP_ALIVE_S):
            self.wfile.write(b"1\r\n \r\n")
            self.wfile.flush()
        self.wfile.write(f"{len(reply.body):x}\r\n".encode() + reply.body + b"\r\n0\r\n\r\n")
        self.wfile.flush()
        return None

    def _send(self, reply: Reply, action: Action | None) -> None:
        if isinstance(action, Endless):
            self._head(reply, None)
            while True:
                self.wfile.write(action.piece)
        length = len(reply.body)
        body = b"" if self.command == "HEAD" or reply.status in (204, 304) else reply.body
        if isinstance(action, FlipResponse):
            body = _flipped(body, action.at_byte)
        self._head(reply, length if reply.status != 204 else None)
        if isinstance(action, (Truncate, Hang)):
            self.wfile.write(body[: action.after_bytes])
            self.wfile.flush()
            self.close_connection = True
            if isinstance(action, Hang):
                self._wait_for_close()
            return
        if isinstance(action, Drip):
            for at in range(len(body)):
                self.wfile.write(body[at : at + 1])
                self.wfile.flush()
                time.sleep(action.pause_s)
        else:
            self.wfile.write(body)
        self.wfile.flush()

    def _head(self, reply: Reply, length: int | None) -> None:
        self.send_response(reply.status)
        if length is not None and "content-length" not in reply.headers:
            self.send_header("content-length", str(length))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if length is None and reply.status != 204 and "transfer-encoding" not in reply.headers:
            self.send_header("connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.flush()

    def _wait_for_close(self) -> None:
        with contextlib.suppress(OSError):
            while self.connection.recv(64 << 10):
                pass


def _flipped(body: bytes, at_byte: int) -> bytes:
    """Return the bytes with the lowest bit of one byte inverted."""
    if at_byte >= len(body):
        return body
    changed = bytearray(body)
    changed[at_byte] ^= 1
    return bytes(changed)
