"""The catalog: all known facts about the world that transfers use.

Its grid is the throughput of one pair of machines between each two regions.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping

from tradewind.errors import UsageError
from tradewind.model.machine import MachineOffer, StoreLimits
from tradewind.model.network_tier import NetworkTier
from tradewind.model.origin import Origin
from tradewind.model.price import EgressCharge, EgressPrice, PriceBook, StandardTier
from tradewind.model.records import dataclass, field, replace
from tradewind.model.region import Region, RegionInfo, parse_region
from tradewind.model.tier import BillingCount

__all__ = ["Catalog", "Grid", "Link", "LinkPart"]

NEAREST_NAMES_MAX = 3
LIKENESS_MIN = 0.6
"""Similarity by `difflib`; below it a suggestion would be a guess."""


@dataclass(frozen=True, slots=True)
class LinkPart:
    """Figure of one layer for a link, and its share of the link's rate."""

    gbps: float
    weight: float
    """0 to 1; the weights of a link's parts add up to 1. A part of weight 0 is known but has no effect."""
    origin: Origin


@dataclass(frozen=True, slots=True)
class Link:
    """Throughput of one machine pair at 64 TCP connections, and round-trip time."""

    gbps: float
    origin: Origin
    """Origin of the layer with the largest weight."""
    rtt_ms: float | None = None
    rtt_origin: Origin | None = None
    """Origin of the round-trip time, if it differs from that of the rate."""
    parts: tuple[LinkPart, ...] = ()
    """Parts of the rate, the highest layer first; empty if there is one layer only."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Known links per ordered pair of regions. A pair without a link is not used."""

    links: Mapping[tuple[Region, Region], Link] = field(default_factory=dict)

    def link(self, src: Region, dst: Region) -> Link | None:
        """Return the link from ``src`` to ``dst``, if known."""
        return self.links.get((src, dst))

    def regions(self) -> tuple[Region, ...]:
        """Return all regions of the grid, sorted."""
        return tuple(sorted({region for pair in self.links for region in pair}))

    def updated(self, links: Iterable[tuple[tuple[Region, Region], Link]]) -> Grid:
        """Return a grid in which ``links`` replace existing ones."""
        return Grid({**self.links, **dict(links)})


