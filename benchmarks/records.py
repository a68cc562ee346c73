"""``python -m benchmarks.records``: the first calls of the `__init__` of a class of `tradewind.model.records`.

Prints the time of a call without a compiled method and that of the call that compiles it, as medians over many
classes of 6 fields, half of which have a default. The best of several rounds counts: other programs only add to it.
"""

from __future__ import annotations

import statistics
import time

from tradewind.model.records import INTERPRETED_CALLS_MAX, dataclass

CLASSES, ROUNDS = 200, 5


def main() -> int:
    """Measure, and print both times."""
    rounds = [_round() for _ in range(ROUNDS)]
    interpreted_us, compiling_us = (min(times) for times in zip(*rounds, strict=True))
    print(
        f"a call without a compiled __init__: {interpreted_us:.1f} µs; the call that compiles it: {compiling_us:.0f} µs"
    )
    return 0


def _round() -> tuple[float, float]:
    """Return the median times of both kinds of call [µs]."""
    interpreted, compiling = [], []
    for _ in range(CLASSES):
        kind = _new_class()
        took = [_took_us(kind) for _ in range(INTERPRETED_CALLS_MAX + 1)]
        interpreted.append(statistics.median(took[:-1]))
        compiling.append(took[-1])
    return statistics.median(interpreted), statistics.median(compiling)


def _new_class() -> type:
    @dataclass(frozen=True)
    class Example:
        a: int
        b: str
        c: float
        d: int = 0
        e: str = ""
        f: float | None = None

    return Example


def _took_us(kind: type) -> float:
    began_ns = time.perf_counter_ns()
    kind(1, "b", 2.0)
    return (time.perf_counter_ns() - began_ns) / 1000


if __name__ == "__main__":
    raise SystemExit(main())
