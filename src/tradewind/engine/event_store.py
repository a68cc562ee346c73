"""The events of a job in the database, so that any process can follow it from the start.

Only the process that holds the job's lock writes. Each run begins with `run_started` and ends with `run_ended`. A run
without an end, whose process is gone, was orphaned: `jobs attach` adopts it. A job does not depend on its events: where
they cannot be written, it continues without them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tradewind._version import __version__
from tradewind.errors import ConfigError, StateError
from tradewind.model.document import parse_json
from tradewind.state.database import Database

__all__ = ["EVENTS_BYTES_MAX", "EventStore", "LatestRun", "folder_id", "latest_run", "read_events", "read_progress"]

#: Beyond this size only the last event of a run, its beginning and its end are kept: many failures must not fill the
#: disk.
EVENTS_BYTES_MAX = 16 << 20
#: Progress is written at most this often, and only the newest.
PROGRESS_S = 1.0
#: Lines that come within so long of the last write wait, and are written together: a transaction costs 0.1 ms of CPU,
#: however many lines it has.
DELAY_S = 0.2
#: So many lines are written together at most.
LINES_AT_ONCE = 1000
#: Lines that wait while the database cannot be written; beyond it they are dropped.
WAITING_MAX = 20_000
#: The supervisor waits no longer for another process that writes.
BUSY_S = 1.0

_FAILURES = (StateError, ConfigError, OSError)


class EventStore:
    """Appends the events of one run. One thread at a time may use it."""

    def __init__(self, database: Database, job_id: str, folder: str) -> None:
        self._database, self._job_id = database, job_id
        self._next_progress_s = self._next_write_s = 0.0
        self._waiting: list[tuple[str, int, int, str]] = []
        self._progress: str | None = None
        self._last, self._run, self._bytes = 0, 1, 0
        with suppress(*_FAILURES):
            found = database.row(
                "SELECT max(number), max(run), total(length(line)) FROM events WHERE job = ?", (job_id,)
            )
            if found is not None and found[0] is not None:
                self._last, self._run, self._bytes = found[0], found[1] + 1, int(found[2])
        with suppress(*_FAILURES):
            database.write("DELETE FROM progress WHERE job = ?", (job_id,), durable=False)
        self._put_document("run_started", job_id=job_id, version=__version__, folder=folder_id(folder))
        self.flush()

    def append(self, line: bytes) -> None:
        """Add a line; past EVENTS_BYTES_MAX only the event `done`."""
        if self._bytes >= EVENTS_BYTES_MAX and json.loads(line)["event"] != "done":
            return
        self._put(line.decode())
        if len(self._waiting) >= LINES_AT_ONCE or time.monotonic() >= self._next_write_s:
            self.flush()

    def put_progress(self, line: bytes) -> None:
        """Replace the newest progress, unless that was done within PROGRESS_S."""
        if time.monotonic() >= self._next_progress_s:
            self._next_progress_s = time.monotonic() + PROGRESS_S
            self._progress = line.decode()
            self.flush()

    def flush(self) -> None:
        """Write the lines that wait. If that fails, they wait for the next time."""
        if not self._waiting and self._progress is None:
            return
        self._next_write_s = time.monotonic() + DELAY_S
        try:
            with self._database.transaction(durable=False, busy_s=BUSY_S) as connection:
                connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", self._waiting)
                if self._progress is not None:
                    connection.execute("INSERT OR REPLACE INTO progress VALUES (?, ?)", (self._job_id, self._progress))
        except _FAILURES:
            del self._waiting[:-WAITING_MAX]
            return
        self._waiting.clear()
        self._progress = None

    def end(self, outcome: str, message: str | None) -> None:
        """End the run, however many events it has."""
        self._put_document("run_ended", outcome=outcome, message=message)
        self.flush()

    def _put_document(self, event: str, **fields: Any) -> None:
        document = {"event": event, "at_unix_ms": time.time_ns() // 1_000_000, **fields}
        self._put(json.dumps(document) + "\n")

    def _put(self, line: str) -> None:
        self._last += 1
        self._bytes += len(line)
        self._waiting.append((self._job_id, self._last, self._run, line))


def folder_id(folder: str) -> str:
    """Return the folder's device and inode: a copy of it has others, and does not belong to the process that runs the
    job. Empty if it cannot be read.
    """
    try:
        stat = os.stat(folder)
    except OSError:
        return ""
    return f"{stat.st_dev:x}:{stat.st_ino:x}"


@dataclass(frozen=True, slots=True)
class LatestRun:
    """The latest run of a job: the number of its first line, and whether it ran in another folder."""

    first: int
    is_copy: bool


def latest_run(database: Database, job_id: str, folder: str) -> LatestRun | None:
    """Return the latest run of a job; None for one that has no events, as in versions that kept none."""
    found = database.row(
        "SELECT number, line FROM events WHERE job = ?1 AND run = (SELECT max(run) FROM events WHERE job = ?1)"
        " ORDER BY number LIMIT 1",
        (job_id,),
    )
    if found is None:
        return None
    number, line = found
    document = _event(line) or {}
    return LatestRun(number, is_copy=document.get("folder") != folder_id(folder))


def read_events(database: Database, job_id: str, after: int = 0) -> Iterator[tuple[bytes, dict[str, Any], int]]:
    """Yield the lines behind one number: the line, its document, and its number. Raises StateError.

    Lines that are no JSON objects are left out: nobody wrote them as events.
    """
    for number, line in database.rows(
        "SELECT number, line FROM events WHERE job = ? AND number > ? ORDER BY number", (job_id, after)
    ):
        document = _event(line)
        if document is not None:
            yield line.encode(), document, number


def _event(line: str) -> dict[str, Any] | None:
    with suppress(ValueError):
        document = parse_json(line)
        if isinstance(document, dict) and isinstance(document.get("event"), str):
            return document
    return None


def read_progress(database: Database, job_id: str) -> bytes | None:
    """Return the newest progress event of the latest run; None if there was none yet. Raises StateError."""
    found = database.row("SELECT line FROM progress WHERE job = ?", (job_id,))
    return None if found is None else found[0].encode()
