"""Handlers of the signals that stop the command.

A handler sets a flag, and may raise KeyboardInterrupt where the main thread has only begun: it never takes a lock,
because the main thread may hold that lock. Where a job is followed a thread waits for the signals (`SignalThread`), so
that they work whatever the main thread does.
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

#: Each asks to stop: Ctrl-C, `kill`, the end of the terminal or of the ssh session.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED = 130
#: Signals this close together are one request to stop: `timeout` and terminals send to the process and to its group.
ONE_REQUEST_S = 0.3
#: The first unwinds; a closed terminal often sends a second at once, which must not stop the unwinding.
SIGNALS_UNTIL_EXIT = 3


class StopHandlers:
    """Within, what `take` was given handles the signals that ask to stop; behind it, whoever did so before."""

    def __init__(self) -> None:
        self._before: dict[int, object] = {}

    def take(self, number: int, handler: Callable[[int, FrameType | None], None]) -> None:
        """From now on ``handler`` is called for a signal."""
        self._before[number] = signal.signal(number, handler)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


class SignalThread:
    """Calls `requested(n)` in its own thread for the n-th request to stop. Only for the main thread.

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
        """End the thread, after the request that it is busy with."""
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
    """Inside this context, a signal that requests a stop ends the process: at once during start-up, later by
    KeyboardInterrupt.

    Signals that were ignored when the process began stay ignored, as `nohup` requires. With `last` the process only has
    to end, and such signals are ignored from then on: the exit code is decided.
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
        """From now on there may be something to clean up."""
        self._starting = False

    def explain(self, error: BaseException) -> bool:
        """Return whether a signal is behind this error: an import that is interrupted may raise what it likes."""
        if isinstance(error, TransferError):
            return False  # It knows of the signal, and of the way to go on.
        link: BaseException | None = error
        while link is not None:
            if isinstance(link, KeyboardInterrupt):
                return True
            link = link.__cause__ or link.__context__
        return self._seen > 0

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._seen += 1
        if self._starting or self._seen >= SIGNALS_UNTIL_EXIT:
            # An exception could come out of an import, a destructor or the parser as anything, or not at all.
            if (process := sys.modules.get("tradewind.gateway.process")) is not None:
                process.kill_started()
            os.write(2, b"interrupted\n")
            os._exit(EXIT_INTERRUPTED)
        if self._seen == 1:
            raise KeyboardInterrupt
