"""Reason why a job with a guest does not begin: its host has not joined. The server that runs the job records it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tradewind.errors import StateError
from tradewind.fleet.guests import desk_of
from tradewind.service.jobs import JobLease, JobQueue, LeaseLost

__all__ = ["AwaitedGuest"]

SENTENCE = "The host that sends or receives has not joined yet."


class AwaitedGuest:
    """The guest of one job that this server runs. Without a guest, nothing is recorded."""

    def __init__(self, queue: JobQueue, lease: JobLease, request: Mapping[str, Any]) -> None:
        self._queue, self._lease = queue, lease
        self._guest: str | None = (request.get("guest") or {}).get("guest")
        #: What was recorded; None before the first time, because a killed server may have recorded anything.
        self._is_noted: bool | None = None
        self._noting: threading.Thread | None = None

    def look(self) -> None:
        """Record whether the job waits for its guest, if that has changed. Call it often.

        A thread records it, at most one at a time: a database that does not answer must not delay the end of a run
        whose lease is lost.
        """
        if self._guest is None or (self._noting is not None and self._noting.is_alive()):
            return
        desk = desk_of(self._guest)
        is_awaited = desk is not None and desk.is_awaited
        if is_awaited != self._is_noted:
            self._noting = threading.Thread(target=self._note, args=(is_awaited,), name="awaited guest", daemon=True)
            self._noting.start()

    def _note(self, is_awaited: bool) -> None:
        with suppress(LeaseLost, StateError):  # The next call retries.
            self._queue.note(self._lease, waiting=SENTENCE if is_awaited else None)
            self._is_noted = is_awaited
