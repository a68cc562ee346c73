"""One side of a proxied HTTP/1.1 connection: parse heads, pass bodies on as raw pieces."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass

HEAD_BYTES_MAX = 64 << 10
"""Maximum length of a head. A longer one ends the connection."""
PIECE_BYTES = 1 << 20
"""Maximum size of a piece. It is large, because each piece costs two system calls and a turn of the interpreter."""


class StreamError(Exception):
    """The peer closed in the middle of a message, or sent something that is not HTTP."""


@dataclass(frozen=True)
class Head:
    """A request's or an answer's head."""

    first_line: str
    raw: bytes
    headers: dict[str, str]
    """By name in lower case. Of repeated headers the last one counts."""

    @property
    def is_chunked(self) -> bool:
        """True if the body comes in chunks."""
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def content_length(self) -> int | None:
        """The announced length of the body, if any."""
        length = self.headers.get("content-length")
        return int(length) if length is not None else None

    @property
    def closes(self) -> bool:
        """True if the connection ends with this message."""
        return "close" in self.headers.get("connection", "").lower() or self.first_line.endswith("HTTP/1.0")

    def without(self, name: str) -> bytes:
        """Return the raw head without one header."""
        lines = self.raw.split(b"\r\n")
        return b"\r\n".join(line for line in lines if not line.lower().startswith(name.encode() + b":"))


class Stream:
    """A socket with a buffer for bytes that were read ahead."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self._ahead = b""
        self._buffer = bytearray(PIECE_BYTES)

    def head(self) -> Head | None:
        """Return the next head, or ``None`` if the peer has closed between messages."""
        while (end := self._ahead.find(b"\r\n\r\n")) < 0:
            if len(self._ahead) > HEAD_BYTES_MAX:
                raise StreamError("head too long")
            more = self.socket.recv(64 << 10)
            if not more:
                if self._ahead:
                    raise StreamError("closed in a head")
                return None
            self._ahead += more
        raw, self._ahead = self._ahead[: end + 4], self._ahead[end + 4 :]
        first_line, *lines = raw[:-4].decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return Head(first_line, raw, {name.strip().lower(): value.strip() for name, _, value in pairs})

    def body(self, head: Head, until_close: bool) -> Iterator[memoryview]:
        """Yield the raw body after ``head``, including chunk framing. With ``until_close`` a body without a length
        extends to the end of the connection.
        """
        if head.is_chunked:
            yield from self._chunked()
        elif head.content_length is not None:
            yield from self._exactly(head.content_length)
        elif until_close:
            while piece := self._some(PIECE_BYTES):
                yield piece

    def _exactly(self, length: int) -> Iterator[memoryview]:
        while length > 0:
            piece = self._some(length)
            if not piece:
                raise StreamError("closed in a body")
            length -= len(piece)
            yield piece

    def _chunked(self) -> Iterator[memoryview]:
        while True:
            line = self._line()
            yield memoryview(line)
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            yield from self._exactly(size + 2)
        while (line := self._line()) != b"\r\n":
            yield memoryview(line)
        yield memoryview(line)

    def _line(self) -> bytes:
        while (end := self._ahead.find(b"\r\n")) < 0:
            more = self.socket.recv(64 << 10)
            if not more or len(self._ahead) > HEAD_BYTES_MAX:
                raise StreamError("closed in a chunk's head")
            self._ahead += more
        line, self._ahead = self._ahead[: end + 2], self._ahead[end + 2 :]
        return line

    def _some(self, most: int) -> memoryview:
        if self._ahead:
            piece, self._ahead = self._ahead[:most], self._ahead[most:]
            return memoryview(piece)
        count = self.socket.recv_into(self._buffer, min(most, PIECE_BYTES))
        return memoryview(self._buffer)[:count]
