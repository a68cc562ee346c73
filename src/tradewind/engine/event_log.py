"""The events of one running job: its supervisor writes them, any thread can read them from the start.

Readers get the same guarantees as from a gateway's `GET /v1/events`: all lines in order from the start, up to
LOG_BYTES_MAX. Beyond that the oldest are dropped, and a reader that missed some gets their number. Only the newest
progress event is kept, so a slow or late reader gets only the latest counts.

A reader may be interrupted by Ctrl-C at any moment, so it waits as a `Latch` does.
"""

from __future__ import annotations

import json
import queue
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

from tradewind.engine.event_store import EventStore
from tradewind.model.latch import Latch
from tradewind.model.units import format_count

__all__ = ["LOG_BYTES_MAX", "EventLog"]

#: Maximum bytes of lines kept for late and slow readers; older ones are dropped and counted.
LOG_BYTES_MAX = 16 << 20


class EventLog:
    """JSON lines with any number of readers. The writer never waits for them.

    With `store` they are also kept for other processes.
    """

    def __init__(self, bytes_max: int = LOG_BYTES_MAX, store: EventStore | None = None) -> None:
        self._store = store
        self._lock = threading.Lock()
        #: One queue per reader; an entry means that there may be new lines.
        self._news: list[queue.SimpleQueue[None]] = []
        self._lines: deque[bytes] = deque()
        self._first = 0
        self._bytes, self._bytes_max = 0, bytes_max
        #: The newest progress, its serial number, and the number of lines before it.
        self._progress: tuple[bytes, int, int] = (b"", 0, 0)
        self._ended = Latch()
        self._error: BaseException | None = None
        #: Notices since the end.
        self._late: queue.SimpleQueue[str] = queue.SimpleQueue()

    def append(self, line: bytes) -> None:
        """Add a line. Does nothing after the end."""
        with self._lock:
            if self._ended.is_set():
                return
            if self._store is not None:
                self._store.append(line)
            self._lines.append(line)
            self._bytes += len(line)
            while self._bytes > self._bytes_max and len(self._lines) > 1:
                self._bytes -= len(self._lines.popleft())
                self._first += 1
            self._wake()

    def put_progress(self, line: bytes) -> None:
        """Replace the newest progress. Does nothing after the end."""
        with self._lock:
            if not self._ended.is_set():
                if self._store is not None:
                    self._store.put_progress(line)
                self._progress = (line, self._progress[1] + 1, self._first + len(self._lines))
                self._wake()

    @property
    def progress(self) -> bytes | None:
        """The newest progress; None before the first."""
        return self._progress[0] or None

    def flush(self) -> None:
        """Write buffered lines to the database, for other processes."""
        with self._lock:
            if self._store is not None and not self._ended.is_set():
                self._store.flush()

    def notice(self, message: str) -> None:
        """Add a notice. After the end, only `late` has it."""
        self.append(_notice(message))
        if self._ended.is_set():
            self._late.put(message)

    def late(self) -> Iterator[str]:
        """Yield the notices since the end, each once."""
        with suppress(queue.Empty):
            while True:
                yield self._late.get_nowait()

    def end(self, error: BaseException | None = None) -> None:
        """End the log. Readers get the remaining lines, and then `error` is raised. A second call does nothing."""
        with self._lock:
            if not self._ended.is_set():
                self._error = error
                self._ended.set()
                self._wake()

    def wait_ended(self, timeout_s: float | None = None) -> bool:
        """Return whether the log ends within the timeout."""
        return self._ended.wait(timeout_s)

    def lines(self) -> Iterator[bytes]:
        """Yield all lines from the start, then each new one, until the end. Raises the error of the end."""
        news: queue.SimpleQueue[None] = queue.SimpleQueue()
        with self._lock:
            self._news.append(news)
        try:
            next_line, progress_seen, ended = 0, 0, False
            while not ended:
                with self._lock:
                    # Later lines add another entry to `news`.
                    while not news.empty():
                        news.get_nowait()
                    ended = self._ended.is_set()
                    batch, next_line, progress_seen = self._read(next_line, progress_seen)
                yield from batch
                if not ended:
                    news.get()
        finally:
            with self._lock:
                self._news.remove(news)
        if self._error is not None:
            raise self._error

    def _wake(self) -> None:
        for news in self._news:
            if news.empty():
                news.put(None)

    def _read(self, next_line: int, progress_seen: int) -> tuple[list[bytes], int, int]:
        batch = []
        if missed := max(0, self._first - next_line):
            batch.append(_notice(f"nobody read {format_count(missed, 'earlier line')} in time"))
            next_line = self._first
        progress, serial, before = self._progress
        for number in range(next_line, self._first + len(self._lines)):
            if progress_seen < serial and before <= number:
                batch.append(progress)
                progress_seen = serial
            batch.append(self._lines[number - self._first])
        if progress_seen < serial:
            batch.append(progress)
        return batch, self._first + len(self._lines), serial


def _notice(message: str) -> bytes:
    return json.dumps({"event": "notice", "message": message}).encode() + b"\n"
