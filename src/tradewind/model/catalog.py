"""The catalog: all that is known of the world that transfers go through."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tradewind.errors import UsageError
from tradewind.model.grid import Grid
from tradewind.model.machine import MachineOffer, StoreLimits
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice, PriceBook
from tradewind.model.region import Place, Region, parse_region

__all__ = ["Catalog"]

NEAREST_NAMES_MAX = 3
LIKENESS_MIN = 0.6
"""As `difflib` counts it; below it a hint would be a guess."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Regions, prices, machines, quotas, stores and the grid, each figure with its origin."""

    places: Mapping[Region, Place]
    prices: PriceBook
    grid: Grid
    offers: Mapping[str, tuple[MachineOffer, ...]]
    """Machine offers by provider."""
    region_offers: Mapping[Region, tuple[MachineOffer, ...]] = field(default_factory=dict)
    """Offers of one region, where its prices are known; they take the place of the provider's."""
    quotas: Mapping[Region, int] = field(default_factory=dict)
    """Machines that the account may still start in a region, where known."""
    quota_origins: Mapping[Region, Origin] = field(default_factory=dict)
    stores: Mapping[str, StoreLimits] = field(default_factory=dict)
    """Object-store limits by provider, where known."""

    def machine_offers(self, region: Region) -> tuple[MachineOffer, ...]:
        """What a gateway in ``region`` can run on."""
        return self.region_offers.get(region) or self.offers.get(region.provider, ())

    def egress(self, src: Region, dst: Region) -> EgressPrice | None:
        """The egress price between two regions, if known."""
        src_place, dst_place = self.places.get(src), self.places.get(dst)
        if src_place is None or dst_place is None:
            return self.prices.pairs.get((src, dst))
        return self.prices.egress(src_place, dst_place)

    def region_named(self, text: str) -> Region:
        """A region as a user typed it, which need not be known. Raises UsageError, with names like a bare one."""
        try:
            return parse_region(text)
        except UsageError as error:
            near = () if ":" in text or "/" in text else self.nearest_names(Region("", text.strip()))
            raise UsageError(str(error), hint=f"did you mean {' or '.join(near)}?" if near else error.hint) from None

    def nearest_names(self, region: Region) -> tuple[str, ...]:
        """Known regions whose names are like ``region``'s, or that lie in a city of that name, for a hint."""
        city = region.name.lower()
        here = [place.region for place in self.places.values() if city in place.label.lower()]
        if here:
            here.sort(key=lambda r: (r.provider != region.provider, r))
            return tuple(map(str, here[:NEAREST_NAMES_MAX]))
        known = sorted(set(self.places) | set(self.grid.regions()))
        same_provider = [r for r in known if r.provider == region.provider]
        for regions in (same_provider, known):
            by_name = {r.name: str(r) for r in reversed(regions)}
            close = difflib.get_close_matches(city, by_name, NEAREST_NAMES_MAX, LIKENESS_MIN)
            if close:
                return tuple(by_name[name] for name in close)
        return ()
