"""The end of a run: record its outcome, remove what no later run needs, and release what was held for its machines."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from tradewind.engine.event_store import EventStore
from tradewind.engine.jobs import OBJECTS_BYTES_MAX, OBJECTS_FILE, JobStore
from tradewind.engine.sources import LIST_FILE
from tradewind.errors import ERROR_BY_OUTCOME, DeadlineMissed, StateError, TradewindError, TransferError, recorded_text

if TYPE_CHECKING:
    from tradewind.fleet.remains import Remains

__all__ = ["Held", "forget_lead", "record_outcome"]


def record_outcome(
    events: EventStore,
    result: Callable[[], object],
    lost: Exception | None,
    remains: Sequence[Remains],
    took_s: float | None,
) -> None:
    """Record how a run ended, before another process can take over the job. `result` raises the error of its outcome.

    `lost` is why it has none; `took_s` is the time until its end, for a job with a deadline.
    """
    left = [one.document() for one in remains]
    if lost is not None:
        return events.end("lost", recorded_text(lost), left)
    try:
        result()
    except DeadlineMissed as error:
        return events.end("done", str(error), left, took_s)
    except TransferError as error:
        names = (name for name, kind in ERROR_BY_OUTCOME.items() if kind is type(error))
        return events.end(next(names, "interrupted"), str(error), left, took_s)
    return events.end("done", None, left, took_s)


def forget_lead(store: JobStore, job_id: str, folder: str, *, done: bool) -> None:
    """Remove the lead's address, and the long lists of a job that is `done`. `folder` is the job's."""
    if done:
        objects = os.path.join(folder, OBJECTS_FILE)
        with suppress(FileNotFoundError):
            if os.path.getsize(objects) > OBJECTS_BYTES_MAX:
                os.unlink(objects)
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, LIST_FILE))
    with suppress(StateError):  # `status.json` has the same state, and is then used.
        store.set_lead(job_id, None)
        store.settle(job_id)


class Held:
    """Resources that are held until the machines of a run are gone. Any thread may add one."""

    def __init__(self) -> None:
        #: None once they were released.
        self._held: list[ExitStack] | None = []
        self._holding = threading.Lock()

    def add(self, held: ExitStack) -> None:
        """Close `held` once the machines are gone; at once if they are."""
        with self._holding:
            if self._held is not None:
                self._held.append(held)
                return
        held.close()

    def release(self) -> TradewindError | OSError | None:
        """Close all of them, and return the first error."""
        with self._holding:
            released, self._held = self._held or [], None
        first: TradewindError | OSError | None = None
        for held in released:
            try:
                held.close()
            except (TradewindError, OSError) as error:
                first = first or error
        return first
