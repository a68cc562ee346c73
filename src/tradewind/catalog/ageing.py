"""Combine figures of several layers and ages into one: pure arithmetic, no files, no clock.

A figure's weight halves with every half-life; the layers below it share the remaining weight. The half-life is derived
in docs/concepts/catalog.md.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from tradewind.model.catalog import Link, LinkPart
from tradewind.model.origin import Origin, OriginKind
from tradewind.model.records import dataclass

__all__ = ["HALF_LIFE_DAYS", "LAYERS", "WEIGHT_MIN", "Figure", "age_weight", "layered"]

HALF_LIFE_DAYS = 180.0
"""0.32 of the first measured grid's difference from the model remained in a grid measured 303 days later."""
WEIGHT_MIN = 0.1
"""A figure with a smaller weight (older than 597 days) is ignored."""
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
    """True for a lower bound: the link carried this rate and may carry more."""


def age_weight(date: str, today: datetime.date) -> float:
    """Return the weight of a figure of ``date``, 1 to 0: a half after `HALF_LIFE_DAYS`, zero below `WEIGHT_MIN`.

    A figure without a date does not age, because its author presents it as valid. A future date does not age either,
    because clocks differ.
    """
    if not date:
        return 1.0
    age_days = max(0, (today - datetime.date.fromisoformat(date)).days)
    weight: float = 0.5 ** (age_days / HALF_LIFE_DAYS)
    return weight if weight >= WEIGHT_MIN else 0.0


def layered(figures: Iterable[Figure], today: datetime.date) -> Link:
    """Return one link from the figures of all layers: each weighs by its age, and the layers below share the rest.

    The lowest layer with a figure takes all the remaining weight, whatever its age.
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
