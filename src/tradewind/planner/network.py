"""The overlay as arrays: regions, links and machine options, cut out of a catalog once and reused for every solve.

Symbols (docs/concepts/planner.md): V the regions, E the ordered links, ``link_gbps`` LIMIT^link, ``usd_per_gb``
COST^egress, and per machine option LIMIT^egress, LIMIT^ingress and COST^VM.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tradewind.model.catalog import Catalog
from tradewind.model.machine import MachineOffer
from tradewind.model.network_tier import NetworkTier, NetworkTierChoice
from tradewind.model.overlay import Pool
from tradewind.model.price import EgressPrice
from tradewind.model.records import dataclass, field, replace
from tradewind.model.region import Region
from tradewind.model.tier import BillingCount
from tradewind.planner.tiers import TierCount

__all__ = ["FloatArray", "FlowNetwork", "IntArray", "MachineOption", "PlanningLimits", "build_network", "sent_gb"]

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
    standard_sent_gb: Mapping[tuple[Region, Region], float] = field(default_factory=dict)
    """The same for what machines of the standard network tier have sent. `egress_sent_gb` is without it."""
    network_tiers: NetworkTierChoice = "premium"
    """Network tiers of machines, in regions that have both; `best` lets the planner choose for each machine."""
    network_tier_of: Mapping[Region, NetworkTier] = field(default_factory=dict)
    """Network tiers of single regions, such as those whose machines already run; they replace the general choice."""
    rate_max_gbps: float | None = None
    """Highest rate of the transfer in Gbit/s, as the user limits it: no plan is faster, or pays for more."""
    routes_max: int | None = None
    """Maximum routes between gateways; ``None`` for any number. Only for one destination and one network tier."""
    closed_regions: Collection[Region] = ()
    """Regions without machines in any plan."""
    closed_links: Collection[tuple[Region, Region]] = ()
    """Links that no plan uses."""
    machines_setting: str = "--max-vms"
    """Name of the setting for `machines_per_region`, for hints."""


@dataclass(frozen=True, slots=True)
class MachineOption:
    """One machine type in one pool, in data Gbit/s (caps divided by the compression ratio)."""

    pool: int
    offer: MachineOffer
    egress_gbps: float
    ingress_gbps: float
    usd_per_s: float
    read_gbps: float
    """Read rate of the region's object store; infinite if unknown."""
    write_gbps: float
    network_tier: NetworkTier | None = None
    """None in a cloud without a choice."""


