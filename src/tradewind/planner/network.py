"""The overlay as arrays: regions, links and machine options, cut out of a catalog once and reused for every solve.

Symbols (docs/concepts/planner.md): V the regions, E the ordered links, ``link_gbps`` LIMIT^link, ``usd_per_gb``
COST^egress, and per machine option LIMIT^egress, LIMIT^ingress and COST^VM.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from tradewind.model.catalog import Catalog
from tradewind.model.machine import MachineOffer
from tradewind.model.network_tier import NetworkTier, NetworkTierChoice
from tradewind.model.price import EgressPrice, PriceTier
from tradewind.model.records import dataclass, field, replace
from tradewind.model.region import Region
from tradewind.planner.tiers import TierCount

__all__ = ["FloatArray", "FlowNetwork", "IntArray", "MachineOption", "PlanningLimits", "build_network"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


GBPS_MIN = 1e-3
"""Minimum rate of a link. Slower ones are not worth a machine and worsen the model's numerical scaling."""


@dataclass(frozen=True, slots=True)
class PlanningLimits:
    """Limits set by the user and the account."""

    machines_per_region: int = 8
    """Upper limit in every region; quotas of the catalog lower it."""
    per_region: Mapping[Region, int] = field(default_factory=dict)
    """Limits of single regions; they replace the general one."""
    connections_per_machine: int = 64
    spot: bool = False
    """True if machines may be spot machines, which their provider can reclaim."""
    machine_types: Collection[str] | None = None
    """Names of the machine types that may be used; ``None`` for all."""
    store_limits: bool = True
    """True if the known rates of object stores per machine limit source and destination."""
    compression_ratio: float = 1.0
    """Bytes on the wire per byte of data, at most 1."""
    monthly_egress_used_gb: float = 0.0
    """Egress of each billing count this month; its tiers continue from there."""
    egress_sent_gb: Mapping[tuple[Region, Region], float] = field(default_factory=dict)
    """Volume that this transfer has already sent between regions; it counts towards the tiers too."""
    network_tiers: NetworkTierChoice = "premium"
    """Network tiers of machines, in regions that have both; `best` lets the planner choose one per region."""
    network_tier_of: Mapping[Region, NetworkTier] = field(default_factory=dict)
    """Network tiers of single regions, such as those whose machines already run; they replace the general choice."""
    rate_max_gbps: float | None = None
    """Highest rate of the transfer in Gbit/s, as the user limits it: no plan is faster, or pays for more."""
    routes_max: int | None = None
    """Maximum routes between gateways; ``None`` for any number. Only for one destination and one network tier."""
    machines_setting: str = "--max-vms"
    """Name of the setting for `machines_per_region`, for hints."""


@dataclass(frozen=True, slots=True)
class MachineOption:
    """One machine type in one region, in data Gbit/s (caps divided by the compression ratio)."""

    region_index: int
    offer: MachineOffer
    egress_gbps: float
    ingress_gbps: float
    usd_per_s: float
    read_gbps: float
    """Read rate of the region's object store; infinite if unknown."""
    write_gbps: float
    network_tier: NetworkTier | None = None
    """None in a cloud without a choice."""


ANY_TIER, PREMIUM, STANDARD = 0, 1, 2
"""Values of `FlowNetwork.link_tier`: a link of machines of any network tier, or of one."""
_LINK_TIERS: Mapping[NetworkTier | None, int] = {None: ANY_TIER, "premium": PREMIUM, "standard": STANDARD}


