"""Runs at the start of each Python process of a replica, as `sitecustomize`: its wall clock is stepped by a file.

libfaketime cannot be used: with it, `time.sleep` of Python fails with EINVAL. The gateways keep the right clock.
"""

import os
import time


def _step_clock(file: str) -> None:
    """Let `time.time` and `time.time_ns` be ahead by the seconds in the file, which is read again every 0.2 s."""
    real_s, real_ns, monotonic_s = time.time, time.time_ns, time.monotonic
    read = [float("-inf"), 0]

    def ahead_s() -> int:
        if monotonic_s() - read[0] > 0.2:
            try:
                with open(file, encoding="ascii") as found:
                    read[:] = monotonic_s(), int(found.read())
            except (OSError, ValueError):
                read[0] = monotonic_s()
        return int(read[1])

    time.time = lambda: real_s() + ahead_s()
    time.time_ns = lambda: real_ns() + ahead_s() * 1_000_000_000


if "SOAK_CLOCK" in os.environ:
    _step_clock(os.environ["SOAK_CLOCK"])
