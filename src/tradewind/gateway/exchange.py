"""One request and its answer over a connected socket, Unix or TLS.

HTTP/1.0 is used because its answers need no decoding: they end at their length or with the connection. `http.client`
would work too, but it always loads `ssl` and `email`, which takes a tenth of the time of a short local job.
"""

from __future__ import annotations

import io
import re
import socket
import time
from types import TracebackType

__all__ = ["BadAnswer", "Exchange"]

#: Maximum length of a line in an answer's head, and maximum number of lines. A gateway sends a few short ones.
HEAD_LINE_BYTES_MAX = 8 << 10
HEAD_LINES_MAX = 100
_STATUS = rb"HTTP/1\.[01] ([1-5][0-9]{2})\b"


class BadAnswer(OSError):
    """The peer's answer is not HTTP, or is shorter than announced."""


class _Within(io.RawIOBase):
    """The bytes that a socket receives until a deadline, however few at a time. Raises TimeoutError after it."""

    def __init__(self, connection: socket.socket, within_s: float) -> None:
        self._connection, self._ends_s = connection, time.monotonic() + within_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


class Exchange:
    """Sends one request and reads the head of its answer. Closing it closes the socket.

    The whole answer must arrive `within_s`, if that is given; otherwise the socket's timeout is that of each read.
    Reading raises OSError, including its subclasses BadAnswer and TimeoutError.
    """

    def __init__(
        self,
        connection: socket.socket,
        method: str,
        path: str,
        body: bytes | None = None,
        within_s: float | None = None,
    ) -> None:
        self._connection = connection
        self._reader: io.BufferedIOBase = (
            connection.makefile("rb") if within_s is None else io.BufferedReader(_Within(connection, within_s))
        )
        head = f"{method} {path} HTTP/1.0\r\nhost: gateway\r\n"
        if body is not None:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        elif method != "GET":
            head += "content-length: 0\r\n"
        try:
            connection.sendall(f"{head}\r\n".encode("ascii") + (body or b""))
            self.status, self._length = self._read_head()
        except BaseException:
            self.close()
            raise

    def _read_head(self) -> tuple[int, int | None]:
        status = re.match(_STATUS, self._reader.readline(HEAD_LINE_BYTES_MAX))
        if status is None:
            raise BadAnswer("its answer is not HTTP")
        length = None
        for _ in range(HEAD_LINES_MAX):
            line = self._reader.readline(HEAD_LINE_BYTES_MAX)
            if not line.endswith(b"\n"):
                break
            name, _, text = line.partition(b":")
            if not line.strip():
                return int(status[1]), length
            if name.strip().lower() == b"content-length" and text.strip().isdigit():
                length = int(text)
        raise BadAnswer("its answer ends within the head, or the head is too long")

    def read(self, bytes_max: int) -> bytes:
        """Return the body, or its first `bytes_max` bytes."""
        wanted = bytes_max if self._length is None else min(bytes_max, self._length)
        body = self._reader.read(wanted)
        if self._length is not None and len(body) < wanted:
            raise BadAnswer(f"its answer ended after {len(body)} of {self._length} bytes")
        return body

    def readline(self, bytes_max: int) -> bytes:
        """Return the next line of a body without an announced length; empty at its end."""
        return self._reader.readline(bytes_max)

    def close(self) -> None:
        """Close the socket."""
        self._reader.close()
        self._connection.close()

    def __enter__(self) -> Exchange:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
