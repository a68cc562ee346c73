"""Goals of a transfer, and the limits that come with them."""

from __future__ import annotations

from typing import Literal

from tradewind.model.records import dataclass
from tradewind.model.units import format_duration, format_gbps, format_usd

__all__ = ["ASKED_DIGITS", "Cheapest", "Deadline", "Fastest", "Goal", "MaxCost", "MinThroughput", "Soonest"]

ASKED_DIGITS = 6
"""Digits of a goal's figures: enough to repeat them as the user gave them."""


@dataclass(frozen=True, slots=True)
class MinThroughput:
    """Cheapest at a rate: at least ``gbps``, or exactly that (the paper's linear reformulation)."""

    gbps: float
    exactly: bool = False

    def __str__(self) -> str:
        rate = format_gbps(self.gbps, ASKED_DIGITS)
        return f"cheapest at exactly {rate}" if self.exactly else f"cheapest at {rate} or more"


@dataclass(frozen=True, slots=True)
class Deadline:
    """Cheapest that ends within ``seconds``, machines' boot included."""

    seconds: float

    def __str__(self) -> str:
        return f"cheapest within {format_duration(self.seconds)}"


@dataclass(frozen=True, slots=True)
class MaxCost:
    """Fastest for at most ``usd``, egress and machines together; the cheapest among the fastest."""

    usd: float

    def __str__(self) -> str:
        return f"fastest for at most {format_usd(self.usd)}"


@dataclass(frozen=True, slots=True)
class Cheapest:
    """Cheapest at any rate."""

    def __str__(self) -> str:
        return "cheapest at any rate"


@dataclass(frozen=True, slots=True)
class Fastest:
    """Fastest at any cost; the cheapest among the fastest."""

    def __str__(self) -> str:
        return "fastest at any cost"


@dataclass(frozen=True, slots=True)
class Soonest:
    """Earliest finish, machines' boot included; the cheapest of those that end at most 2 s or 2% later."""

    def __str__(self) -> str:
        return "done soonest"


Goal = MinThroughput | Deadline | MaxCost | Cheapest | Fastest | Soonest
#: Goals without a number.
GoalName = Literal["soonest", "cheapest", "fastest"]
