"""A latch survives Ctrl-C at any moment: no lock stays held."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tradewind.engine.event_log import EventLog
from tradewind.model.latch import Latch

INTERRUPTS = 1500
LATEST_S = 300e-6
HUNG_S = 20.0


class Interrupt(BaseException):
    """The test's equivalent of KeyboardInterrupt."""


@contextmanager
def interrupts() -> Iterator[None]:
    """Make SIGALRM raise Interrupt in the main thread within the context."""

    def interrupt(*_: object) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupted(work: Callable[[], object], rng: random.Random) -> None:
    """Repeat `work` until the interrupt comes.

    The signal is sent again after a second: Python drops an exception that is raised in a finalizer.
    """
    try:
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, LATEST_S), 1.0)
        while True:
            work()
    except Interrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_a_latch_wakes_all_waiting_threads() -> None:
    latch, woken = Latch(), threading.Barrier(4)
    waiters = [threading.Thread(target=lambda: (latch.wait(), woken.wait(HUNG_S))) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    assert not latch.wait(0.01) and not latch.is_set()
    latch.set()
    woken.wait(HUNG_S)
    assert latch.wait() and latch.is_set()
    for waiter in waiters:
        waiter.join()


@pytest.mark.parametrize("seed", range(3))
def test_an_interrupted_wait_leaves_the_latch_usable(seed: int) -> None:
    rng = random.Random(seed)
    with interrupts():
        for _ in range(INTERRUPTS // 3):
            latch = Latch()
            interrupted(lambda latch=latch: latch.wait(50e-6), rng)  # type: ignore[misc]
            setter = threading.Thread(target=latch.set, daemon=True)
            setter.start()
            setter.join(HUNG_S)
            assert not setter.is_alive(), "the lock is still held"
            assert latch.wait(HUNG_S)


@pytest.mark.parametrize("seed", range(3))
def test_an_interrupted_reader_does_not_stop_the_writer(seed: int) -> None:
    rng, log, going = random.Random(seed), EventLog(), threading.Event()
    written = [0]

    def write() -> None:
        while not going.is_set():
            log.append(b"{}\n")
            written[0] += 1

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    with interrupts():
        for _ in range(INTERRUPTS // 3):
            interrupted(lambda: [None for _ in log.lines()], rng)
    going.set()
    writer.join(HUNG_S)
    assert not writer.is_alive(), "the lock is still held"
    log.append(b"last\n")
    log.end()
    assert list(log.lines())[-1] == b"last\n"
