"""Wakes the event streams of jobs that have changed: one task of the server looks at all watched jobs together.

It keeps nothing but what it saw of each watched job last. A woken stream reads its own events from the databases, so a
slow client has no queue in memory, and misses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from anyio import CapacityLimiter, to_thread

from tradewind.engine.engine import Engine
from tradewind.engine.event_store import latest_events
from tradewind.errors import StateError
from tradewind.service.faults import Faults
from tradewind.service.jobs import JobQueue
from tradewind.service.limits import STREAM_LOOK_S, STREAM_READS_AT_ONCE

__all__ = ["StreamWatch"]

_LOG = logging.getLogger("tradewind.service")


class StreamWatch:
    """The watched jobs of one server. Only the thread of the event loop may use it."""

    def __init__(self, queue: JobQueue, engine: Engine, faults: Faults) -> None:
        self._queue, self._engine, self._faults = queue, engine, faults
        self._streams: dict[str, set[asyncio.Event]] = {}
        self._seen: dict[str, tuple[Any, ...]] = {}
        self._limiter: CapacityLimiter | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def limiter(self) -> CapacityLimiter:
        """Limit of threads in which streams read, so that they take none of those that answer requests."""
        if self._limiter is None:  # It belongs to the event loop, which does not run when this object is made.
            self._limiter = CapacityLimiter(STREAM_READS_AT_ONCE)
        return self._limiter

    @contextmanager
    def following(self, job_id: str) -> Iterator[asyncio.Event]:
        """Watch a job within the block. The event is set after each of its changes."""
        changed = asyncio.Event()
        self._streams.setdefault(job_id, set()).add(changed)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            yield changed
        finally:
            left = self._streams[job_id]
            left.discard(changed)
            if not left:
                del self._streams[job_id]
                self._seen.pop(job_id, None)

    async def close(self) -> None:
        """Watch no more, and wake all streams."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._wake(list(self._streams))

    async def _watch(self) -> None:
        """Look at the watched jobs until there are none."""
        is_failing = False
        while self._streams:
            job_ids = list(self._streams)
            try:
                with self._faults.caught("streams"):
                    await self._look_once(job_ids)
                is_failing = False
            except StateError as error:
                if not is_failing:
                    _LOG.error("event streams: %s", error)
                is_failing = True
                self._wake(job_ids)  # Their own read fails, too, so that clients connect again.
            pause_s = self._faults.pause_s("streams")
            if pause_s:
                self._wake(job_ids)
            await asyncio.sleep(max(STREAM_LOOK_S, pause_s))

    async def _look_once(self, job_ids: Sequence[str]) -> None:
        """Wake the streams of the jobs that have changed. Raises StateError."""
        found = await to_thread.run_sync(self._look, job_ids, limiter=self.limiter)
        changed = [job_id for job_id in job_ids if self._seen.get(job_id) != found.get(job_id)]
        self._seen = {job_id: found[job_id] for job_id in found.keys() & self._streams.keys()}
        self._wake(changed)

    def _look(self, job_ids: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        """Return for each job what changes with every event: its state and the last events of both sources."""
        rows = self._queue.latest(job_ids)
        running = {row[2] for row in rows.values() if row[2] is not None}
        latest = latest_events(self._engine.control.store.database, sorted(running))
        return {job_id: (*row, latest.get(row[2] or "")) for job_id, row in rows.items()}

    def _wake(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            for changed in self._streams.get(job_id, ()):
                changed.set()
