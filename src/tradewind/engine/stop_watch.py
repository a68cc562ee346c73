"""Ends the start of a run's machines as soon as the job is asked to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from tradewind.errors import ConfigError, StateError
from tradewind.model.latch import Latch

__all__ = ["StopWatch"]

#: Time between two calls of `is_to_stop` [s]. Most local runs have started before the first call.
LOOK_S = 0.25


class StopWatch:
    """Calls `is_to_stop` within the `with` block, and sets `stopping` when it returns true. A fleet sets it, too."""

    def __init__(self, is_to_stop: Callable[[], bool]) -> None:
        self.stopping = Latch()
        #: True after `is_to_stop` returned true.
        self.is_asked = False
        self._is_to_stop, self._left = is_to_stop, Latch()
        self._thread = threading.Thread(target=self._watch, name="stop watch", daemon=True)

    def __enter__(self) -> StopWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._left.wait(LOOK_S):
            with suppress(StateError, ConfigError):
                if self._is_to_stop():
                    self.is_asked = True
                    self.stopping.set()
                    return
