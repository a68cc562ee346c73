"""Calls to providers and gateways: many at the same time, each under a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tradewind.errors import TradewindError
from tradewind.fleet.provider import CallRefused, Refusal

__all__ = ["CALLS_AT_ONCE_MAX", "CALL_S", "LAUNCH_S", "TERMINATE_S", "InFlight", "each_of"]

#: A provider answers a question (machines, offers, quota) within so long, or the call counts as failed.
CALL_S = 30.0
#: A launch call returns within so long; machines that it started all the same are found by their tags.
LAUNCH_S = 60.0
#: Timeout of a termination, after the grace of its gateways.
TERMINATE_S = 60.0
#: Calls about single machines that run at the same time.
CALLS_AT_ONCE_MAX = 16

#: Errors of a call that its caller gets; any other is a defect, and is shown where it occurs.
FAILURES = (TradewindError, OSError, KeyError)

T = TypeVar("T")
R = TypeVar("R")


class InFlight:
    """Calls of one fleet that run, each in a thread of its own, also those that nobody waits for any more."""

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()
        #: Held while a thread is added and started: one that has not begun cannot be waited for.
        self._adding = threading.Lock()

    def within(self, limit_s: float, what: str, call: Callable[[], R]) -> R:
        """Return what a call returns. Raises what it raises, or CallRefused (transient) if it takes over `limit_s`.

        A call that is late, or whose caller is interrupted, goes on in its thread.
        """
        answers: list[R] = []
        errors: list[Exception] = []

        def run() -> None:
            try:
                answers.append(call())
            except FAILURES as error:
                errors.append(error)
            finally:
                with self._adding:
                    self._threads.discard(thread)

        # No executor: at the end of the process it would wait for a provider that does not answer.
        thread = threading.Thread(target=run, name=what, daemon=True)
        with self._adding:
            self._threads.add(thread)
            thread.start()
        thread.join(limit_s)
        if errors:
            raise errors[0]
        if not answers:
            late = f"no answer within {limit_s:.0f} s" if thread.is_alive() else "it failed unexpectedly"
            raise CallRefused(Refusal("transient", f"{what}: {late}"))
        return answers[0]

    @property
    def is_busy(self) -> bool:
        """True if a call runs, beside the one that asks."""
        with self._adding:
            return any(thread is not threading.current_thread() for thread in self._threads)

    def wait(self, limit_s: float) -> bool:
        """Return whether all calls have ended, waiting for them up to the limit. A call never waits for itself."""
        deadline_s = time.monotonic() + limit_s
        with self._adding:
            others = [thread for thread in self._threads if thread is not threading.current_thread()]
        for thread in others:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return not any(thread.is_alive() for thread in others)


def each_of(items: Sequence[T], call: Callable[[T], R], at_once_max: int = CALLS_AT_ONCE_MAX) -> list[R]:
    """Return what a call returns for each item, in order, up to `at_once_max` of them at the same time.

    Raises the first error when all are done.
    """
    if len(items) == 1:
        return [call(items[0])]
    answers: dict[int, R] = {}
    errors: dict[int, Exception] = {}

    def run(index: int) -> None:
        try:
            answers[index] = call(items[index])
        except FAILURES as error:
            errors[index] = error

    for first in range(0, len(items), at_once_max):
        threads = [
            threading.Thread(target=run, args=(index,), daemon=True)
            for index in range(first, min(first + at_once_max, len(items)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[min(errors)]
    return [answers[index] for index in range(len(items))]
