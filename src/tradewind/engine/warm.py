"""Warm fleets: start one, and find one for a transfer, with the catalog of its machines."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.engine.ground import Ground, ground_of_sites
from tradewind.errors import GatewayError, TradewindError, UsageError
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.fleet_records import FleetRecord
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import ANY_TYPE, FLEET_TAG, Keepable, Offer, Provider
from tradewind.fleet.providers import make_provider
from tradewind.fleet.settings import FleetSettings
from tradewind.fleet.warm import MARGIN_S, WARM_PURPOSE, Keeping, WarmBook, WarmMachine
from tradewind.gateway.owner import TOKEN_S
from tradewind.model.goal import Cheapest, Deadline, Goal, MinThroughput
from tradewind.model.plan import Plan, PlannedGateway, PlannedRoute
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region
from tradewind.model.units import SECONDS_PER_HOUR, format_count, format_duration, format_usd

if TYPE_CHECKING:
    from tradewind.engine.job_control import JobControl
    from tradewind.model.catalog import Catalog
    from tradewind.model.machine import MachineOffer
    from tradewind.model.network_tier import NetworkTier, NetworkTierChoice
    from tradewind.model.sites import Sites

__all__ = [
    "IDLE_S",
    "KEPT_S",
    "KEPT_S_MAX",
    "WarmGround",
    "WarmUp",
    "require_kept",
    "warm_ground",
    "warm_up",
    "why_not_warm",
    "why_other_tier",
]

#: Default time after which unused machines of a warm fleet end.
IDLE_S = 1800.0
#: Default time after which a warm fleet ends, used or not.
KEPT_S = 4 * SECONDS_PER_HOUR
#: Maximum of both: a gateway accepts no longer lease.
KEPT_S_MAX = 24 * SECONDS_PER_HOUR
#: Minimum of both.
KEPT_S_MIN = 60.0
#: A warm fleet is used only for transfers that are planned to take at most this part of its time.
TIME_FACTOR = 2.0
#: It is used unless rented machines are faster by more than this factor, their start included.
WORSE_FACTOR = 1.25


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A warm fleet that can be started, and its cost. Each machine costs `usd_per_hour` of its region."""

    control: JobControl
    provider: Mapping[str, Any]
    machines: Mapping[str, WarmMachine]
    idle_s: float
    kept_s: float
    notes: tuple[str, ...] = ()

    @property
    def usd_per_hour(self) -> float:
        """Price of all machines."""
        return sum(one.usd_per_s for one in self.machines.values()) * SECONDS_PER_HOUR

    @property
    def usd_most(self) -> float:
        """The most that it costs, if it is used until its end."""
        return sum(one.usd_per_s * max(self.kept_s, one.billed_s_min) for one in self.machines.values())

    def __str__(self) -> str:
        regions = Counter(one.region for one in self.machines.values())
        where = ", ".join(f"{count} in {region}" for region, count in regions.items())
        price = f"{format_usd(self.usd_per_hour)} per hour, at most {format_usd(self.usd_most)}"
        return f"{format_count(len(self.machines), 'machine')} ({where}), {price}"

    def start(self, report: Callable[[str], None]) -> str:
        """Start the machines, and return the id of their fleet when all of them answer. Raises GatewayError."""
        journal = FleetJournal(self.control.store.state_dir)
        keeping = Keeping(round(self.idle_s), time.time() + self.kept_s, self.machines)
        # A machine that never boots must not cost more than was agreed to.
        ready_s = min(TOKEN_S, self.kept_s)
        settings = FleetSettings(lease_s=keeping.lease_s(self.idle_s), ready_s=ready_s, led=False, keeping=keeping)
        fleet = Fleet(
            make_provider(self.provider, self.control.gateway, journal),
            journal,
            _plan(self.machines),
            self.control.gateway,
            purpose=WARM_PURPOSE,
            settings=settings,
            report=report,
        )
        try:
            fleet.close()
        except BaseException:
            fleet.close(grace_s=0.0)  # Nobody has been told of machines that would run until their leases expire.
            raise
        if not fleet.is_given_back:
            raise GatewayError("no machine of the warm fleet could be kept; all of them were ended")
        return fleet.id


