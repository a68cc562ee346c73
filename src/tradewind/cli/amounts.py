"""Amounts as options take them: ceilings of cost, counts of machines, ratios. A figure without its unit is refused."""

from __future__ import annotations

import math

from tradewind.errors import UsageError
from tradewind.model.units import parse_usd

__all__ = ["COST_EXAMPLES", "parse_cost", "parse_machines", "parse_ratio"]

COST_EXAMPLES = "2.50USD in all, or 0.03USD/GB on average"


def parse_cost(text: str) -> tuple[str, float]:
    """`2.50USD` or `$2.50` in all, `0.03USD/GB` on average. Raises UsageError."""
    amount, slash, unit = text.partition("/")
    if slash and unit.strip() != "GB":
        raise UsageError(f"a ceiling is in USD, or in USD/GB, not {text!r}", hint=COST_EXAMPLES)
    try:
        usd = parse_usd(amount)
    except UsageError as error:
        what = f"a price per GB needs a number and a unit, not {text!r}" if slash else str(error)
        raise UsageError(what, hint=COST_EXAMPLES) from None
    return ("usd_per_gb" if slash else "usd"), usd


def parse_machines(text: str) -> int:
    """A number of machines, at least one. Raises UsageError."""
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"a number of machines, at least 1, not {text!r}")
    return int(text)


def parse_ratio(text: str) -> float:
    """Bytes sent per byte of data, above 0 and at most 1. Raises UsageError."""
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not 0 < ratio <= 1:
        raise UsageError(f"a compression ratio is above 0 and at most 1, not {text!r}", hint="for example 0.6")
    return ratio
