"""A clock that does not stop while this machine is suspended, as the price of rented machines does not."""

from __future__ import annotations

import time

__all__ = ["elapsed_s", "suspended_s"]

#: Linux leaves the time of a suspension out of CLOCK_MONOTONIC; macOS leaves it out of `time.monotonic` alone.
_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def elapsed_s() -> float:
    """Return the time since some moment [s], with that of suspensions. No change of the system's time affects it."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


def suspended_s() -> float:
    """Return the time for which this machine was suspended [s], which `time.monotonic` leaves out, plus a constant."""
    return elapsed_s() - time.monotonic()