def _plan(machines: Mapping[str, WarmMachine]) -> Plan:
    """Return a plan that needs these machines. No byte moves: each route begins and ends at one machine."""
    gateways = tuple(PlannedGateway(name, one.region) for name, one in machines.items())
    routes = tuple(PlannedRoute((name, name), 1 / len(gateways)) for name in machines)
    return Plan(gateways, (), routes, lead=gateways[0].name)


def warm_up(
    control: JobControl, sites: Sites, regions: Sequence[str], *, machines: int, idle_s: float, kept_s: float
) -> WarmUp:
    """Return a warm fleet with the cheapest machines of these regions. Asks the providers.

    Raises UsageError, GatewayError.
    """
    from tradewind.planner.routes import region_name

    for what, seconds in (("--idle", idle_s), ("--lease", kept_s)):
        if not KEPT_S_MIN <= seconds <= KEPT_S_MAX:
            raise UsageError(f"{what} is a time from 1min to 24h")
    if machines < 1:
        raise UsageError("a warm fleet has at least one machine per region")
    for text in regions:
        if not sites.has(text):
            raise UsageError(f"the configuration has no machine in {text}", hint=f"it has {sites.describe()}")
    wanted = [Region.parse(text) for text in dict.fromkeys(regions)]
    ground = ground_of_sites(control, sites, wanted)
    require_kept(make_provider(ground.provider, control.gateway, FleetJournal(control.store.state_dir)), wanted, kept_s)
    found: dict[str, WarmMachine] = {}
    for region in wanted:
        offer = min(ground.catalog.machine_offers(region), key=lambda one: (one.usd_per_s, one.spot))
        for number in range(1, machines + 1):
            found[f"{region_name(region)}-{number}"] = _machine(region, offer, sites.network_tier(region, None))
    return WarmUp(control, ground.provider, found, idle_s, kept_s, ground.notes)


def require_kept(provider: Provider, regions: Sequence[Region], kept_s: float) -> None:
    """Raise UsageError if machines of a region cannot be kept for this time. Starts nothing."""
    for region in regions:
        most_s = provider.kept_s_max(str(region)) if isinstance(provider, Keepable) else math.inf
        if most_s <= 0:
            raise UsageError(
                f"machines in {region} call home, so a later command does not reach them",
                hint="warm fleets need machines to which this machine can connect",
            )
        if most_s < kept_s:
            raise UsageError(
                f"machines in {region} end after {format_duration(most_s)}, whatever their lease says",
                hint=f"--lease {math.floor(most_s)}s is the longest there",
            )


def _machine(region: Region, offer: MachineOffer, tier: NetworkTier | None) -> WarmMachine:
    from tradewind.fleet.site_catalog import HOST

    machine = offer.machine
    kind = None if machine.name == HOST else machine.name
    caps = machine.egress_gbps, machine.ingress_gbps
    price = offer.usd_per_s, str(offer.origin)
    return WarmMachine(str(region), kind, offer.spot, *price, *caps, tier, machine.billed_s_min)


@dataclass(frozen=True, slots=True)
class WarmGround:
    """A warm fleet that nobody uses, and what a plan can place on it."""

    fleet: str
    ground: Ground
    ends_unix_s: float
    why_not: str | None = None
    """Why the transfer may not use it; None if it may."""

    def lasts(self, time_s: float) -> bool:
        """Return whether its machines are there for a transfer of this time, even if it takes longer than planned."""
        return self.ends_unix_s - time.time() >= TIME_FACTOR * time_s + KEPT_S_MIN


def warm_ground(
    control: JobControl, sites: Sites, regions: Sequence[Region], tier: NetworkTierChoice | None
) -> WarmGround | None:
    """Return the warm fleet with the most living machines in all these regions; None if there is none.

    Fleets in the network tier that the user wants come first: `tier`, or without it the one that the sites configure.
    """
    from tradewind.catalog.load import catalog_folder, load_catalog
    from tradewind.model.reach import unconnected

    journal = FleetJournal(control.store.state_dir)
    base = load_catalog(catalog_folder(control.store.state_dir))
    book, best = WarmBook(journal), None
    for record in book.free():
        machines = _living(control, journal, record, book)
        counts = Counter(one.region for one in machines.values())
        if not all(counts[str(region)] for region in regions):
            continue
        why_not = why_other_tier(machines.values(), sites, base, tier)
        rank = why_not is None, len(machines)
        if best is None or rank > best[0]:
            best = rank, record, machines, why_not
    if best is None:
        return None
    _, record, machines, why_not = best
    keeping = book.keeping(record.id)
    assert keeping is not None  # It has machines.
    catalog = _catalog(machines, base)
    catalog = catalog.without_links(unconnected(sites, catalog.places))
    most = max(Counter(one.region for one in machines.values()).values())
    tiers = {Region.parse(one.region): one.network_tier for one in machines.values() if one.network_tier is not None}
    ground = Ground(record.provider, catalog, most, network_tiers=tiers)
    return WarmGround(record.id, ground, keeping.ends_unix_s, why_not)