@dataclass(frozen=True, slots=True, eq=False)
class FlowNetwork:
    """Usable pools, links and machines. Arrays over links have one entry per ordered pair of pools with data.

    A pool is the machines of a region. A region that may have both network tiers has two: one per tier.
    """

    regions: tuple[Region, ...]
    """Region of each pool. Pools of the standard tier beside one of the premium tier come last."""
    tiers: tuple[NetworkTier | None, ...]
    """Network tier of each pool; None in a cloud without a choice."""
    index: Mapping[Region, int]
    """Pool of each region; of two, that of the premium tier."""
    tail: IntArray
    head: IntArray
    link_gbps: FloatArray
    usd_per_gb: FloatArray
    """Price of the first GB; `counts` has the further tiers."""
    options: tuple[MachineOption, ...]
    machines_max: IntArray
    """Maximum machines per pool. Two pools of a region share it."""
    connections_per_machine: int
    boot_s: float
    """Longest start time of the offered machine types: no plan waits longer."""
    counts: tuple[TierCount, ...] = ()
    """Billing counts of the links whose price has tiers."""
    held_by_quota: frozenset[int] = frozenset()
    """Pools whose `machines_max` is the account's quota, not the user's limit."""
    compression_ratio: float = 1.0
    """Bytes on the wire per byte of data. Rates and prices are per byte of data already."""

    @property
    def region_count(self) -> int:
        """Number of regions: the pools before those of the standard tier beside another one."""
        return len(self.index)

    @property
    def has_tiers(self) -> bool:
        """True if a region may have both network tiers."""
        return len(self.regions) > self.region_count

    def pools_of(self, pool: int) -> tuple[int, ...]:
        """Return all pools of the region of a pool, that of the premium tier first."""
        region = self.regions[pool]
        more = (other for other in range(self.region_count, len(self.regions)) if self.regions[other] == region)
        return (self.index[region], *more)

    @property
    def first_pools(self) -> IntArray:
        """Number of the region's first pool, per pool."""
        return np.array([self.index[region] for region in self.regions], dtype=np.int64)

    def exceeds_limits(self, machines: IntArray | FloatArray) -> bool:
        """Return whether a region has more machines, given per option, than it may have in all its pools together."""
        used = np.bincount(self.first_pools[self.pool_of_option], machines, minlength=len(self.regions))
        return bool(np.any(used > self.machines_max))

    def served(self, machines: IntArray, links: IntArray) -> NDArray[np.bool_]:
        """Return for each of these links whether the machines, per option, have one at each end."""
        manned = np.zeros(len(self.regions), dtype=bool)
        manned[self.pool_of_option[machines > 0]] = True
        served: NDArray[np.bool_] = manned[self.tail[links]] & manned[self.head[links]]
        return served

    @property
    def pool_of_option(self) -> IntArray:
        """Pool of each machine option. The machines of a pool are of one option."""
        return np.array([option.pool for option in self.options], dtype=np.int64)

    @property
    def boot_times_s(self) -> tuple[float, ...]:
        """Return all start times of the offered machine types, shortest first."""
        return tuple(sorted({option.offer.machine.boot_s for option in self.options}))

    def boots_at(self, pool: int) -> tuple[float, ...]:
        """Return the same for one pool."""
        return tuple(sorted(o.offer.machine.boot_s for o in self.options if o.pool == pool))

    def with_boot_within(self, boot_s: float) -> FlowNetwork:
        """Return this network with only the machine types that start within ``boot_s``; link numbers stay the same."""
        options = tuple(o for o in self.options if o.offer.machine.boot_s <= boot_s)
        return replace(self, options=options, boot_s=boot_s)

    def link_between(self, src: int, dst: int) -> int | None:
        """Return the position of the link between two pools, if it exists."""
        found = np.flatnonzero((self.tail == src) & (self.head == dst))
        return int(found[0]) if found.size else None


def build_network(
    catalog: Catalog, limits: PlanningLimits, *, regions: Collection[Region] | None = None
) -> FlowNetwork:
    """Build a network from ``catalog``: the regions with a grid, a price and a machine.

    Args:
        catalog: source of all figures.
        limits: the user's and the account's limits.
        regions: restricts the overlay to these; ``None`` for all of the grid.
    """
    names = catalog.grid.regions() if regions is None else tuple(sorted(regions))
    names = tuple(r for r in names if _machines_max(catalog, r, limits) > 0 and _offers(catalog, r, limits))
    tiers_of = {region: _network_tiers(catalog, region, limits) for region in names}
    pools = [(region, tiers_of[region][0]) for region in names]
    pools += [(region, tier) for region in names for tier in tiers_of[region][1:]]
    ratio = limits.compression_ratio
    tail: list[int] = []
    head, gbps, price = [], [], []
    tiered: dict[BillingCount, tuple[EgressPrice, list[int]]] = {}
    seen_gb = sent_gb(catalog, limits)
    for src, dst, known in _links(catalog, pools):
        ends = pools[src][0], pools[dst][0]
        link, egress = known.grid.links[ends], known.egress(*ends)
        if link.gbps < GBPS_MIN or egress is None or ends in limits.closed_links:
            continue
        key = (known.egress_account(*ends, egress), egress.tiers)
        if len(egress.tiers) > 1:
            tiered.setdefault(key, (egress, []))[1].append(len(tail))
        tail.append(src)
        head.append(dst)
        gbps.append(link.gbps / ratio)
        used_gb = seen_gb.get(key, limits.monthly_egress_used_gb)
        price.append(egress.mean_usd_per_gb(0.0, used_gb) * ratio)
    options = tuple(_options(catalog, pools, limits))
    return FlowNetwork(
        regions=tuple(region for region, _ in pools),
        tiers=tuple(tier for _, tier in pools),
        index={region: position for position, region in enumerate(names)},
        tail=np.array(tail, dtype=np.int64),
        head=np.array(head, dtype=np.int64),
        link_gbps=np.array(gbps, dtype=np.float64),
        usd_per_gb=np.array(price, dtype=np.float64),
        options=options,
        machines_max=np.array([_machines_max(catalog, r, limits) for r, _ in pools], dtype=np.int64),
        compression_ratio=ratio,
        connections_per_machine=limits.connections_per_machine,
        boot_s=max((o.offer.machine.boot_s for o in options), default=0.0),
        counts=tuple(
            TierCount(
                key[0],
                egress,
                np.array(links, dtype=np.int64),
                len({tail[e] for e in links}),
                seen_gb.get(key, limits.monthly_egress_used_gb),
                ratio,
            )
            for key, (egress, links) in tiered.items()
        ),
        held_by_quota=frozenset(
            pool for pool, (r, _) in enumerate(pools) if _machines_max(catalog, r, limits) < _allowed(r, limits)
        ),
    )


