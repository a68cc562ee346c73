"""What signals do wherever no job is followed (there `cli/follow.py` has its own way)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType

from tradewind.errors import TransferError

#: Each asks to stop: Ctrl-C, `kill`, the end of the terminal or of the ssh session.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED = 130
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


class Interrupts(StopHandlers):
    """Within, a signal that asks to stop ends the process: at once while it starts up, then by KeyboardInterrupt.

    What was ignored when the process began stays ignored, as `nohup` wants it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._starting = True
        self._seen = 0

    def __enter__(self) -> Interrupts:
        for number in STOPPING:
            if signal.getsignal(number) != signal.SIG_IGN:
                self.take(number, self._stop)
        return self

    def started(self) -> None:
        """From now on there may be something to clean up."""
        self._starting = False

    def explain(self, error: BaseException) -> bool:
        """Whether a signal is behind this error: an import that is interrupted may raise what it likes."""
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
            os.write(2, b"interrupted\n")
            os._exit(EXIT_INTERRUPTED)
        if self._seen == 1:
            raise KeyboardInterrupt
