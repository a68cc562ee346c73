"""Flows files, compiled to placement problems with the catalog's prices and round trips."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tradewind.catalog.modelled import RTT_BASE_MS, RTT_MS_PER_KM, distance_km
from tradewind.errors import ConfigError
from tradewind.fleet.site_catalog import NOWHERE
from tradewind.model.catalog import Catalog
from tradewind.model.flows import HERE, FlowEnd, FlowsFile, WantedFlow
from tradewind.model.machine import MachineOffer
from tradewind.model.records import replace
from tradewind.model.region import Region, RegionInfo
from tradewind.model.sites import Sites
from tradewind.model.units import SECONDS_PER_HOUR
from tradewind.placement.problem import CLOUD_WINDOW_BYTES, EDGE_WINDOW_BYTES

__all__ = ["direct_rtt_ms", "problem_document", "proxy_regions"]

#: Round trip between a host in a region and a proxy in the same region [ms].
SAME_REGION_RTT_MS = 1.0
#: Provider of places outside the clouds.
OUTSIDE = "site"
CENTS_PER_USD = 100.0
MBITS_PER_GBIT = 1e3
PRICE_HINT = "`tradewind catalog show` lists all regions; `catalog import` adds prices"


def proxy_regions(flows: FlowsFile, catalog: Catalog, sites: Sites | None, place: str) -> tuple[Region, ...]:
    """Return the regions where proxies may run: those of the file, else those of the configured clouds.

    Raises ConfigError if there are none, or if the catalog does not know one.
    """
    if flows.regions:
        for region in flows.regions:
            _refuse_unknown(region, catalog, f"{place}: regions")
        return tuple(dict.fromkeys(flows.regions))
    found = tuple(region for region in sorted(catalog.places) if sites and sites.has(str(region)))
    if not found:
        raise ConfigError(
            f"{place}: regions is missing, and no cloud is configured",
            hint='for example regions = ["aws:us-east-1", "aws:eu-west-1"]',
        )
    return found


def _refuse_unknown(region: Region | None, catalog: Catalog, place: str) -> None:
    """Raise ConfigError if the catalog does not know the region."""
    if region is None or region in catalog.places:
        return
    near = catalog.nearest_names(region)
    hint = f"did you mean {' or '.join(near)}?" if near else PRICE_HINT
    raise ConfigError(f"{place}: unknown region {region}", hint=hint)


def problem_document(flows: FlowsFile, catalog: Catalog, regions: Sequence[Region], place: str) -> dict[str, Any]:
    """Return the placement problem of a flows file as a JSON object (docs/reference/placement-problem.md).

    A flow's transfers become one flow with their bytes together: they run one after the other on the same path, so time
    and egress add up. Raises ConfigError for a missing price or round trip.
    """
    targets = [info for flow in flows.flows for info in _targets(flow.destination, catalog)]
    shared = _last_miles_mbps(flows) if flows.shared_last_miles else {}
    return {
        "regions": [_region(flows, catalog, region, regions, targets, place) for region in regions],
        "rtt_ms": [[_between_ms(flows, catalog, a, b, place) for b in regions] for a in regions],
        "flows": [_flow(flow, catalog, regions, place) | _hosts(flow, shared) for flow in flows.flows],
        "edge_window_bytes": flows.window_bytes or EDGE_WINDOW_BYTES,
        "cloud_window_bytes": flows.proxy_window_bytes or CLOUD_WINDOW_BYTES,
        "budget_cents": flows.budget_usd * CENTS_PER_USD,
        **({"shared_last_miles": True} if shared else {}),
        **({"slow_start": True} if flows.slow_start else {}),
        **({"proxy_congestion_control": control} if (control := flows.proxy_congestion_control) != "bbr" else {}),
    }


def _host(end: FlowEnd) -> str | None:
    """Return the name of an end that is one host; None for a region, which is many."""
    if end.is_here:
        return HERE
    return None if end.address is None else end.address[0]


def _last_miles_mbps(flows: FlowsFile) -> dict[tuple[str, str], float | None]:
    """Return the last mile of each host by side: the lowest rate that a flow gives; None if none gives one."""
    rates: dict[tuple[str, str], list[float]] = {}
    for flow in flows.flows:
        for side, end in (("src", flow.source), ("dst", flow.destination)):
            if (host := _host(end)) is not None:
                rates.setdefault((side, host), []).extend([] if end.rate_mbps is None else [end.rate_mbps])
    return {key: min(given, default=None) for key, given in rates.items()}


def _hosts(flow: WantedFlow, last_miles_mbps: Mapping[tuple[str, str], float | None]) -> dict[str, Any]:
    """Return the hosts of a flow that have a shared last mile, and its rate."""
    found: dict[str, Any] = {}
    for side, end in (("src", flow.source), ("dst", flow.destination)):
        host = _host(end)
        if host is not None and (side, host) in last_miles_mbps:
            found |= {f"{side}_host": host, f"{side}_last_mile_mbps": last_miles_mbps[side, host]}
    return found


def direct_rtt_ms(flow: WantedFlow, catalog: Catalog, place: str) -> float:
    """Return the round trip between the ends of a flow [ms], as given, else by their places. Raises ConfigError."""
    if flow.rtt_ms is not None:
        return flow.rtt_ms
    for end, other in ((flow.source, flow.destination), (flow.destination, flow.source)):
        if end.region is not None and end.region in other.rtt_ms:
            return other.rtt_ms[end.region]
    a, b = _info(flow.source, catalog), _info(flow.destination, catalog)
    rtt_ms = None if a is None or b is None else _rtt_ms(catalog, a, b)
    if rtt_ms is None:
        for end in (flow.source, flow.destination):
            _refuse_unknown(end.region, catalog, f"{place}: flow {flow.name}")
        side = "source" if a is None else "destination"
        raise ConfigError(
            f"{place}: flow {flow.name}: rtt_ms is missing",
            hint=f"give rtt_ms, or say where the {side} is: {side}_region or {side}_at",
        )
    return rtt_ms


def _region(
    flows: FlowsFile,
    catalog: Catalog,
    region: Region,
    regions: Collection[Region],
    targets: Sequence[RegionInfo],
    place: str,
) -> dict[str, Any]:
    offer = _offer(flows, catalog, region, place)
    hours = (flows.machine_s or flows.period_s) / SECONDS_PER_HOUR
    others = [catalog.places[other] for other in regions if other != region]
    return {
        "name": str(region),
        "capacity_mbps": offer.machine.egress_gbps * MBITS_PER_GBIT,
        "setup_cents": offer.usd_per_hour * hours * CENTS_PER_USD,
        "egress_cents_per_gb": _egress_cents(catalog, region, [*others, *targets], place),
        "max_instances": flows.max_instances,
    }


def _offer(flows: FlowsFile, catalog: Catalog, region: Region, place: str) -> MachineOffer:
    """Return the cheapest machine of a region that may be a proxy. Spot machines may end at any time: never one."""
    offers = [offer for offer in catalog.machine_offers(region) if not offer.spot]
    allowed = [offer for offer in offers if not flows.machine_types or offer.machine.name in flows.machine_types]
    if not allowed:
        known = ", ".join(sorted({offer.machine.name for offer in offers})) or "none"
        raise ConfigError(f"{place}: no machine type for proxies in {region} is known", hint=f"known there: {known}")
    return min(allowed, key=lambda offer: (offer.usd_per_hour, offer.machine.name))


def _egress_cents(catalog: Catalog, region: Region, targets: Sequence[RegionInfo], place: str) -> float:
    """Return the price of a GB out of a region: the highest to any target, so that the budget is never exceeded."""
    prices = []
    for info in targets:
        known = info.region in catalog.places
        price = catalog.egress(region, info.region) if known else catalog.prices.egress(catalog.places[region], info)
        if price is not None:
            prices.append(price.usd_per_gb)
    if not prices and catalog.places[region].continent == NOWHERE:
        return 0.0  # As between hosts: no price list has their place.
    if not prices:
        raise ConfigError(f"{place}: no price of egress out of {region} is known", hint=PRICE_HINT)
    return max(prices) * CENTS_PER_USD


def _flow(flow: WantedFlow, catalog: Catalog, regions: Sequence[Region], place: str) -> dict[str, Any]:
    where = f"{place}: flow {flow.name}"
    return {
        "id": flow.name,
        "size_bytes": flow.period_bytes,
        "src_last_mile_mbps": flow.source.rate_mbps,
        "dst_last_mile_mbps": flow.destination.rate_mbps,
        "rtt_direct_ms": direct_rtt_ms(flow, catalog, place),
        "rtt_src_to_region_ms": [_end_ms(flow.source, "source", catalog, each, where) for each in regions],
        "rtt_region_to_dst_ms": [_end_ms(flow.destination, "destination", catalog, each, where) for each in regions],
        "src_region": None if flow.source.region is None else str(flow.source.region),
        "dst_region": None if flow.destination.region is None else str(flow.destination.region),
        **({"loss": flow.loss, "congestion_control": flow.congestion_control} if flow.loss else {}),
    }


def _end_ms(end: FlowEnd, side: str, catalog: Catalog, region: Region, place: str) -> float:
    """Return the round trip between an end and a region [ms]."""
    if region in end.rtt_ms:
        return end.rtt_ms[region]
    info = _info(end, catalog)
    rtt_ms = None if info is None else _rtt_ms(catalog, info, catalog.places[region])
    if rtt_ms is None:
        raise ConfigError(
            f"{place}: {side}_rtt_ms has no round trip to {region}",
            hint=f"add it, or say where the {side} is: {side}_region or {side}_at",
        )
    return rtt_ms


def _between_ms(flows: FlowsFile, catalog: Catalog, a: Region, b: Region, place: str) -> float:
    """Return the round trip between two regions [ms]. If nothing says it, assume the shortest way over an end."""
    if a not in catalog.places or b not in catalog.places:
        raise ConfigError(f"{place}: unknown region {a if a not in catalog.places else b}", hint=PRICE_HINT)
    rtt_ms = _rtt_ms(catalog, catalog.places[a], catalog.places[b])
    if rtt_ms is not None:
        return rtt_ms
    ends = [end.rtt_ms for flow in flows.flows for end in (flow.source, flow.destination)]
    over = [there[a] + there[b] for there in ends if a in there and b in there]
    if not over:
        raise ConfigError(
            f"{place}: no round trip between {a} and {b} is known",
            hint="give one flow the round trips to both: source_rtt_ms or destination_rtt_ms",
        )
    return min(over)


def _rtt_ms(catalog: Catalog, a: RegionInfo, b: RegionInfo) -> float | None:
    """Return the round trip between two places [ms]: that of the grid, else by distance; None if a place is unknown."""
    if a.region == b.region and a.region in catalog.places:
        return SAME_REGION_RTT_MS
    link = catalog.grid.link(a.region, b.region)
    if link is not None and link.rtt_ms is not None:
        return link.rtt_ms
    if NOWHERE in (a.continent, b.continent):
        return None
    return RTT_BASE_MS + RTT_MS_PER_KM * distance_km(a, b)


def _targets(end: FlowEnd, catalog: Catalog) -> list[RegionInfo]:
    """Return where traffic to an end may go, for its price. A host is outside the clouds, even if it is near a region.

    If nothing says where it is, it may be anywhere.
    """
    info = _info(end, catalog)
    if info is None:
        return [replace(each, region=Region(OUTSIDE, end.text)) for each in catalog.places.values()]
    return [info] if end.address is None and not end.is_here else [replace(info, region=Region(OUTSIDE, end.text))]


def _info(end: FlowEnd, catalog: Catalog) -> RegionInfo | None:
    """Return where an end is; None if nothing says so. Coordinates get the continent of the nearest region."""
    if end.at is None:
        return None if end.region is None else catalog.places.get(end.region)
    latitude, longitude = end.at
    here = RegionInfo(Region(OUTSIDE, end.text), end.text, latitude, longitude, "")
    nearest = min(catalog.places.values(), key=lambda info: distance_km(here, info))
    return replace(here, continent=nearest.continent)