def sent_gb(catalog: Catalog, limits: PlanningLimits) -> Mapping[BillingCount, float]:
    """Return the volume of each billing count at which a plan's prices begin.

    Volumes of regions that have the standard tier alone count there, whichever tier they are recorded for.
    """
    used_gb = limits.monthly_egress_used_gb
    alone = [src for src, _ in limits.egress_sent_gb if _network_tiers(catalog, src, limits) == ("standard",)]
    seen_gb = dict(catalog.with_standard_tier(alone).egress_used_gb(used_gb, limits.egress_sent_gb))
    standard = catalog.with_standard_tier([src for src, _ in limits.standard_sent_gb])
    for key, volume_gb in standard.egress_used_gb(0.0, limits.standard_sent_gb).items():
        seen_gb[key] = seen_gb.get(key, used_gb) + volume_gb
    return seen_gb


def _network_tiers(catalog: Catalog, region: Region, limits: PlanningLimits) -> tuple[NetworkTier | None, ...]:
    """Return the network tiers that machines in a region may have in a plan."""
    offered = catalog.network_tiers(region)
    if "standard" not in offered:
        return offered or (None,)
    wanted = limits.network_tier_of.get(region, limits.network_tiers)
    return offered if wanted == "best" else (wanted,)


def _links(catalog: Catalog, pools: Sequence[Pool]) -> Iterator[tuple[int, int, Catalog]]:
    """Yield the links between pools of two regions, each with the catalog that knows price and rate of its sender."""
    standard = catalog.with_standard_tier([region for region, tier in pools if tier == "standard"])
    found: dict[Region, list[int]] = {}
    for pool, (region, _) in enumerate(pools):
        found.setdefault(region, []).append(pool)
    for src, dst in catalog.grid.links:
        if src not in found or dst not in found or src == dst:
            continue
        for tail, head in itertools.product(found[src], found[dst]):
            yield tail, head, catalog if pools[tail][1] == "premium" else standard


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
    if region in limits.closed_regions:
        return 0
    return limits.per_region.get(region, limits.machines_per_region)


def _options(catalog: Catalog, pools: Sequence[Pool], limits: PlanningLimits) -> Iterator[MachineOption]:
    """Yield a machine option for each pool and machine type."""
    for pool, (region, tier) in enumerate(pools):
        for offer in _offers(catalog, region, limits):
            yield _option(catalog, pool, offer, region, limits, tier)


def _option(
    catalog: Catalog, pool: int, offer: MachineOffer, region: Region, limits: PlanningLimits, tier: NetworkTier | None
) -> MachineOption:
    store = catalog.stores.get(region.provider) if limits.store_limits else None
    ratio = limits.compression_ratio
    return MachineOption(
        pool=pool,
        offer=offer,
        egress_gbps=offer.machine.egress_gbps / ratio,
        ingress_gbps=offer.machine.ingress_gbps / ratio,
        usd_per_s=offer.usd_per_s,
        read_gbps=store.read_gbps if store else float("inf"),
        write_gbps=store.write_gbps if store else float("inf"),
        network_tier=tier,
    )
