"""The checks of event streams that were opened together are spread over their interval."""

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import CapacityLimiter

from tradewind.service import events
from tradewind.service.events import EventCursor, event_stream

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

    idle: Any = SimpleNamespace(find=lambda _: SimpleNamespace(engine_job=None, state="waiting"), events=lambda *_: [])
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
        )
        assert [text async for text in stream] == []

    await asyncio.gather(*(follow() for _ in range(STREAMS)))
    return checked_s


@contextmanager
def never(job_id: str) -> Iterator[asyncio.Event]:
    """Watch a job that does not change."""
    yield asyncio.Event()
