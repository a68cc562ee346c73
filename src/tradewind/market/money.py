"""Exact amounts of money: fractions while calculating, integer micro-dollars when charged, cents on invoices.

An amount is rounded once, when it becomes micro-dollars: to the nearest, and half to even.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from tradewind.errors import UsageError

__all__ = ["MICROS_PER_CENT", "MICROS_PER_USD", "apportion", "exact", "format_micros", "micros_of", "micros_up"]

MICROS_PER_USD = 1_000_000
MICROS_PER_CENT = 10_000


def exact(number: float | int | str | Fraction) -> Fraction:
    """Return a number as a fraction. A float counts as the shortest decimal that denotes it: 0.1 is 1/10.

    Raises UsageError for text that is no number, and for infinite numbers.
    """
    if isinstance(number, (int, Fraction)):
        return Fraction(number)
    try:
        return Fraction(str(number))
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"{number!r} is not a finite number") from None


def micros_of(usd: float | int | str | Fraction) -> int:
    """Return an amount in micro-dollars, rounded half to even."""
    return round(exact(usd) * MICROS_PER_USD)


def micros_up(usd: Fraction) -> int:
    """Return an amount in micro-dollars, rounded up: for lower bounds, which a price must not be below."""
    return math.ceil(usd * MICROS_PER_USD)


def format_micros(usd_micros: int) -> str:
    """Return ``$12.345678`` without trailing zeros, but with cents: ``$12.30``."""
    sign = "-" if usd_micros < 0 else ""
    whole, rest = divmod(abs(usd_micros), MICROS_PER_USD)
    return f"{sign}${whole:,}.{f'{rest:06}'.rstrip('0'):0<2}"


def apportion(amounts: Sequence[Fraction]) -> tuple[int, ...]:
    """Return the amounts as integers that add up to their rounded sum, by the largest remainder.

    Each result differs from its amount by less than 1. Equal remainders go to the earlier amount. Amounts may be
    negative.
    """
    floors = [math.floor(amount) for amount in amounts]
    missing = round(sum(amounts, Fraction(0))) - sum(floors)
    by_remainder = sorted(range(len(amounts)), key=lambda number: (floors[number] - amounts[number], number))
    raised = frozenset(by_remainder[:missing])
    return tuple(floor + (number in raised) for number, floor in enumerate(floors))