@dataclass(frozen=True, slots=True)
class Catalog:
    """Regions, prices, machines, quotas, stores and the grid, each figure with its origin."""

    places: Mapping[Region, RegionInfo]
    prices: PriceBook
    grid: Grid
    offers: Mapping[str, tuple[MachineOffer, ...]]
    """Machine offers by provider."""
    region_offers: Mapping[Region, tuple[MachineOffer, ...]] = field(default_factory=dict)
    """Offers of one region whose own prices are known; they replace the provider's."""
    quotas: Mapping[Region, int] = field(default_factory=dict)
    """Machines that the account may still start in a region, if known."""
    quota_origins: Mapping[Region, Origin] = field(default_factory=dict)
    stores: Mapping[str, StoreLimits] = field(default_factory=dict)
    """Object-store limits by provider, if known."""
    standard_tiers: Mapping[str, StandardTier] = field(default_factory=dict)
    """Standard network tiers by provider. A provider without one has the premium tier alone."""
    standard_links: Mapping[tuple[Region, Region], Link] = field(default_factory=dict)
    """Links from machines in the standard network tier whose own rate is known."""
    standard_at: tuple[Region, ...] = ()
    """Regions whose machines send in the standard network tier; see `with_standard_tier`."""
    unconnected: Mapping[tuple[Region, Region], str] = field(default_factory=dict)
    """Reasons of the links that `without_links` has removed."""

    def machine_offers(self, region: Region) -> tuple[MachineOffer, ...]:
        """Return the machine types for a gateway in ``region``."""
        return self.region_offers.get(region) or self.offers.get(region.provider, ())

    def egress(self, src: Region, dst: Region) -> EgressPrice | None:
        """Return the egress price between two regions, if known."""
        src_place, dst_place = self.places.get(src), self.places.get(dst)
        if src_place is None or dst_place is None:
            return self.prices.pairs.get((src, dst))
        if src in self.standard_at:
            price = self.standard_tiers[src.provider].price(src_place, dst_place)
            if price is not None:
                return price
        return self.prices.egress(src_place, dst_place)

    def network_tiers(self, region: Region) -> tuple[NetworkTier, ...]:
        """Return the network tiers that machines in a region can have.

        `()` if its provider has no such choice, or if there are no other networks, so that it makes no difference.
        """
        tier, place = self.standard_tiers.get(region.provider), self.places.get(region)
        others = [other for other in self.places.values() if other.region.provider != region.provider]
        if tier is None or not others:
            return ()
        known = place is not None and any(tier.price(place, other) is not None for other in others)
        return ("premium", "standard") if known else ("premium",)

    def with_standard_tier(self, regions: Collection[Region]) -> Catalog:
        """Return the catalog with the prices and rates of machines that send in the standard tier in these regions.

        Regions without that tier keep the premium tier. This catalog itself must have the premium tier everywhere.
        """
        chosen = {region for region in regions if "standard" in self.network_tiers(region)}
        if chosen == set(self.standard_at):
            return self
        links = {
            pair: self.standard_links.get(pair)
            or replace(link, origin=self.standard_tiers[pair[0].provider].rate_origin, parts=())
            for pair, link in self.grid.links.items()
            if pair[0] in chosen and pair[0].provider != pair[1].provider
        }
        return replace(self, grid=self.grid.updated(links.items()), standard_at=tuple(sorted(chosen)))

    def without_links(self, reasons: Mapping[tuple[Region, Region], str]) -> Catalog:
        """Return the catalog without the links of these pairs, whose gateways cannot connect, and with the reasons."""
        gone = {pair: reason for pair, reason in reasons.items() if pair in self.grid.links}
        if not gone:
            return self
        links = {pair: link for pair, link in self.grid.links.items() if pair not in gone}
        standard = {pair: link for pair, link in self.standard_links.items() if pair not in gone}
        reasons = {**self.unconnected, **gone}
        return replace(self, grid=Grid(links), standard_links=standard, unconnected=reasons)

    def egress_account(self, src: Region, dst: Region, price: EgressPrice) -> str:
        """Return the name of the billing count for traffic between two regions with this `price`.

        Traffic is counted together if both the count and the tiers are the same.
        """
        if price.counted == "region":
            return str(src)
        if price.counted == "continents":
            ends = (self.places.get(src), self.places.get(dst))
            return f"{src.provider} {' → '.join('?' if place is None else place.continent for place in ends)}"
        return src.provider

    def egress_used_gb(
        self, used_gb: float, sent_gb: Mapping[tuple[Region, Region], float]
    ) -> Mapping[BillingCount, float]:
        """Return the volume of each billing count, by account and tiers: `used_gb` plus what was sent since.

        Leaves out counts without traffic since: their volume is `used_gb`.
        """
        seen_gb: dict[BillingCount, float] = {}
        for (src, dst), volume_gb in sent_gb.items():
            price = self.egress(src, dst)
            if price is not None:
                key = self.egress_account(src, dst, price), price.tiers
                seen_gb[key] = seen_gb.get(key, used_gb) + volume_gb
        return seen_gb

    def egress_charges(
        self,
        volumes_gb: Mapping[tuple[Region, Region], float],
        used_gb: float = 0.0,
        sent_gb: Mapping[tuple[Region, Region], float] | None = None,
    ) -> tuple[EgressCharge, ...]:
        """Return the cost of egress by billing count.

        Args:
            volumes_gb: volume from region to region [GB on the wire].
            used_gb: volume of each count this month.
            sent_gb: volume sent since, from region to region.

        Raises:
            KeyError: a pair of regions has no price.
        """
        counts: dict[BillingCount, tuple[EgressPrice, list[tuple[Region, Region]]]] = {}
        for src, dst in volumes_gb:
            price = self.egress(src, dst)
            if price is None:
                raise KeyError(f"no price of egress from {src} to {dst} is known")
            count = counts.setdefault((self.egress_account(src, dst, price), price.tiers), (price, []))
            count[1].append((src, dst))
        charges = []
        seen_gb = self.egress_used_gb(used_gb, sent_gb or {})
        for (account, tiers), (price, pairs) in counts.items():
            volume_gb = math.fsum(volumes_gb[pair] for pair in pairs)
            usd = price.cost_usd(volume_gb, seen_gb.get((account, tiers), used_gb))
            charges.append(EgressCharge(account, price, volume_gb, usd, tuple(pairs)))
        return tuple(charges)

    def region_named(self, text: str) -> Region:
        """Return a region as a user typed it, known or not. Raises UsageError, with suggestions."""
        try:
            return parse_region(text)
        except UsageError as error:
            near = () if ":" in text or "/" in text else self.nearest_names(Region("", text.strip()))
            raise UsageError(str(error), hint=f"did you mean {' or '.join(near)}?" if near else error.hint) from None

    def nearest_names(self, region: Region) -> tuple[str, ...]:
        """Return known regions with a name or city similar to ``region``'s, for a hint."""
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
