"""Retries of the end of machines while a provider throttles or does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable

from tradewind.fleet.provider import Refusal
from tradewind.model.latch import Latch
from tradewind.model.units import format_duration

__all__ = ["OUTAGE_S", "Patience"]

#: Time for which throttled and temporarily refused calls are retried, from the first of them: APIs are out for a minute
#: at times, and a machine that is not ended is billed until its lease expires.
OUTAGE_S = 150.0
#: The same once nobody wants to wait: a throttled call needs a second try.
HURRIED_S = 2.0
#: The waits between retries double from the first to the last [s].
RETRY_WAIT_S, RETRY_WAIT_S_MAX = 0.5, 10.0
DOUBLINGS_MAX = 16
#: A longer outage is reported to the user [s].
SAID_AFTER_S = 4.0


class Patience:
    """The retries of one ending, by one thread. `say` gets one line about a long outage; `hurried` makes it short."""

    def __init__(self, hurried: Latch | None = None, say: Callable[[str], None] | None = None) -> None:
        self._hurried = hurried or Latch()
        self._say = say
        self._since_s: float | None = None
        self._tries = 0

    def another(self) -> Patience:
        """Return the same patience for something else."""
        return Patience(self._hurried, self._say)

    def wait(self, what: str, refusal: Refusal) -> bool:
        """Wait after a refused call; return whether to try again. `what` is the purpose of the call, in words."""
        if refusal.kind not in ("throttled", "transient"):
            return False
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        is_hurried = self._hurried.is_set()
        left_s = self._since_s + (HURRIED_S if is_hurried else OUTAGE_S) - now_s
        if left_s <= 0:
            return False
        wait_s = min(RETRY_WAIT_S_MAX, RETRY_WAIT_S * 2 ** min(self._tries, DOUBLINGS_MAX))
        self._tries += 1
        if self._say is not None and not is_hurried and now_s + wait_s - self._since_s >= SAID_AFTER_S:
            reason = f"{refusal.kind}: {refusal.reason}"
            self._say(f"cannot {what} at present ({reason}); retrying for up to {format_duration(left_s)}")
            self._say = None
        wait_s = min(wait_s, left_s)  # The last try is at the end of the time.
        if is_hurried:
            time.sleep(wait_s)
        else:
            self._hurried.wait(refusal.pause_s(wait_s, left_s))
        return True

    def answered(self) -> None:
        """Note that a call succeeded: the next refusal begins a new outage."""
        self._since_s, self._tries = None, 0