def why_other_tier(
    machines: Iterable[WarmMachine], sites: Sites, catalog: Catalog, tier: NetworkTierChoice | None
) -> str | None:
    """Return which machines are in a network tier that the user does not want; None if there are none.

    With `best` each tier will do. A region that has only the premium tier is right in each case.
    """
    for one in machines:
        region = Region.parse(one.region)
        wanted = sites.network_tier(region, tier) or tier
        if one.network_tier in (None, wanted) or wanted in (None, "best"):
            continue
        if wanted in catalog.network_tiers(region):
            return f"its machines in {region} send in the {one.network_tier} network tier, not in the {wanted} one"
    return None


def why_not_warm(goal: Goal | None, warm: Plan, rented: Plan) -> str | None:
    """Return why rented machines are clearly better for a goal than those of a warm fleet; None if they are not.

    Where the goal is a price, the machines of the warm fleet count as paid: they run anyway.
    """
    if warm.overlay is None or rented.overlay is None:
        return None
    if isinstance(goal, (Cheapest, MinThroughput, Deadline)):
        more_usd = warm.overlay.cost.total_usd - warm.overlay.cost.machines_usd
        if more_usd > rented.overlay.cost.total_usd:
            there = format_usd(rented.overlay.cost.total_usd)
            return f"it costs {format_usd(more_usd)} besides its machines, and new machines cost {there} in all"
        return None
    if warm.overlay.time_s > WORSE_FACTOR * rented.overlay.time_s:
        times = [format_duration(plan.time_s) for plan in (warm.overlay, rented.overlay)]
        return f"it takes {times[0]}, and new machines take {times[1]} with their start"
    return None


def _living(control: JobControl, journal: FleetJournal, record: FleetRecord, book: WarmBook) -> dict[str, WarmMachine]:
    """Return the machines that a plan can count on: of each region those before the first that has ended, because a
    plan uses the first ones.
    """
    try:
        keeping = book.keeping(record.id)
        provider = make_provider(record.provider, control.gateway, journal)
        lapses, soon_s = journal.lease_ends(record.id), time.time() + MARGIN_S
        listed = provider.machines({FLEET_TAG: record.id})
        living = {one.name for one in listed if not one.ended and lapses.get(one.name, soon_s) >= soon_s}
    except TradewindError:
        return {}
    ended: set[str] = set()
    found = {}
    for name, machine in ({} if keeping is None else keeping.machines).items():
        if name in living and machine.region not in ended:
            found[name] = machine
        else:
            ended.add(machine.region)
    return found


def _catalog(machines: Mapping[str, WarmMachine], base: Catalog) -> Catalog:
    """Return the catalog of these machines. They have started, and their minimum time was paid."""
    from tradewind.fleet.site_catalog import Supply, site_catalog

    supplies: dict[Region, Supply] = {}
    counts = Counter(one.region for one in machines.values())
    for one in machines.values():
        offer = Offer(
            one.region,
            one.type or ANY_TYPE,
            one.spot,
            one.usd_per_s,
            one.price_source,
            egress_gbps=one.egress_gbps,
            ingress_gbps=one.ingress_gbps,
        )
        supplies[Region.parse(one.region)] = Supply((offer,), counts[one.region])
    catalog = site_catalog(supplies, base)
    offers = {
        region: tuple(replace(one, machine=replace(one.machine, boot_s=0.0, billed_s_min=0.0)) for one in found)
        for region, found in catalog.region_offers.items()
    }
    return replace(catalog, region_offers=offers)
