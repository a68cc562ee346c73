"""Scales and ticks of charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

__all__ = ["Scale", "axis_break", "format_ticks_usd", "scale", "ticks"]

Scale = Callable[[float], float]

TICKS_MAX = 6


def scale(low: float, high: float, start: float, end: float) -> Scale:
    """Return the position of a value between `low` and `high`, from `start` to `end`."""
    return lambda value: start + (value - low) / (high - low) * (end - start)


def ticks(low: float, high: float) -> list[float]:
    """Return round values from `low` to `high`."""
    rough = (high - low) / TICKS_MAX
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough)
    first = math.ceil(low / step)
    return [round(step * i, 10) for i in range(first, math.floor(high / step) + 1)]


def axis_break(x: float, y: float) -> str:
    """Return two slanting strokes, which mark an axis that does not begin at zero."""
    return f"M{x + 2} {y + 5}l4 -10M{x + 7} {y + 5}l4 -10"


def format_ticks_usd(values: Sequence[float]) -> list[str]:
    """Return amounts with just enough digits to distinguish them."""
    step = values[1] - values[0] if len(values) > 1 else max(values, default=1.0)
    digits = 0 if step >= 1 and all(t == int(t) for t in values) else max(2, -math.floor(math.log10(step or 1.0)))
    return [f"${value:,.{digits}f}" for value in values]
