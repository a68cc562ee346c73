"""Flows placed on proxies: where each one goes, and the prices of the regions in use."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.acceleration.services import service_port_of
from tradewind.acceleration.transparent import require_redirects
from tradewind.acceleration.wiring import (
    Wire,
    client_region,
    groups_of,
    joined_name,
    proxy_regions_of,
    wires_of,
)
from tradewind.engine.acceleration_kernels import ProxyKernel, within_kernels
from tradewind.engine.advising import advise_flows
from tradewind.engine.flows import problem_document, proxy_regions
from tradewind.errors import ConfigError
from tradewind.model.flows import FlowsFile, Sizes, WantedFlow, flows_from_document
from tradewind.model.ledger import MachinePrice
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region
from tradewind.model.toml import parse_toml
from tradewind.model.units import format_count
from tradewind.placement.place import place
from tradewind.placement.plan import PlacementPlan
from tradewind.placement.problem import PlacementProblem, problem_from_document

if TYPE_CHECKING:
    from tradewind.engine.ground import Ground
    from tradewind.model.catalog import Catalog
    from tradewind.placement.advice import Advice

__all__ = ["PlacedFlows", "place_for"]

#: Kind of the provider in whose world `here` is a machine of a region.
SKY = "sky"
#: Region of this machine elsewhere. No machine is in it.
HERE_REGION = Region("local", "here")


@dataclass(frozen=True, slots=True)
class PlacedFlows:
    """Flows, their placement, and the prices of its regions."""

    flows: FlowsFile
    problem: PlacementProblem
    plan: PlacementPlan
    wires: tuple[Wire, ...]
    home: str
    regions: Mapping[str, str]
    """Region of each proxy, by name."""
    machines: Mapping[str, MachinePrice]
    """Price of a machine, by region."""
    egress_usd_per_gb: Mapping[str, float]
    advice: Advice | None = None
    """The measurements, and the gain from tuning the ends, which is free; None in a sky."""

    @property
    def entrances(self) -> dict[str, str]:
        """Region of each entrance on another host, by name."""
        return {wire.entrance: wire.entrance_region for wire in self.wires if wire.entrance_region is not None}

    @property
    def others(self) -> dict[str, str]:
        """Region of each gateway but that at home, by name."""
        return {**self.regions, **self.entrances}

    @property
    def usd_per_hour(self) -> float:
        """Price of all machines."""
        return 3600 * sum(self.machines[region].usd_per_s for region in self.others.values())


def place_for(text: str, where: str, ground: Ground, kernels: Iterable[ProxyKernel] = ()) -> PlacedFlows:
    """Return the placement of a flows file's content on the machines of `ground`.

    `kernels` are those of proxies that run there or did: no proxy is assumed to have larger windows. Raises
    ConfigError, UsageError.
    """
    flows, catalog = flows_from_document(parse_toml(text.encode(), where), where), ground.catalog
    if any(flow.way_in == "transparent" for flow in flows.flows):
        require_redirects()
    in_sky = ground.provider["kind"] == SKY
    hosts = client_hosts(flows, ground, where)
    regions = proxy_regions(flows, catalog, None, where) if in_sky else _offered_regions(flows, catalog, where)
    if not flows.regions:
        # The gateway on a host of flows is their entrance. A proxy beside it would gain nothing.
        regions = tuple(region for region in regions if region not in hosts)
        if not regions:
            raise ConfigError(f"{where}: no region is left for proxies", hint="name them in `regions`")
    advice = None
    if not in_sky:
        # Before the placement: it uses the round trips that were measured.
        advice = advise_flows(replace(flows, regions=regions), where, catalog, None, "auto", None)
        known = {flow.name: flow.rtt_ms for flow in advice.flows}
        flows = replace(flows, flows=tuple(replace(flow, rtt_ms=known[flow.name]) for flow in flows.flows))
    joined = replace(flows, flows=tuple(_joined(group) for group in groups_of(flows.flows, where)))
    problem = problem_from_document(problem_document(joined, catalog, regions, where), where)
    problem = within_kernels(problem, kernels)
    plan = place(problem, "auto", None)
    used = proxy_regions_of(plan)
    prices = {}
    for region in {*used.values(), *map(str, hosts)}:
        offers = [offer for offer in catalog.machine_offers(Region.parse(region)) if not offer.spot]
        cheapest = min(offers, key=lambda offer: offer.usd_per_hour)
        prices[region] = MachinePrice(cheapest.usd_per_s, str(cheapest.origin), cheapest.machine.billed_s_min)
    egress = {region.name: region.egress_cents_per_gb / 100 for region in problem.regions}
    wires = wires_of(flows.flows, plan, where)
    home = _home(flows, hosts, where) if in_sky else str(HERE_REGION)
    return PlacedFlows(flows, problem, plan, wires, home, used, prices, egress, advice)


def _joined(group: Sequence[WantedFlow]) -> WantedFlow:
    """Return the flows to one destination as one flow: the largest one's, with the bytes of all."""
    largest, *others = group
    if not others:
        return largest
    # As bytes of one period, because the flows may repeat differently.
    whole_bytes = math.ceil(math.fsum(flow.period_bytes for flow in group))
    transfers = max(1, round(sum(flow.transfers for flow in group)))
    sizes = Sizes(max(1, whole_bytes // transfers), transfers)
    return replace(largest, name=joined_name(group), sizes=(sizes,), times=1.0)


def _offered_regions(flows: FlowsFile, catalog: Catalog, where: str) -> tuple[Region, ...]:
    """Return the regions of proxies: those of the file, else all with machines. Raises ConfigError."""
    offered = sorted(catalog.region_offers)
    for region in flows.regions:
        if region not in offered:
            known = ", ".join(map(str, offered)) or "none"
            raise ConfigError(f"{where}: regions: no machines are offered in {region}", hint=f"machines: {known}")
    return tuple(dict.fromkeys(flows.regions)) or tuple(offered)


def client_hosts(flows: FlowsFile, ground: Ground, where: str) -> tuple[Region, ...]:
    """Return the regions of the other hosts and clusters that open connections of flows. Raises ConfigError if one is
    none of the user, or if its region has several, because nothing would say on which of them the flows enter.
    """
    counts, clusters, found = host_counts(ground), cluster_counts(ground), dict[Region, None]()
    for flow in flows.flows:
        region = client_region(flow, f"{where}: flow {flow.name}")
        if region is None:
            continue
        found[region] = None
        _require_one(counts[str(region)], clusters[str(region)], region, f"{where}: flow {flow.name}")
        _require_place(flow, str(region) in clusters, f"{where}: flow {flow.name}")
        if not ground.catalog.machine_offers(region):
            raise ConfigError(
                f"{where}: flow {flow.name}: the host in {region} was not there when the acceleration started",
                hint="`accelerate down`, then `up` with these flows, asks the hosts again",
            )
    return tuple(found)


def _require_one(hosts: int, clusters: int, region: Region, place: str) -> None:
    """Raise ConfigError unless the region has one host, or one cluster."""
    if hosts + clusters == 1:
        return
    counts = [format_count(hosts, "host")] * (hosts > 0) + [format_count(clusters, "cluster")] * (clusters > 0)
    raise ConfigError(
        f"{place}: its connections begin in {region}, where the configuration has {' and '.join(counts) or 'no host'}",
        hint="give the host or cluster that opens them a region of its own, or run `up` on it",
    )


def _require_place(flow: WantedFlow, is_cluster: bool, place: str) -> None:
    """Raise ConfigError if a flow does not enter at a Service of its cluster, or at an address of its host."""
    if flow.listen is None or is_cluster == (service_port_of(flow.listen) is not None):
        return
    if is_cluster:
        raise ConfigError(
            f"{place}: listen {flow.listen!r} is not a Service, and programs of a cluster reach no other address",
            hint='name one, which Tradewind makes, and its port: for example listen = "backup:8443"',
        )
    raise ConfigError(f"{place}: listen {flow.listen!r} has no IP address", hint="for example 127.0.0.1:8443")


def host_counts(ground: Ground) -> Counter[str]:
    """Return the number of the user's hosts in each region: machines of a sky, or hosts by SSH, but not rented ones."""
    if ground.provider["kind"] == SKY:
        from tradewind.sky.file import read_sky_file

        return Counter(str(machine.region) for machine in read_sky_file(ground.provider["file"]).machines)
    return Counter(host["region"] for document in _documents(ground, "ssh") for host in document["hosts"])


def cluster_counts(ground: Ground) -> Counter[str]:
    """Return the number of the user's clusters in each region."""
    return Counter(one["region"] for document in _documents(ground, "kubernetes") for one in document["clusters"])


def _documents(ground: Ground, kind: str) -> list[Mapping[str, Any]]:
    """Return the documents of the providers of a kind."""
    members = ground.provider.get("members") or [{"provider": ground.provider}]
    return [member["provider"] for member in members if member["provider"]["kind"] == kind]


def _home(flows: FlowsFile, hosts: Collection[Region], where: str) -> str:
    """Return the region of this machine in a sky. Without flows of its own, it is beside one that has some."""
    ends = [end for flow in flows.flows for end in (flow.source, flow.destination) if end.is_here]
    regions = {str(end.region) for end in ends if end.region is not None}
    if not ends:
        return str(min(hosts))
    if len(regions) != 1:
        raise ConfigError(
            f"{where}: this machine (`here`) is in {'several regions' if regions else 'no region'}",
            hint="in a sky, give each flow of this machine the same source_region or destination_region",
        )
    return regions.pop()
