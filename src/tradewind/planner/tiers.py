"""Volume tiers: the charge of a billing count for the traffic of a plan, and straight lines under and over it.

A count adds up the egress of all links whose price fills the same tiers. Its cost G(x) is piecewise linear in the
volume x = V · Σ F / T that the plan sends over them. In a span [l, u] of volumes the chord of G lies under it where
prices fall, and equals G inside one tier. With a line c + p·x instead of G the model stays linear: p is the price of
the links, and the rate pays c, c/8V per Gbit/s, because C = R · 8V/T.

Where prices fall, a line continued beyond its span lies over G, so flows need no limit. Where a price rises, for
example after a free volume, rows keep the flows inside the span (one destination).
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from tradewind.model.price import EgressPrice
from tradewind.model.records import dataclass

__all__ = ["Line", "Span", "TierCount"]

ROUNDING = 1e-12
"""Relative; prices that differ by less are treated as equal."""

Span = tuple[float, float]
"""Least and greatest volume [GB of data]."""


@dataclass(frozen=True, slots=True)
class Line:
    """A cost of ``usd`` and ``usd_per_gb`` for each GB of data."""

    usd: float
    usd_per_gb: float

    def at(self, volume_gb: float) -> float:
        """Return its cost at a volume [USD]."""
        return self.usd + self.usd_per_gb * volume_gb


@dataclass(frozen=True, slots=True, eq=False)
class TierCount:
    """Links whose egress fills the same tiers. Volumes are of data; compression makes them smaller on the wire."""

    account: str
    price: EgressPrice
    links: NDArray[np.int64]
    """Positions in the network."""
    sources: int
    """Pools of machines where these links start: no route uses more of them."""
    used_gb: float = 0.0
    ratio: float = 1.0

    def usd(self, volume_gb: float) -> float:
        """Return the charge for a volume: G."""
        return self.price.cost_usd(volume_gb * self.ratio, self.used_gb)

    @property
    def steps_gb(self) -> tuple[float, ...]:
        """Return the volumes of data at which another price begins."""
        starts = ((tier.from_gb - self.used_gb) / self.ratio for tier in self.price.tiers)
        return tuple(start for start in starts if start > 0.0)

    @property
    def falls(self) -> bool:
        """True if the price per GB never rises with the volume."""
        prices = [tier.usd_per_gb for tier in self.price.tiers]
        ahead = prices[-1 - len(self.steps_gb) :]
        return all(later <= before for before, later in itertools.pairwise(ahead))

    def volume_gb(self, usd: float) -> float:
        """Return the greatest volume that costs no more than this; infinite where further volume is free."""
        low = 0.0
        for step in (*self.steps_gb, math.inf):
            slope = self._slope(low)
            reached = low + (usd - self.usd(low)) / slope if slope > 0.0 else math.inf
            if reached < step:
                return max(low, reached)
            low = step
        return math.inf

    def under(self, span: Span) -> Line:
        """Return a line that lies nowhere above G in a span, and equals G if the span has one price."""
        low, high = span
        if high <= low or math.isinf(high):
            slope = min(self._slope(start) for start in (low, *self.steps_gb) if start >= low)
        else:
            ends = [*(step for step in self.steps_gb if low < step < high), high]
            slope = min((self.usd(end) - self.usd(low)) / (end - low) for end in ends)
        return Line(self.usd(low) - slope * low, slope)

    def is_under(self, line: Line, high_gb: float) -> bool:
        """Return whether a line lies nowhere above G up to a volume."""
        ends = [0.0, *(step for step in self.steps_gb if step < high_gb), high_gb]
        return all(line.at(end) <= self.usd(end) * (1 + ROUNDING) + ROUNDING for end in ends)

    def span_of(self, volume_gb: float) -> Span:
        """Return the span of the price that applies to the last GB of a volume."""
        ends = (0.0, *self.steps_gb, math.inf)
        return next((low, high) for low, high in itertools.pairwise(ends) if volume_gb <= high)

    def over(self, high_gb: float) -> Line:
        """Return a line through zero that lies nowhere below G up to a volume."""
        ends = [*(step for step in self.steps_gb if step < high_gb), high_gb]
        return Line(0.0, max([self._slope(0.0), *(self.usd(end) / end for end in ends)]))

    def _slope(self, volume_gb: float) -> float:
        """Return the price of the GB after a volume [USD per GB of data]."""
        sent_gb = self.used_gb + volume_gb * self.ratio
        tiers = [tier for tier in self.price.tiers if tier.from_gb <= sent_gb * (1 + ROUNDING)]
        return tiers[-1].usd_per_gb * self.ratio
