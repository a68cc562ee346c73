"""Egress prices: rules as published by providers, and single pairs that override them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

from tradewind.model.origin import Origin
from tradewind.model.records import dataclass, field
from tradewind.model.region import Region, RegionInfo
from tradewind.model.tier import PriceTier, tier_volumes_gb
from tradewind.model.units import GB_PER_GIB

__all__ = [
    "CountedBy",
    "EgressCharge",
    "EgressPrice",
    "EgressRule",
    "ListedUnit",
    "PriceBook",
    "PriceTier",
    "StandardTier",
]


CountedBy = Literal["account", "region", "continents"]
ListedUnit = Literal["GB", "GiB"]


@dataclass(frozen=True, slots=True)
class EgressPrice:
    """Price per GB (10^9 bytes) from one region to another, whatever unit the price list has.

    Tiers rise by ``from_gb``; the first starts at zero.
    """

    tiers: tuple[PriceTier, ...]
    origin: Origin
    counted: CountedBy = "account"
    """The traffic that fills the tiers of this price: of the provider's account, out of one region, or between two
    continents."""
    unit: ListedUnit = "GB"
    """Unit in which the price list states price and tiers; see `listed_tiers`."""

    @classmethod
    def listed(
        cls, tiers: Iterable[tuple[float, float]], origin: Origin, unit: ListedUnit, counted: CountedBy = "account"
    ) -> EgressPrice:
        """Make a price from the tiers of a price list: each with its start in GB or GiB, and its price in USD.

        No other code converts prices between units.
        """
        size_gb = GB_PER_GIB if unit == "GiB" else 1.0
        return cls(tuple(PriceTier(start * size_gb, usd / size_gb) for start, usd in tiers), origin, counted, unit)

    @property
    def listed_tiers(self) -> tuple[tuple[float, float], ...]:
        """Tiers in the form that `listed` takes."""
        size_gb = GB_PER_GIB if self.unit == "GiB" else 1.0
        return tuple((round(t.from_gb / size_gb, 6), round(t.usd_per_gb * size_gb, 10)) for t in self.tiers)

    @property
    def usd_per_gb(self) -> float:
        """Price of the first GB of a month."""
        return self.tiers[0].usd_per_gb

    def cost_usd(self, volume_gb: float, used_gb: float = 0.0) -> float:
        """Return the cost of ``volume_gb`` after ``used_gb`` were already sent this month.

        Plans, their check, measurements and ledgers all calculate the cost of egress here.
        """
        return math.fsum(gb * tier.usd_per_gb for tier, gb in tier_volumes_gb(self.tiers, volume_gb, used_gb))

    def mean_usd_per_gb(self, volume_gb: float, used_gb: float = 0.0) -> float:
        """Return the mean price of ``volume_gb`` after ``used_gb`` were already sent this month."""
        if len(self.tiers) == 1:
            return self.usd_per_gb
        if volume_gb <= 0:
            return next(tier.usd_per_gb for tier in reversed(self.tiers) if tier.from_gb <= used_gb)
        return self.cost_usd(volume_gb, used_gb) / volume_gb


@dataclass(frozen=True, slots=True)
class EgressCharge:
    """The charge for one billing count: traffic whose volume fills the same tiers."""

    account: str
    """Name of the count: `aws`, `aws:us-east-1`, `gcp europe → asia`."""
    price: EgressPrice
    volume_gb: float
    usd: float
    pairs: tuple[tuple[Region, Region], ...]

    @property
    def usd_per_gb(self) -> float:
        """Mean price of the volume."""
        return self.usd / self.volume_gb if self.volume_gb > 0 else self.price.usd_per_gb


@dataclass(frozen=True, slots=True)
class EgressRule:
    """One line of a provider's bandwidth price list.

    ``src`` and ``dst`` are patterns: ``*``, a region (``aws:us-east-1``), a provider (``aws:*``), a continent
    (``europe``), a provider's continent (``gcp:europe``), ``internet`` (everything outside the source's provider) or
    ``internet:europe`` (the part of it on one continent). The first rule that matches applies, so lists begin with the
    most specific rules.
    """

    src: str
    dst: str
    price: EgressPrice

    def matches(self, src: RegionInfo, dst: RegionInfo) -> bool:
        """Return whether the rule prices traffic from ``src`` to ``dst``."""
        return _matches(self.src, src) and self.reaches(src, dst)

    def reaches(self, src: RegionInfo, dst: RegionInfo) -> bool:
        """Return whether ``dst`` is among the rule's destinations, seen from ``src``."""
        where, _, continent = self.dst.partition(":")
        if where != "internet":
            return _matches(self.dst, dst)
        return src.region.provider != dst.region.provider and continent in ("", dst.continent)


def _matches(pattern: str, place: RegionInfo) -> bool:
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
    """Rules whose source is a single region, by region: a provider's own list has thousands of them."""

    def egress(self, src: RegionInfo, dst: RegionInfo) -> EgressPrice | None:
        """Return the price from ``src`` to ``dst``, or ``None`` if unknown."""
        pair = self.pairs.get((src.region, dst.region))
        if pair is not None:
            return pair
        for rule in self.region_rules.get(src.region, ()):
            if rule.reaches(src, dst):
                return rule.price
        return next((rule.price for rule in self.rules if rule.matches(src, dst)), None)


@dataclass(frozen=True, slots=True)
class StandardTier:
    """The standard network tier of one provider (see `network_tier.py`)."""

    name: str
    """The provider's own name for it."""
    rules: tuple[EgressRule, ...]
    """Prices of egress to other networks; the first rule that matches applies."""
    not_offered_in: tuple[Region, ...]
    offered_origin: Origin
    """Origin of the regions that do not have it."""
    rate_origin: Origin
    """Origin of a link's rate without measurements: that of the premium tier is assumed."""

    def price(self, src: RegionInfo, dst: RegionInfo) -> EgressPrice | None:
        """Return the price of egress between two regions; `None` if unknown, not offered, or within the provider."""
        if src.region.provider == dst.region.provider or src.region in self.not_offered_in:
            return None
        return next((rule.price for rule in self.rules if rule.matches(src, dst)), None)
