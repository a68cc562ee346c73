"""Clocks: one that does not stop while this machine is suspended, as the price of rented machines does not, and this
machine's own Unix time, which may be wrong.
"""

from __future__ import annotations

import time

__all__ = ["elapsed_s", "host_unix_s", "suspended_s"]

#: Linux leaves the time of a suspension out of CLOCK_MONOTONIC; macOS leaves it out of `time.monotonic` alone.
_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def elapsed_s() -> float:
    """Return the seconds since a fixed moment, including suspensions. Setting the system's clock does not change it."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


def suspended_s() -> float:
    """Return the seconds for which this machine was suspended, plus a constant. `time.monotonic` leaves them out."""
    return elapsed_s() - time.monotonic()


def host_unix_s() -> float:
    """Return the Unix time by the clock of this machine [s]."""
    return time.time()
