"""Price tiers: the part of a price list that a ledger needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tradewind.model.records import dataclass

__all__ = ["BillingCount", "PriceTier", "tier_volumes_gb"]


@dataclass(frozen=True, slots=True)
class PriceTier:
    """A price that applies from a monthly volume on."""

    from_gb: float
    usd_per_gb: float


BillingCount = tuple[str, tuple[PriceTier, ...]]
"""Account and price tiers of links whose traffic counts together."""


def tier_volumes_gb(
    tiers: Sequence[PriceTier], volume_gb: float, used_gb: float = 0.0
) -> Iterator[tuple[PriceTier, float]]:
    """Return the part of ``volume_gb`` in each tier, after ``used_gb`` were already sent."""
    ends_gb = [*(tier.from_gb for tier in tiers[1:]), math.inf]
    for tier, end_gb in zip(tiers, ends_gb, strict=True):
        # ``used_gb`` may be so large that adding the volume to it would lose digits.
        yield tier, max(0.0, min(volume_gb, end_gb - used_gb) - max(0.0, tier.from_gb - used_gb))
