"""The events of a job in the database, so that any process can follow it from the start.

Only the process that holds the job's lock writes. Each run begins with `run_started` and ends with `run_ended`. A run
without an end, whose process is gone, was orphaned: `jobs attach` adopts it. A job does not depend on its events: where
they cannot be written, it continues without them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tradewind._version import __version__
from tradewind.errors import ConfigError, StateError
from tradewind.model.clock import host_unix_s
from tradewind.model.document import parse_json
from tradewind.model.event import LimitChanged, event_from_document
from tradewind.model.files import read_regular
from tradewind.model.records import dataclass
from tradewind.state.database import Database

__all__ = [
    "EVENTS_BYTES_MAX",
    "EventStore",
    "LatestRun",
    "folder_id",
    "latest_events",
    "latest_run",
    "limit_changes",
    "read_events",
    "read_progress",
    "time_taken_s",
]

#: Maximum bytes of a run's events. Beyond it only the last event of the run is added, so that many failures do not
#: fill the disk.
EVENTS_BYTES_MAX = 16 << 20
#: Minimum interval between writes of progress; only the newest is kept.
PROGRESS_S = 1.0
#: Lines within this time after a write are buffered and written together: a transaction costs 0.1 ms of CPU,
#: whatever its number of lines.
DELAY_S = 0.2
#: Maximum lines written together.
LINES_AT_ONCE = 1000
#: Maximum buffered lines while the database cannot be written; further lines are dropped.
WAITING_MAX = 20_000
#: Maximum wait of the supervisor for another process's write.
BUSY_S = 1.0

#: Maximum number of changed limits that are returned of a run, the newest ones.
LIMIT_CHANGES_MAX = 10_000

_FAILURES = (StateError, ConfigError, OSError)


class EventStore:
    """Append the events of one run. Only one thread at a time may use it.

    `unix_s` returns the Unix time that dates its start and end [s].
    """

    def __init__(self, database: Database, job_id: str, folder: str, unix_s: Callable[[], float] = host_unix_s) -> None:
        self._database, self._job_id, self._unix_s = database, job_id, unix_s
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
        before: dict[str, Any] = {}
        with suppress(*_FAILURES):
            # If the previous run was killed, no other record has the bytes that it moved.
            before = _counts_before(database, job_id, folder)
            database.write("DELETE FROM progress WHERE job = ?", (job_id,), durable=False)
        self._put_document("run_started", job_id=job_id, version=__version__, folder=folder_id(folder), **before)
        self.flush()

    def append(self, line: bytes) -> None:
        """Add a line; beyond EVENTS_BYTES_MAX only the event `done`."""
        if self._bytes >= EVENTS_BYTES_MAX and json.loads(line)["event"] != "done":
            return
        self._put(line.decode())
        if len(self._waiting) >= LINES_AT_ONCE or time.monotonic() >= self._next_write_s:
            self.flush()

    def put_progress(self, line: bytes) -> None:
        """Replace the newest progress, unless it was replaced within PROGRESS_S."""
        if time.monotonic() >= self._next_progress_s:
            self._next_progress_s = time.monotonic() + PROGRESS_S
            self._progress = line.decode()
            self.flush()

    def flush(self) -> None:
        """Write the buffered lines. If that fails, they stay buffered."""
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

    def end(
        self, outcome: str, message: str | None, left: Sequence[Mapping[str, Any]] = (), took_s: float | None = None
    ) -> None:
        """Record the end of the run, however many events it has, and what is left of its fleets.

        `took_s` is the time since the start of a job with a deadline [s].
        """
        took = {} if took_s is None else {"took_s": took_s}
        self._put_document("run_ended", outcome=outcome, message=message, left=list(left), **took)
        self.flush()

    def _put_document(self, event: str, **fields: Any) -> None:
        document = {"event": event, "at_unix_ms": round(self._unix_s() * 1000), **fields}
        self._put(json.dumps(document) + "\n")

    def _put(self, line: str) -> None:
        self._last += 1
        self._bytes += len(line)
        self._waiting.append((self._job_id, self._last, self._run, line))


def _counts_before(database: Database, job_id: str, folder: str) -> dict[str, Any]:
    """Return the latest counts of the previous run: `progress_before` as its client recorded them, and `status_before`
    as its lead did. A lead outlives a killed client by seconds.
    """
    line, before = read_progress(database, job_id), {}
    if line is not None:
        before["progress_before"] = json.loads(line)
    with suppress(OSError, ValueError, KeyError, TypeError):
        status = parse_json(read_regular(Path(folder) / "status.json"))
        before["status_before"] = {"at_unix_ms": int(status["updated_unix_ms"]), "progress": status["progress"]}
    return before


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
    """Return the latest run of a job; None for a job without events, as in old versions."""
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


def latest_events(database: Database, job_ids: Sequence[str]) -> dict[str, tuple[int, str | None]]:
    """Return for each job that has events the number of the last one, and its newest progress. Raises StateError."""
    marks = ", ".join("?" * len(job_ids))
    rows = database.rows(
        "SELECT job, max(number), (SELECT line FROM progress WHERE progress.job = events.job) FROM events"
        f" WHERE job IN ({marks}) GROUP BY job",
        job_ids,
    )
    return {job: (number, line) for job, number, line in rows}


def read_events(
    database: Database, job_id: str, after: int = 0, *, kinds: Collection[str] = (), most: int = -1
) -> Iterator[tuple[bytes, dict[str, Any], int]]:
    """Yield the lines after a number: the line, its document, and its number. Raises StateError.

    With `kinds` these events only, and at most `most` of them: a job may have many others, which take long to read.
    Skips lines that are not JSON objects: they are not events.
    """
    named = " OR ".join("instr(line, ?)" for _ in kinds) or "TRUE"
    query = f"SELECT number, line FROM events WHERE job = ? AND number > ? AND ({named}) ORDER BY number LIMIT ?"
    for number, line in database.rows(query, (job_id, after, *(f'"{kind}"' for kind in kinds), most)):
        document = _event(line)
        if document is not None and (not kinds or document["event"] in kinds):
            yield line.encode(), document, number


def limit_changes(database: Database, job_id: str) -> list[LimitChanged]:
    """Return the changes of gateways' limits in a job's latest run, oldest first. Raises StateError."""
    query = (
        "SELECT line FROM events WHERE job = ?1 AND run = (SELECT max(run) FROM events WHERE job = ?1)"
        " AND instr(line, '\"limit_changed\"') ORDER BY number DESC LIMIT ?2"
    )
    found = []
    for (line,) in reversed(database.rows(query, (job_id, LIMIT_CHANGES_MAX))):
        with suppress(ValueError, TypeError, KeyError):
            event = event_from_document(parse_json(line))
            if isinstance(event, LimitChanged):
                found.append(event)
    return found


def time_taken_s(database: Database, job_id: str) -> float | None:
    """Return the time from the start of a job with a deadline to the end of its latest run [s]; None if that has no
    recorded end. Raises StateError.
    """
    query = (
        "SELECT line FROM events WHERE job = ?1 AND run = (SELECT max(run) FROM events WHERE job = ?1)"
        " AND instr(line, '\"run_ended\"') ORDER BY number DESC LIMIT 1"
    )
    found = database.row(query, (job_id,))
    took_s = None if found is None else (_event(found[0]) or {}).get("took_s")
    return float(took_s) if isinstance(took_s, int | float) else None


def _event(line: str) -> dict[str, Any] | None:
    with suppress(ValueError):
        document = parse_json(line)
        if isinstance(document, dict) and isinstance(document.get("event"), str):
            return document
    return None


def read_progress(database: Database, job_id: str) -> bytes | None:
    """Return the newest progress event of the latest run; None if it has none yet. Raises StateError."""
    found = database.row("SELECT line FROM progress WHERE job = ?", (job_id,))
    return None if found is None else found[0].encode()
