"""Following a job that another process runs, by the events in its folder. It is only looked at: closing the follower
changes nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from tradewind.engine.event_file import read_events
from tradewind.engine.jobs import RESUMABLE, JobRecord, JobStore
from tradewind.engine.running import Result, resume_hint
from tradewind.errors import ERROR_BY_OUTCOME, Interrupted
from tradewind.model.event import Event, event_from_document

__all__ = ["AttachedJob", "RunEnd", "result_of"]

#: Interval at which the file of events is read.
LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How the latest run of a job ended. `orphaned`: its process died without a word."""

    outcome: str
    message: str | None
    orphaned: bool = False


class AttachedJob:
    """A job that another process runs, or ran."""

    def __init__(self, store: JobStore, job_id: str) -> None:
        self.id = job_id
        self.end: RunEnd | None = None
        self._store = store
        self._left = threading.Event()

    def leave(self) -> None:
        """Stop following; `lines` then ends. Any thread may call it, also a signal handler."""
        self._left.set()

    def lines(self) -> Iterator[bytes]:
        """Yield the events of the latest run from its start, then each as it comes, until the run has ended.

        `end` then says how. After `leave` it ends earlier, without an `end`.
        """
        offset = self._latest_start()
        while not self._left.is_set():
            # Looked at before the file: what is written before the lock is free is read after.
            owned = self._store.is_owned(self.id)
            for line, document, behind in read_events(self._store.path(self.id), offset):
                offset = behind
                if document["event"] == "run_ended":
                    self.end = RunEnd(str(document.get("outcome")), document.get("message"))
                elif document["event"] == "run_started":
                    self.end = None
                else:
                    yield line
            if not owned:
                # A job of an earlier version has no events, so nothing says that its run did not end.
                self.end = self.end or RunEnd("interrupted", None, orphaned=offset > 0)
                return
            self._left.wait(LOOK_EVERY_S)

    def events(self) -> Iterator[Event]:
        """Yield `lines` as events; the Summary last if the run had one."""
        for line in self.lines():
            event = event_from_document(json.loads(line))
            if event is not None:
                yield event

    def is_orphaned(self) -> bool:
        """Return whether the process that ran the job died before it could write how the run ended."""
        if self._store.is_owned(self.id):
            return False
        last = None
        for _, document, _ in read_events(self._store.path(self.id)):
            if document["event"] in ("run_started", "run_ended"):
                last = document["event"]
        return last == "run_started"

    def _latest_start(self) -> int:
        """Offset of the first event of the latest run [bytes]."""
        start = 0
        for _, document, offset in read_events(self._store.path(self.id)):
            if document["event"] == "run_started":
                start = offset
        return start


def result_of(record: JobRecord, end: RunEnd | None = None) -> Result:
    """Return the result of a job whose run has ended, by its record. Raises the TransferError of its outcome."""
    summary, job_id = record.summary, record.id
    if record.state == "done" and summary is not None:
        return Result(job_id, summary)
    if record.state == "cancelled":
        raise Interrupted(f"job {job_id} was cancelled; copied objects stay", summary=summary, job_id=job_id)
    if record.state == "paused":
        raise Interrupted(f"job {job_id} is paused", hint=resume_hint(job_id), summary=summary, job_id=job_id)
    outcome = "interrupted" if end is None or end.outcome == "done" else end.outcome
    if record.state == "failed" and summary is not None:
        outcome = summary.outcome
    message = (None if end is None else end.message) or (None if summary is None else summary.message)
    hint = resume_hint(job_id) if record.state in RESUMABLE else None
    error = next((kind for name, kind in ERROR_BY_OUTCOME.items() if name == outcome), Interrupted)
    raise error(message or outcome.replace("_", " "), hint=hint, summary=summary, job_id=job_id)
