"""The guest of a job that this server runs: whether its host has joined, and what it was sent, are recorded."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tradewind.errors import StateError
from tradewind.fleet.guests import GuestDesk, desk_of
from tradewind.fleet.source_counts import SentRecord
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
        self._desk: GuestDesk | None = None
        self._sent: SentRecord | None = None

    def began(self, folder: str) -> None:
        """Record in the folder of a job what its guest is sent from now on."""
        if self._guest is not None:
            self._sent = SentRecord(folder)

    def note_sent(self) -> None:
        """Record what the guest was sent so far, also after the end of the run."""
        if self._sent is not None and self._desk is not None:
            self._sent.note(self._desk.sent_bytes)

    def look(self) -> None:
        """Record whether the job waits for its guest and what that was sent, if it has changed. Call it often.

        A thread records it, at most one at a time: a database that does not answer must not delay the end of a run
        whose lease is lost.
        """
        if self._guest is None:
            return
        desk = desk_of(self._guest)
        self._desk = desk or self._desk
        self.note_sent()
        if self._noting is not None and self._noting.is_alive():
            return
        is_awaited = desk is not None and desk.is_awaited
        if is_awaited != self._is_noted:
            self._noting = threading.Thread(target=self._note, args=(is_awaited,), name="awaited guest", daemon=True)
            self._noting.start()

    def _note(self, is_awaited: bool) -> None:
        with suppress(LeaseLost, StateError):  # The next call retries.
            self._queue.note(self._lease, waiting=SENTENCE if is_awaited else None)
            self._is_noted = is_awaited
