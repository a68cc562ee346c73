"""Events of a job as server-sent events, with replay.

There are two sources: changes of the job's state, in the service's database, and the events of its runs, in the
engine's. The id of an event is `STATE.RUN`: the numbers of the last event of each source, so `Last-Event-ID` continues
both. Progress has no id: only the newest is kept, and it is not replayed.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress

from anyio import to_thread

from tradewind.engine.engine import Engine
from tradewind.engine.event_store import read_events, read_progress
from tradewind.model.records import dataclass
from tradewind.service.jobs import JobQueue
from tradewind.service.limits import (
    STREAM_CHECK_S,
    STREAM_EVENTS_AT_ONCE,
    STREAM_KEEP_ALIVE_S,
)
from tradewind.service.problems import ApiProblem
from tradewind.service.stream_watch import StreamWatch
from tradewind.service.tables import ENDED
from tradewind.service.told import told_document

__all__ = ["EventCursor", "event_stream"]

#: Largest number in a cursor; SQLite has no larger one.
NUMBER_MAX = 2**63 - 1
#: Events of runs that only the engine needs.
INTERNAL = ("run_started", "run_ended")


@dataclass(frozen=True, slots=True)
class EventCursor:
    """Numbers of the last events that a reader has of each source."""

    state: int = 0
    run: int = 0

    @classmethod
    def parse(cls, text: str) -> EventCursor:
        """Return the cursor of an event's id. Raises ApiProblem 422."""
        state, separator, run = text.partition(".")
        if separator and all(part.isascii() and part.isdecimal() and len(part) < 20 for part in (state, run)):
            found = cls(int(state), int(run))
            if max(found.state, found.run) <= NUMBER_MAX:
                return found
        raise ApiProblem(422, "Last-Event-ID is not the id of an event", hint="leave it out to get all events")

    def __str__(self) -> str:
        return f"{self.state}.{self.run}"


@contextmanager
def _left(leave: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    finally:
        leave()


class _Reader:
    """Reads the new events of one job."""

    def __init__(self, queue: JobQueue, engine: Engine, job_id: str, cursor: EventCursor, *, hides_words: bool) -> None:
        self._queue, self._database, self._job_id = queue, engine.control.store.database, job_id
        self._cursor, self._progress, self._hides_words = cursor, b"", hides_words
        self.has_ended = False

    def read(self) -> list[str]:
        """Return the next events as text: changes of state, the run's events, and last a state that ends the job."""
        state, newest, engine_job = self._queue.latest([self._job_id]).get(self._job_id, (None, 0, None))
        after = self._cursor.state
        changes = self._queue.events(self._job_id, after, STREAM_EVENTS_AT_ONCE) if newest > after else []
        if changes and changes[-1][0] < newest:  # More of them come before the run's events.
            return [self._state(number, document) for number, document in changes]
        # A job that was resumed has ended before: only the latest end comes after the run's events.
        count = len(changes) - bool(changes and changes[-1][1]["state"] in ENDED)
        texts, last = [self._state(number, document) for number, document in changes[:count]], changes[count:]
        is_over, is_all = state is None or state in ENDED, True
        if engine_job is not None:
            of_runs, is_all = self._run_events(engine_job, is_over=is_over)
            texts += of_runs
        if is_all:
            texts += [self._state(number, document) for number, document in last]
            self.has_ended = state is None or (is_over and self._cursor.state >= 1 and bool(last or not texts))
        return texts

    def _state(self, number: int, document: dict[str, object]) -> str:
        self._cursor = EventCursor(number, self._cursor.run)
        return _event("state", json.dumps(document), str(self._cursor))

    def _run_events(self, engine_job: str, *, is_over: bool) -> tuple[list[str], bool]:
        """Return the next events of runs as text, and whether there are no more now."""
        texts = []
        progress = None if is_over else read_progress(self._database, engine_job)
        found = list(read_events(self._database, engine_job, self._cursor.run, most=STREAM_EVENTS_AT_ONCE))
        for line, document, number in found:
            self._cursor = EventCursor(self._cursor.state, number)
            if document["event"] not in INTERNAL:
                text = json.dumps(told_document(document)) if self._hides_words else line.decode().strip()
                texts.append(_event(document["event"], text, str(self._cursor)))
        if progress is not None and progress != self._progress:
            self._progress = progress
            texts.append(_event("progress", progress.decode().strip(), None))
        return texts, len(found) < STREAM_EVENTS_AT_ONCE


async def event_stream(
    queue: JobQueue,
    engine: Engine,
    watch: StreamWatch,
    job_id: str,
    cursor: EventCursor,
    *,
    leave: Callable[[], None],
    is_closing: Callable[[], bool],
    is_allowed: Callable[[], bool],
    hides_words: bool,
) -> AsyncIterator[str]:
    """Yield the events of a job after the cursor, and each new one, until the job has ended.

    With `hides_words`, those of stores are left out. `is_allowed` is asked every STREAM_CHECK_S whether the reader may
    still read; it may block. Streams that were opened together, such as after a restart, are not checked together: all
    others would wait.
    """
    with _left(leave), watch.following(job_id) as changed:
        reader, spoke_s = _Reader(queue, engine, job_id, cursor, hides_words=hides_words), time.monotonic()
        check_s = spoke_s + STREAM_CHECK_S * random.random()
        while not is_closing():
            changed.clear()
            if time.monotonic() >= check_s:
                check_s = time.monotonic() + STREAM_CHECK_S
                if not await to_thread.run_sync(is_allowed, limiter=watch.limiter):
                    return
            texts = await to_thread.run_sync(reader.read, limiter=watch.limiter)
            if texts:
                spoke_s = time.monotonic()
                yield "".join(texts)
            elif time.monotonic() - spoke_s >= STREAM_KEEP_ALIVE_S:
                spoke_s = time.monotonic()
                yield ": still open\n\n"
            if reader.has_ended:
                return
            if not texts:
                with suppress(asyncio.TimeoutError):
                    left_s = min(max(0.0, check_s - time.monotonic()), STREAM_KEEP_ALIVE_S)
                    await asyncio.wait_for(changed.wait(), left_s)


def _event(kind: str, data: str, number: str | None) -> str:
    return f"event: {kind}\n" + (f"id: {number}\n" if number else "") + f"data: {data}\n\n"