@dataclass(frozen=True, slots=True, eq=False)
class FlowNetwork:
    """Usable regions, links and machines. Arrays over links have one entry per ordered pair with data.

    Out of a region that may have either network tier, a pair of clouds has two: one per tier.
    """

    regions: tuple[Region, ...]
    index: Mapping[Region, int]
    tail: IntArray
    head: IntArray
    link_gbps: FloatArray
    usd_per_gb: FloatArray
    """Price of the first GB; `counts` has the further tiers."""
    options: tuple[MachineOption, ...]
    machines_max: IntArray
    """Maximum machines per region."""
    connections_per_machine: int
    boot_s: float
    """Longest start time of the offered machine types: no plan waits longer."""
    counts: tuple[TierCount, ...] = ()
    """Billing counts of the links whose price has tiers."""
    held_by_quota: frozenset[int] = frozenset()
    """Regions whose `machines_max` is the account's quota, not the user's limit."""
    compression_ratio: float = 1.0
    """Bytes on the wire per byte of data. Rates and prices are per byte of data already."""
    link_tier: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Network tier of the sending machines that a link needs; empty if no region has a choice."""
    mixed: int | None = None
    """The region whose machines may have both network tiers at once: the source, if it has a choice."""

    @property
    def tier_of_option(self) -> IntArray:
        """Network tier of each machine option, as in `link_tier`."""
        return np.array([_LINK_TIERS[option.network_tier] for option in self.options], dtype=np.int64)

    @property
    def pool_of_option(self) -> IntArray:
        """Pool of each machine option. A pool is a region, but of `mixed` only its machines of the premium tier.

        Pool `len(regions)` has those of the standard tier. The machines of a pool are of one option.
        """
        return self._pools(self.region_of_option, None if self.mixed is None else self.tier_of_option)

    def pool_of_links(self, links: IntArray) -> IntArray:
        """Return the pool that sends over each of these links."""
        return self._pools(self.tail[links], None if self.mixed is None else self.link_tier[links])

    def _pools(self, regions: IntArray, tiers: IntArray | None) -> IntArray:
        if self.mixed is None or tiers is None:
            return regions
        return np.where((regions == self.mixed) & (tiers == STANDARD), len(self.regions), regions)

    def region_of_pool(self, pool: int) -> int:
        """Return the index of the region of a pool."""
        return self.mixed if self.mixed is not None and pool == len(self.regions) else pool

    def served(self, machines: IntArray, links: IntArray) -> NDArray[np.bool_]:
        """Return for each of these links whether the machines, per option, have one at each end and of its tier."""
        regions, chosen = self.region_of_option, machines > 0
        manned = np.zeros(len(self.regions), dtype=bool)
        manned[regions[chosen]] = True
        served: NDArray[np.bool_] = manned[self.tail[links]] & manned[self.head[links]]
        if not len(self.link_tier):
            return served
        of_tier = np.zeros((len(self.regions), STANDARD + 1), dtype=bool)
        of_tier[:, ANY_TIER] = True
        of_tier[regions[chosen], self.tier_of_option[chosen]] = True
        return served & of_tier[self.tail[links], self.link_tier[links]]

    def sends_over(self, link: int, standard: bool) -> bool:
        """Return whether machines of the standard tier, or of the premium tier, serve a link out of their region."""
        tier = self.link_tier[link] if len(self.link_tier) else ANY_TIER
        return bool(tier in (ANY_TIER, STANDARD if standard else PREMIUM))

    @property
    def region_of_option(self) -> IntArray:
        """Index of the region of each machine option."""
        return np.array([option.region_index for option in self.options], dtype=np.int64)

    @property
    def boot_times_s(self) -> tuple[float, ...]:
        """Return all start times of the offered machine types, shortest first."""
        return tuple(sorted({option.offer.machine.boot_s for option in self.options}))

    def boots_at(self, region: int) -> tuple[float, ...]:
        """Return the same for one region."""
        return tuple(sorted(o.offer.machine.boot_s for o in self.options if o.region_index == region))

    def with_boot_within(self, boot_s: float) -> FlowNetwork:
        """Return this network with only the machine types that start within ``boot_s``; link numbers stay the same."""
        options = tuple(o for o in self.options if o.offer.machine.boot_s <= boot_s)
        return replace(self, options=options, boot_s=boot_s)

    def link_between(self, src: int, dst: int) -> int | None:
        """Return the position of the link between two regions, if it exists; of two, that of the premium tier."""
        found = np.flatnonzero((self.tail == src) & (self.head == dst))
        return int(found[0]) if found.size else None


def build_network(
    catalog: Catalog,
    limits: PlanningLimits,
    *,
    regions: Collection[Region] | None = None,
    source: Region | None = None,
) -> FlowNetwork:
    """Build a network from ``catalog``: the regions with a grid, a price and a machine.

    Args:
        catalog: source of all figures.
        limits: the user's and the account's limits.
        regions: restricts the overlay to these; ``None`` for all of the grid.
        source: region whose machines may have both network tiers at once, if it has a choice.
    """
    names = catalog.grid.regions() if regions is None else tuple(sorted(regions))
    names = tuple(r for r in names if _offers(catalog, r, limits) and _machines_max(catalog, r, limits) > 0)
    index = {region: position for position, region in enumerate(names)}
    ratio = limits.compression_ratio
    tail: list[int] = []
    head, gbps, price, link_tier = [], [], [], []
    tiered: dict[tuple[str, tuple[PriceTier, ...]], tuple[EgressPrice, list[int]]] = {}
    tiers_of = {region: _network_tiers(catalog, region, limits) for region in names}
    sent_in = catalog.with_standard_tier([region for region in names if tiers_of[region] == ("standard",)])
    seen_gb = sent_in.egress_used_gb(limits.monthly_egress_used_gb, limits.egress_sent_gb)
    for src, dst, known, tier in _links(catalog, index, tiers_of, source):
        link, egress = known.grid.links[src, dst], known.egress(src, dst)
        if link.gbps < GBPS_MIN or egress is None:
            continue
        key = (known.egress_account(src, dst, egress), egress.tiers)
        if len(egress.tiers) > 1:
            tiered.setdefault(key, (egress, []))[1].append(len(tail))
        tail.append(index[src])
        head.append(index[dst])
        gbps.append(link.gbps / ratio)
        link_tier.append(tier)
        used_gb = seen_gb.get(key, limits.monthly_egress_used_gb)
        price.append(egress.mean_usd_per_gb(0.0, used_gb) * ratio)
    options = tuple(_options(catalog, index, tiers_of, limits))
    return FlowNetwork(
        regions=names,
        index=index,
        tail=np.array(tail, dtype=np.int64),
        head=np.array(head, dtype=np.int64),
        link_gbps=np.array(gbps, dtype=np.float64),
        usd_per_gb=np.array(price, dtype=np.float64),
        options=options,
        machines_max=np.array([_machines_max(catalog, r, limits) for r in names], dtype=np.int64),
        compression_ratio=ratio,
        connections_per_machine=limits.connections_per_machine,
        boot_s=max((o.offer.machine.boot_s for o in options), default=0.0),
        counts=tuple(
            TierCount(
                account,
                egress,
                np.array(links, dtype=np.int64),
                len({tail[e] for e in links}),
                seen_gb.get((account, tiers), limits.monthly_egress_used_gb),
                ratio,
            )
            for (account, tiers), (egress, links) in tiered.items()
        ),
        held_by_quota=frozenset(index[r] for r in names if _machines_max(catalog, r, limits) < _allowed(r, limits)),
        link_tier=np.array(link_tier if any(link_tier) else [], dtype=np.int64),
        mixed=index[source] if source is not None and len(tiers_of.get(source, ())) > 1 else None,
    )


def _network_tiers(catalog: Catalog, region: Region, limits: PlanningLimits) -> tuple[NetworkTier | None, ...]:
    """Return the network tiers that machines in a region may have in a plan."""
    offered = catalog.network_tiers(region)
    if "standard" not in offered:
        return offered or (None,)
    wanted = limits.network_tier_of.get(region, limits.network_tiers)
    return offered if wanted == "best" else (wanted,)


def _links(
    catalog: Catalog,
    index: Collection[Region],
    tiers_of: Mapping[Region, tuple[NetworkTier | None, ...]],
    source: Region | None,
) -> Iterator[tuple[Region, Region, Catalog, int]]:
    """Yield the links between two regions, each with the catalog that knows it, and its value of `link_tier`.

    The machines of the source may have both tiers, so that it needs to be known which ones send within their cloud.
    """
    standard = catalog.with_standard_tier([region for region, tiers in tiers_of.items() if "standard" in tiers])
    for src, dst in catalog.grid.links:
        if src not in index or dst not in index or src == dst:
            continue
        if len(tiers_of[src]) > 1 and (src.provider != dst.provider or src == source):
            yield src, dst, catalog, PREMIUM
            yield src, dst, standard, STANDARD
        else:
            yield src, dst, standard, ANY_TIER


def _offers(catalog: Catalog, region: Region, limits: PlanningLimits) -> list[MachineOffer]:
    """Return the offers, without those that another offer beats in every respect: they never improve a plan."""
    allowed = [
        offer
        for offer in catalog.machine_offers(region)
        if (limits.spot or not offer.spot)
        and (limits.machine_types is None or offer.machine.name in limits.machine_types)
    ]
    return [
        offer
        for position, offer in enumerate(allowed)
        if not any(_beats(other, offer, other_position < position) for other_position, other in enumerate(allowed))
    ]


def _beats(other: MachineOffer, offer: MachineOffer, first: bool) -> bool:
    """Return whether ``other`` costs no more, carries no less and starts no later; of equal offers the first wins."""
    theirs = (-other.usd_per_hour, other.machine.egress_gbps, other.machine.ingress_gbps, -other.machine.boot_s)
    ours = (-offer.usd_per_hour, offer.machine.egress_gbps, offer.machine.ingress_gbps, -offer.machine.boot_s)
    return all(a >= b for a, b in zip(theirs, ours, strict=True)) and (theirs != ours or first)


def _machines_max(catalog: Catalog, region: Region, limits: PlanningLimits) -> int:
    allowed = _allowed(region, limits)
    return min(allowed, catalog.quotas.get(region, allowed))


def _allowed(region: Region, limits: PlanningLimits) -> int:
    """Return the user's limit, independent of the account's quota."""
    return limits.per_region.get(region, limits.machines_per_region)


def _options(
    catalog: Catalog,
    index: Mapping[Region, int],
    tiers_of: Mapping[Region, tuple[NetworkTier | None, ...]],
    limits: PlanningLimits,
) -> Iterator[MachineOption]:
    """Yield a machine option for each region, network tier and machine type."""
    for region, position in index.items():
        for tier in tiers_of[region]:
            for offer in _offers(catalog, region, limits):
                yield _option(catalog, position, offer, region, limits, tier)


def _option(
    catalog: Catalog, index: int, offer: MachineOffer, region: Region, limits: PlanningLimits, tier: NetworkTier | None
) -> MachineOption:
    store = catalog.stores.get(region.provider) if limits.store_limits else None
    ratio = limits.compression_ratio
    return MachineOption(
        region_index=index,
        offer=offer,
        egress_gbps=offer.machine.egress_gbps / ratio,
        ingress_gbps=offer.machine.ingress_gbps / ratio,
        usd_per_s=offer.usd_per_s,
        read_gbps=store.read_gbps if store else float("inf"),
        write_gbps=store.write_gbps if store else float("inf"),
        network_tier=tier,
    )
