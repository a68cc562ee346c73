"""Combine figures of several layers and ages into one: pure arithmetic, no files, no clock.

A figure's weight halves with every half-life; the layers below it have the remaining weight. For the origin of the
half-life see docs/concepts/catalog.md.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

from tradewind.model.catalog import Link, LinkPart
from tradewind.model.origin import Origin, OriginKind

__all__ = ["HALF_LIFE_DAYS", "LAYERS", "WEIGHT_MIN", "Figure", "age_weight", "layered"]

HALF_LIFE_DAYS = 180.0
"""Of the first measured grid's difference from the model, 0.32 was still present in a grid measured 303 days later."""
WEIGHT_MIN = 0.1
"""A figure with a smaller weight, after 597 days, is ignored."""
LAYERS: tuple[OriginKind, ...] = ("modelled", "published", "imported", "learned", "measured")
"""Layers of link figures, from the lowest to the highest."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Figure of one layer for a link."""

    gbps: float
    origin: Origin
    rtt_ms: float | None = None
    rtt_origin: Origin | None = None
    """Origin of the round-trip time, if it differs from that of the rate."""
    at_least: bool = False
    """True if the link carried this rate and may carry more."""


def age_weight(date: str, today: datetime.date) -> float:
    """Return the weight of a figure of ``date``, 1 to 0: a half after `HALF_LIFE_DAYS`, nothing below `WEIGHT_MIN`.

    A figure without a date does not age, because its author presents it as valid. A future date does not age either:
    clocks differ.
    """
    if not date:
        return 1.0
    age_days = max(0, (today - datetime.date.fromisoformat(date)).days)
    weight: float = 0.5 ** (age_days / HALF_LIFE_DAYS)
    return weight if weight >= WEIGHT_MIN else 0.0


def layered(figures: Iterable[Figure], today: datetime.date) -> Link:
    """One link from what the layers say: each weighs by its age, and leaves the rest to those below it.

    The lowest layer that says anything has nothing below it and holds whatever its age.

    Args:
        figures: at least one; one per layer at most.
        today: for the ages.
    """
    rising = sorted(figures, key=lambda figure: LAYERS.index(figure.origin.kind))
    gbps, parts = rising[0].gbps, [LinkPart(rising[0].gbps, 1.0, rising[0].origin)]
    for figure in rising[1:]:
        weight = age_weight(figure.origin.date, today)
        if figure.at_least and figure.gbps <= gbps:
            weight = 0.0
        gbps = weight * figure.gbps + (1 - weight) * gbps
        parts = [LinkPart(part.gbps, part.weight * (1 - weight), part.origin) for part in parts]
        parts.append(LinkPart(figure.gbps, weight, figure.origin))
    parts.reverse()
    origin = max(parts, key=lambda part: part.weight).origin
    timed = next((figure for figure in reversed(rising) if figure.rtt_ms is not None), None)
    rtt_ms, rtt_origin = (None, None) if timed is None else (timed.rtt_ms, timed.rtt_origin or timed.origin)
    return Link(gbps, origin, rtt_ms, rtt_origin, tuple(parts) if len(parts) > 1 else ())
