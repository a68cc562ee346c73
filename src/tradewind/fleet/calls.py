"""Calls to providers and gateways: concurrent, each under a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tradewind.errors import TradewindError
from tradewind.fleet.provider import CallRefused, ListIncomplete, Machine, Refusal

__all__ = ["CALLS_AT_ONCE_MAX", "CALL_S", "LAUNCH_S", "TERMINATE_S", "InFlight", "each_of", "machines_of_each"]

#: Timeout of a provider's query call (machines, offers, quota).
CALL_S = 30.0
#: Timeout of a launch call. Machines that a call started before it timed out are found by their tags.
LAUNCH_S = 60.0
#: Timeout of a termination, in addition to the grace period of the gateways.
TERMINATE_S = 60.0
#: Maximum number of concurrent calls about single machines.
CALLS_AT_ONCE_MAX = 16

#: Errors of a call that are raised again in the caller. Any other error is a defect, and its traceback is printed by
#: the call's thread.
FAILURES = (TradewindError, OSError, KeyError)

T = TypeVar("T")
R = TypeVar("R")


class InFlight:
    """The running calls of one fleet, each in its own thread, including those whose caller has timed out."""

    def __init__(self) -> None:
        self._threads: set[threading.Thread] = set()
        #: Held while a thread is added and started: a thread that has not started cannot be joined.
        self._adding = threading.Lock()

    def within(self, limit_s: float, what: str, call: Callable[[], R]) -> R:
        """Return the result of a call. Raises its error, or CallRefused (transient) if it takes longer than `limit_s`.

        A call that times out, or whose caller is interrupted, keeps running in its thread.
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

        # No executor: when this process exits, an executor would wait for a provider that does not answer.
        thread = threading.Thread(target=run, name=what, daemon=True)
        with self._adding:
            self._threads.add(thread)
            thread.start()
        thread.join(limit_s)
        if errors:
            # In the list the error would be a part of its own traceback, and keep all that this refers to.
            raise errors.pop()
        if not answers:
            late = f"no answer within {limit_s:.0f} s" if thread.is_alive() else "it failed unexpectedly"
            raise CallRefused(Refusal("transient", f"{what}: {late}"))
        return answers[0]

    @property
    def is_busy(self) -> bool:
        """True if a call runs in another thread than the current one."""
        with self._adding:
            return any(thread is not threading.current_thread() for thread in self._threads)

    def wait(self, limit_s: float) -> bool:
        """Wait up to the limit for all calls to end; return whether they have. A call never waits for itself."""
        deadline_s = time.monotonic() + limit_s
        with self._adding:
            others = [thread for thread in self._threads if thread is not threading.current_thread()]
        for thread in others:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return not any(thread.is_alive() for thread in others)


def each_of(items: Sequence[T], call: Callable[[T], R], at_once_max: int = CALLS_AT_ONCE_MAX) -> list[R]:
    """Call a function for each item, up to `at_once_max` at the same time, and return the results in order.

    Raises the first error when all calls are done, or CallRefused (transient) if one of them ended in a defect.
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
        raise errors.pop(min(errors))
    if len(answers) < len(items):
        raise CallRefused(Refusal("transient", "a call failed unexpectedly"))
    return [answers[index] for index in range(len(items))]


def machines_of_each(places: Sequence[T], list_machines: Callable[[T], Iterable[Machine]]) -> list[Machine]:
    """List the machines of places at the same time, and return those of all. Raises ListIncomplete if some refuse."""

    def listed(place: T) -> tuple[Sequence[Machine], CallRefused | None]:
        try:
            return tuple(list_machines(place)), None
        except ListIncomplete as error:
            return error.found, error
        except CallRefused as error:
            return (), error

    answers = each_of(places, listed)
    found = [machine for machines, _ in answers for machine in machines]
    if (first := next((error for _, error in answers if error is not None), None)) is not None:
        raise ListIncomplete(first.refusal, found) from first
    return found
