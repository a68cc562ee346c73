"""Egress prices: rules as providers publish them, and single pairs that override them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tradewind.model.origin import Origin
from tradewind.model.region import Place, Region

__all__ = ["EgressPrice", "EgressRule", "PriceBook", "PriceTier"]


@dataclass(frozen=True, slots=True)
class PriceTier:
    """A price that holds from a monthly volume on."""

    from_gb: float
    usd_per_gb: float


@dataclass(frozen=True, slots=True)
class EgressPrice:
    """What one GB costs on its way from one region to another. Tiers rise by ``from_gb``; the first starts at zero."""

    tiers: tuple[PriceTier, ...]
    origin: Origin

    @property
    def usd_per_gb(self) -> float:
        """Price of the first GB of a month."""
        return self.tiers[0].usd_per_gb

    def mean_usd_per_gb(self, volume_gb: float, used_gb: float = 0.0) -> float:
        """Mean price of ``volume_gb`` that follow ``used_gb`` already sent this month."""
        if volume_gb <= 0 or len(self.tiers) == 1:
            return self.tiers[0].usd_per_gb
        total_usd = 0.0
        for tier, end_gb in zip(self.tiers, [*(t.from_gb for t in self.tiers[1:]), float("inf")], strict=True):
            part_gb = min(used_gb + volume_gb, end_gb) - max(used_gb, tier.from_gb)
            total_usd += max(part_gb, 0.0) * tier.usd_per_gb
        return total_usd / volume_gb


@dataclass(frozen=True, slots=True)
class EgressRule:
    """One line of a provider's bandwidth price list.

    ``src`` and ``dst`` are patterns: ``*``, a region (``aws:us-east-1``), a provider (``aws:*``), a continent
    (``europe``), a provider's continent (``gcp:europe``), ``internet`` (everything outside the source's provider) or
    ``internet:europe`` (the part of it on one continent). The first rule that matches wins, so lists go from the
    special to the general.
    """

    src: str
    dst: str
    price: EgressPrice

    def matches(self, src: Place, dst: Place) -> bool:
        """Whether the rule prices traffic from ``src`` to ``dst``."""
        return _matches(self.src, src) and self.reaches(src, dst)

    def reaches(self, src: Place, dst: Place) -> bool:
        """Whether ``dst`` is among the rule's destinations, seen from ``src``."""
        where, _, continent = self.dst.partition(":")
        if where != "internet":
            return _matches(self.dst, dst)
        return src.region.provider != dst.region.provider and continent in ("", dst.continent)


def _matches(pattern: str, place: Place) -> bool:
    if pattern == "*":
        return True
    provider, colon, rest = pattern.partition(":")
    if not colon:
        return pattern == place.continent
    return provider == place.region.provider and rest in ("*", place.region.name, place.continent)


@dataclass(frozen=True, slots=True)
class PriceBook:
    """All egress prices of a catalog: single pairs first, then the rules of the source, then all rules, in order."""

    pairs: Mapping[tuple[Region, Region], EgressPrice] = field(default_factory=dict)
    rules: tuple[EgressRule, ...] = ()
    region_rules: Mapping[Region, tuple[EgressRule, ...]] = field(default_factory=dict)
    """Rules whose source is one region, by that region: a provider's own list has thousands of them."""

    def egress(self, src: Place, dst: Place) -> EgressPrice | None:
        """The price from ``src`` to ``dst``, or ``None`` if nobody has named one."""
        pair = self.pairs.get((src.region, dst.region))
        if pair is not None:
            return pair
        for rule in self.region_rules.get(src.region, ()):
            if rule.reaches(src, dst):
                return rule.price
        return next((rule.price for rule in self.rules if rule.matches(src, dst)), None)
