"""Handlers of the signals that stop the command.

A handler only sets a flag or raises KeyboardInterrupt. It never takes a lock, because the main thread may hold that
lock. While a job is followed, a thread waits for the signals (`SignalThread`), so that they work even if the main
thread is blocked.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType

from tradewind.errors import TransferError

#: Signals that request a stop: Ctrl-C, `kill`, the end of the terminal or of the ssh session.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED = 130
#: Signals within this time count as one request: `timeout` and terminals signal both the process and its group.
ONE_REQUEST_S = 0.3
#: Number of signals after which the process exits at once. The first one unwinds. A closed terminal often sends a
#: second one at once, which must not interrupt the unwinding.
SIGNALS_UNTIL_EXIT = 3


class StopHandlers:
    """A context with its own signal handlers, set by `take`. At its end the previous handlers are restored."""

    def __init__(self) -> None:
        self._before: dict[int, object] = {}

    def take(self, number: int, handler: Callable[[int, FrameType | None], None]) -> None:
        """Call `handler` for a signal from now on."""
        self._before[number] = signal.signal(number, handler)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


class SignalThread:
    """Calls `requested(n)` in its own thread for the n-th request to stop. Must be created in the main thread.

    The kernel's signal is written to a pipe in C at once (`signal.set_wakeup_fd`), so the thread receives it even if
    the main thread is in a system call or waits for a lock.
    """

    def __init__(self, requested: Callable[[int], None]) -> None:
        self._requested = requested
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._wait, name="signals", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, after the request that it is handling."""
        signal.set_wakeup_fd(self._before)
        os.write(self._write, b"\0")
        self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def _wait(self) -> None:
        requests, last_s = 0, 0.0
        while (number := os.read(self._read, 1)[0]) != 0:
            now_s = time.monotonic()
            if number not in STOPPING or (requests and now_s - last_s < ONE_REQUEST_S):
                continue
            requests, last_s = requests + 1, now_s
            self._requested(requests)


class Interrupts(StopHandlers):
    """A context in which a signal that requests a stop ends the process: at once during start-up, later by
    KeyboardInterrupt.

    Signals that were ignored when the process began stay ignored, as `nohup` requires. With `last`, signals are ignored
    after the context too: the exit code is decided, and the process is about to end.
    """

    def __init__(self, *, last: bool = False) -> None:
        super().__init__()
        self._last = last
        self._starting = True
        self._seen = 0

    def __enter__(self) -> Interrupts:
        for number in STOPPING:
            if signal.getsignal(number) != signal.SIG_IGN:
                self.take(number, self._stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._last:
            return super().__exit__(kind, error, trace)
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        return None

    def started(self) -> None:
        """End the start-up phase: from now on there may be something to clean up."""
        self._starting = False

    def explain(self, error: BaseException) -> bool:
        """Return whether a signal caused this error: an interrupted import may raise any error."""
        if isinstance(error, TransferError):
            return False  # Its message already explains the signal and how to resume.
        link: BaseException | None = error
        while link is not None:
            if isinstance(link, KeyboardInterrupt):
                return True
            link = link.__cause__ or link.__context__
        return self._seen > 0

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._seen += 1
        if self._starting or self._seen >= SIGNALS_UNTIL_EXIT:
            # Exit here: an import, a destructor or the parser could convert or swallow an exception.
            if (process := sys.modules.get("tradewind.gateway.process")) is not None:
                process.kill_started()
            os.write(2, b"interrupted\n")
            os._exit(EXIT_INTERRUPTED)
        if self._seen == 1:
            raise KeyboardInterrupt
