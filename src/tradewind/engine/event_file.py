"""The events of a job in its folder, one JSON document per line, so that other processes can follow it from the start.

Only the process that holds the job's lock writes. Each run begins with `run_started` and ends with `run_ended`. A run
without an end, whose process is gone, was orphaned: `jobs attach` adopts it. A job does not depend on this file: where
it cannot be written, the job goes on without it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from tradewind._version import __version__
from tradewind.model.document import parse_json
from tradewind.model.files import open_regular, read_regular

__all__ = ["EVENTS_FILE", "EVENTS_FILE_BYTES_MAX", "EventFile", "folder_id", "read_events", "read_progress"]

EVENTS_FILE = "events.ndjson"
#: Only the newest progress event is kept.
PROGRESS_FILE = "progress.json"
#: Beyond this size only the last event of a run, its beginning and its end are written: many failures must not fill the
#: disk.
EVENTS_FILE_BYTES_MAX = 16 << 20
#: Progress is written at most this often.
PROGRESS_S = 1.0
#: A line that is longer is not one of ours.
LINE_BYTES_MAX = 1 << 20


class EventFile:
    """Appends the events of one run. One thread at a time may use it."""

    def __init__(self, folder: str, job_id: str) -> None:
        self._next_progress_s = 0.0
        self._file = -1
        self._progress = os.path.join(folder, PROGRESS_FILE)
        with suppress(OSError):
            os.unlink(self._progress)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with suppress(OSError):
            self._file = os.open(os.path.join(folder, EVENTS_FILE), flags, 0o600)
            self._end_torn_line()
        self._write_document("run_started", job_id=job_id, version=__version__, folder=folder_id(folder))

    def append(self, line: bytes) -> None:
        """Write a line; past EVENTS_FILE_BYTES_MAX only the event `done`."""
        with suppress(OSError):
            if self._file < 0:
                return
            if os.fstat(self._file).st_size < EVENTS_FILE_BYTES_MAX or json.loads(line)["event"] == "done":
                os.write(self._file, line)

    def put_progress(self, line: bytes) -> None:
        """Replace the newest progress, unless that was done within PROGRESS_S."""
        if time.monotonic() < self._next_progress_s:
            return
        self._next_progress_s = time.monotonic() + PROGRESS_S
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with suppress(OSError):
            file = os.open(f"{self._progress}.new", flags, 0o600)
            try:
                os.write(file, line)
            finally:
                os.close(file)
            os.replace(f"{self._progress}.new", self._progress)

    def end(self, outcome: str, message: str | None) -> None:
        """End the run, however long the file is, and close it."""
        self._write_document("run_ended", outcome=outcome, message=message)
        if self._file >= 0:
            with suppress(OSError):
                os.close(self._file)
            self._file = -1

    def _write_document(self, event: str, **fields: Any) -> None:
        document = {"event": event, "at_unix_ms": time.time_ns() // 1_000_000, **fields}
        with suppress(OSError):
            if self._file >= 0:
                os.write(self._file, json.dumps(document).encode() + b"\n")

    def _end_torn_line(self) -> None:
        """The process of an earlier run may have been killed in the middle of a line."""
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")


def folder_id(folder: str) -> str:
    """Return the folder's device and inode: a copy of it has others, and does not belong to the process that runs the
    job. Empty if it cannot be read.
    """
    try:
        stat = os.stat(folder)
    except OSError:
        return ""
    return f"{stat.st_dev:x}:{stat.st_ino:x}"


def read_events(folder: str, offset: int = 0) -> Iterator[tuple[bytes, dict[str, Any], int]]:
    """Yield the complete lines from an offset [bytes]: the line, its document, and the offset behind it.

    Lines that are no JSON objects are left out. A file that is missing or unreadable has no lines.
    """
    try:
        file = open(open_regular(os.path.join(folder, EVENTS_FILE)), "rb")  # noqa: SIM115
    except OSError:
        return
    with file:
        file.seek(offset)
        ended = True
        while line := file.readline(LINE_BYTES_MAX):
            begins, ended = ended, line.endswith(b"\n")
            if not ended and len(line) < LINE_BYTES_MAX:
                return  # It is still being written.
            offset += len(line)
            if not (begins and ended):
                continue
            with suppress(ValueError):
                document = parse_json(line)
                if isinstance(document, dict) and isinstance(document.get("event"), str):
                    yield line, document, offset


def read_progress(folder: str) -> bytes | None:
    """Return the newest progress event of the latest run; None if there was none yet."""
    try:
        line = read_regular(os.path.join(folder, PROGRESS_FILE))
        return line.encode() if parse_json(line)["event"] == "progress" else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
