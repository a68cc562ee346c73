"""Follow a job that another process runs, by its events in the database. Following changes nothing in the job, nor does
closing the follower.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

from tradewind.engine.deadline import JobDeadline
from tradewind.engine.event_store import latest_run, read_events, read_progress
from tradewind.engine.jobs import RESUMABLE, JobRecord, JobStore
from tradewind.engine.result import Result, resume_hint, stopped_error
from tradewind.errors import ERROR_BY_OUTCOME, GatewayLost, Interrupted
from tradewind.model.event import Event, event_from_document
from tradewind.model.records import dataclass

__all__ = ["ADOPTABLE", "AttachedJob", "RunEnd", "result_of"]

#: Interval between queries for new events.
LOOK_EVERY_S = 0.2
#: States of a job whose process was killed.
ADOPTABLE = ("running", "interrupted")
COPIED = "its folder was copied or moved while it ran, so it may still run elsewhere"


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of the latest run of a job. `orphaned`: its process died without recording an end."""

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
        """Stop following; `lines` then ends. Any thread or signal handler may call it."""
        self._left.set()

    def lines(self) -> Iterator[bytes]:
        """Yield the events of the latest run from its start, then each as it comes, until the run has ended.

        `end` then says how. After `leave` it ends earlier, without an `end`.
        """
        database, seen = self._store.database, None
        run = latest_run(database, self.id, self._store.path(self.id))
        last, is_copy = (0, False) if run is None else (run.first, run.is_copy)
        while not self._left.is_set():
            # Read the lock before the events: whatever was written before the lock was released is then read.
            owned = self._store.is_owned(self.id)
            progress = read_progress(database, self.id)
            if progress is not None and progress != seen:
                seen = progress
                yield progress
            for line, document, number in read_events(database, self.id, last):
                last = number
                if document["event"] == "run_ended":
                    self.end = RunEnd(str(document.get("outcome")), document.get("message"))
                elif document["event"] == "run_started":
                    self.end = None
                else:
                    yield line
            if not owned:
                # Jobs of earlier versions have no events, so a missing end means nothing.
                self.end = self.end or RunEnd("interrupted", COPIED if is_copy else None, last > 0 and not is_copy)
                return
            self._left.wait(LOOK_EVERY_S)

    def events(self) -> Iterator[Event]:
        """Yield `lines` as events, with the Summary last if the run recorded one."""
        for line in self.lines():
            event = event_from_document(json.loads(line))
            if event is not None:
                yield event

    def can_be_adopted(self) -> bool:
        """Return whether the followed run has lost its process and the job can be continued."""
        orphaned = self.end is not None and self.end.orphaned
        return orphaned and self._store.load(self.id).state in ADOPTABLE

    def is_owned(self) -> bool:
        """Return whether a process runs the job."""
        return self._store.is_owned(self.id)

    def is_orphaned(self) -> bool:
        """Return whether the process that ran the job died before it recorded the end of the run."""
        if self._store.is_owned(self.id):
            return False
        database = self._store.database
        run = latest_run(database, self.id, self._store.path(self.id))
        if run is None or run.is_copy:
            return False
        return all(document["event"] != "run_ended" for _, document, _ in read_events(database, self.id, run.first))


def result_of(record: JobRecord, end: RunEnd | None = None, deadline: JobDeadline | None = None) -> Result:
    """Return the result of a job whose run has ended, from its record.

    Raises the TransferError of its outcome, DeadlineMissed, or GatewayLost, as in the process that ran it.
    """
    summary, job_id = record.summary, record.id
    if record.state == "done" and summary is not None:
        if deadline is not None:
            deadline.require_kept(job_id, summary)
        return Result(job_id, summary)
    if record.state in ("cancelled", "paused"):
        raise stopped_error(job_id, summary, cancelled=record.state == "cancelled")
    outcome = "interrupted" if end is None or end.outcome == "done" else end.outcome
    if record.state == "failed" and summary is not None:
        outcome = summary.outcome
    message = (None if end is None else end.message) or (None if summary is None else summary.message)
    hint = resume_hint(job_id) if record.state in RESUMABLE else None
    if outcome == "lost":
        raise GatewayLost(message or "the lead ended unexpectedly", hint=hint)
    error = next((kind for name, kind in ERROR_BY_OUTCOME.items() if name == outcome), Interrupted)
    raise error(message or outcome.replace("_", " "), hint=hint, summary=summary, job_id=job_id)
