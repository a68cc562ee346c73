"""The cost of event streams: their checks are spread, and a read fetches only what may have changed."""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import CapacityLimiter
from sqlalchemy import Engine
from sqlalchemy import event as sql

from tests.service.local import copy_request, new_database
from tradewind.service import events
from tradewind.service.auth import Sender
from tradewind.service.events import EventCursor, event_stream
from tradewind.service.jobs import JobQueue

STREAMS, CHECK_S = 20, 2.0


def test_streams_that_were_opened_together_are_not_checked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STREAM_CHECK_S", CHECK_S)
    monkeypatch.setattr(random, "random", iter([one / STREAMS for one in range(STREAMS)]).__next__)
    checked_s = sorted(asyncio.run(first_checks()))
    assert len(checked_s) == STREAMS
    assert checked_s[-1] - checked_s[0] > CHECK_S / 2


async def first_checks() -> list[float]:
    """Return when each of the streams was checked first, if they are opened together."""
    checked_s: list[float] = []

    def is_allowed() -> bool:
        checked_s.append(time.monotonic())
        return False

    idle: Any = SimpleNamespace(latest=lambda _: {"job": ("waiting", 0, None)}, events=lambda *_: [])
    engine: Any = SimpleNamespace(control=SimpleNamespace(store=SimpleNamespace(database=None)))
    watch: Any = SimpleNamespace(limiter=CapacityLimiter(4), following=never)

    async def follow() -> None:
        stream = event_stream(
            idle,
            engine,
            watch,
            "job",
            EventCursor(0, 0),
            leave=lambda: None,
            is_closing=lambda: False,
            is_allowed=is_allowed,
            hides_words=True,
        )
        assert [text async for text in stream] == []

    await asyncio.gather(*(follow() for _ in range(STREAMS)))
    return checked_s


@contextmanager
def never(job_id: str) -> Iterator[asyncio.Event]:
    """Watch a job that does not change."""
    yield asyncio.Event()


def test_progress_is_read_without_the_job_and_its_earlier_changes(tmp_path: Path) -> None:
    """A running job has a new line of progress every second, and each of its streams reads it."""
    database, asked = new_database(tmp_path), []
    queue = JobQueue(database)
    sender = Sender("admin", "default", "service_admin", frozenset())
    job_id = queue.submit(sender, "key", "", copy_request(tmp_path), ["/x"])[0].id
    engine: Any = SimpleNamespace(control=SimpleNamespace(store=SimpleNamespace(database=None)))
    reader = events._Reader(queue, engine, job_id, EventCursor(), hides_words=True)
    assert [text.partition("\n")[0] for text in reader.read()] == ["event: state"]
    sql.listen(Engine, "before_cursor_execute", note := lambda *found: asked.append(found[2]))
    try:
        assert reader.read() == []
    finally:
        sql.remove(Engine, "before_cursor_execute", note)
    (query,) = [one for one in asked if one.startswith("SELECT")]
    assert "request" not in query
    assert queue.move(job_id, ("waiting",), "cancelled")
    assert len(reader.read()) == 1 and reader.has_ended
    database.close()
