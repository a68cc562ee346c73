"""The launch of a job: its plan, its gateways, their provider, and everything else that resuming needs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tradewind.fleet.providers import LOCAL
from tradewind.fleet.settings import FleetSettings
from tradewind.gateway.process import READY_S
from tradewind.model.guest import GUEST, GUEST_JOIN_S, GUEST_REGION, Guest, before_port
from tradewind.model.job import lowest_limit
from tradewind.model.ledger import STANDARD_EDGE, EdgePrice, JobPrices, MachinePrice
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute, local_plan
from tradewind.model.records import dataclass, field, replace

if TYPE_CHECKING:
    from tradewind.engine.replan import PlanRequest
    from tradewind.engine.topology import Topology
    from tradewind.model.catalog import Catalog
    from tradewind.model.overlay import OverlayEdge, UnicastOverlay

__all__ = [
    "LaunchSpec",
    "guest_launch",
    "limited_launch",
    "local_launch",
    "plan_prices",
    "planned_launch",
    "provider_of_guest",
    "single_launch",
    "stored_launch",
    "topology_launch",
]

#: Timeout until a machine answers, as a multiple of the time that it usually takes.
BOOTS_PER_READY = 5.0
#: Source of the prices in a topology file.
BY_HAND_SOURCE = "price of the route in the topology"
#: Name of the gateway on this machine in a job with a guest, and the number of connections between the two.
HOST, GUEST_CONNECTIONS = "service", 8


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """How to launch a job. `document` is the topology as JSON, None for one process that is lead, source and sink."""

    plan: Plan
    document: Mapping[str, Any] | None = None
    provider: Mapping[str, Any] = field(default_factory=lambda: LOCAL)
    settings: FleetSettings = field(default_factory=FleetSettings)
    ceiling_usd: float | None = None
    """Ceiling on the cost of the job over all its runs: egress, machines and requests."""
    prices: JobPrices = field(default_factory=JobPrices)
    """Prices of machines, egress and requests, if the plan has them."""
    plan_request: PlanRequest | None = None
    """The request to the planner, if any; the plan's rates are then monitored."""
    replan: bool = False
    """True if the transfer may be replanned, and its routes changed, while the job runs."""
    warm: str | None = None
    """Id of the warm fleet whose machines the plan uses, if another job has not claimed it when this one starts."""
    is_early: bool = False
    """True if the plan was made while the source was being listed: its volume and cost are those of a part."""
    deadline_s: float | None = None
    """Time from the start of the job in which it must end [s], if the user set a deadline."""


def local_launch() -> LaunchSpec:
    """Return how to launch a job on this machine, without gateways elsewhere."""
    return LaunchSpec(local_plan())


def guest_launch(guest: Guest, ceiling_usd: float | None = None) -> LaunchSpec:
    """Return how to launch a job with a guest, which opens all connections to the gateways on this machine.

    The gateway that reads also leads, because only it sees the source. One gateway here reads or writes the other
    place; there is one more for each other address of this machine, which relays: each address is a route.
    """
    start, end = (GUEST, HOST) if guest.side == "source" else (HOST, GUEST)
    listen = {HOST: f"{guest.host}:0"}
    listen |= {f"relay-{number}": f"{before_port(address)}:0" for number, address in enumerate(guest.others, 1)}
    relays = [name for name in listen if name != HOST]
    routes = [(start, end), *((start, relay, end) for relay in relays)]
    regions = {GUEST: GUEST_REGION, **dict.fromkeys(listen, "site:local")}
    plan = Plan(
        tuple(PlannedGateway(name, regions[name]) for name in (start, end, *relays)),
        tuple(PlannedHop(*ends, GUEST_CONNECTIONS) for nodes in routes for ends in itertools.pairwise(nodes)),
        tuple(PlannedRoute(nodes, 1.0 / len(routes)) for nodes in routes),
        lead=start,
    )
    settings = FleetSettings(listen, ready_s=GUEST_JOIN_S, led=start == HOST)
    return LaunchSpec(plan, None, provider_of_guest(guest), settings, ceiling_usd)


def provider_of_guest(guest: Guest) -> dict[str, Any]:
    """Return the document of the provider of a job with a guest."""
    return {"kind": "guest", **guest.document()}


def limited_launch(launch: LaunchSpec, limit_bytes_per_s: int | None) -> LaunchSpec:
    """Return a launch whose later plans keep a maximum rate, too."""
    asked = launch.plan_request
    if asked is None:
        return launch
    limit = lowest_limit(asked.limit_bytes_per_s, limit_bytes_per_s)
    return replace(launch, plan_request=replace(asked, limit_bytes_per_s=limit))


def topology_launch(path: str) -> LaunchSpec:
    """Return how to launch the topology of a file on this machine. Raises TopologyError."""
    from tradewind.engine.topology import read_topology

    return _from_topology(read_topology(path), LOCAL)


def planned_launch(
    plan: Plan,
    provider: Mapping[str, Any],
    *,
    ceiling_usd: float | None = None,
    plan_request: PlanRequest | None = None,
    replan: bool = False,
    catalog: Catalog | None = None,
) -> LaunchSpec:
    """Return how to launch a plan on a provider's machines. Prices of requests are those of the request's catalog, or
    of `catalog`.
    """
    from tradewind.engine.topology import topology_document

    known = catalog if plan_request is None else plan_request.catalog
    return LaunchSpec(
        plan,
        topology_document(plan),
        provider,
        FleetSettings(ready_s=_ready_s(plan)),
        ceiling_usd,
        plan_prices(plan, known),
        plan_request,
        replan,
    )


def _ready_s(plan: Plan) -> float:
    """Return the timeout until all machines of a plan answer: several times what the slowest usually takes."""
    from tradewind.gateway.owner import TOKEN_S

    machines = () if plan.overlay is None else plan.overlay.machines
    boot_s = max((each.offer.machine.boot_s for each in machines), default=0.0)
    return min(max(READY_S, BOOTS_PER_READY * boot_s), TOKEN_S)


def plan_prices(plan: Plan, catalog: Catalog | None) -> JobPrices:
    """Return list prices of a plan's machines by region, of its egress, and of requests at both sides.

    If a region has machines of several types, the highest price applies to all of them. A handwritten plan has only
    prices of whole routes.
    """
    overlay = plan.overlay
    if overlay is None:
        priced = {_name(route): route.usd_per_gb for route in plan.routes if route.usd_per_gb}
        return JobPrices(routes={name: (EdgePrice(name, usd, BY_HAND_SOURCE),) for name, usd in priced.items()})
    offers = sorted(overlay.machines, key=lambda machines: machines.offer.usd_per_s)
    prices = JobPrices(
        {
            str(machines.region): MachinePrice(
                machines.offer.usd_per_s, str(machines.offer.origin), machines.offer.machine.billed_s_min
            )
            for machines in offers
        },
        routes=_route_prices(plan, overlay, catalog),
    )
    read = None if catalog is None else catalog.stores.get(overlay.source.provider)
    write = None if catalog is None else catalog.stores.get(overlay.destination.provider)
    if read is not None:
        prices = replace(prices, read=read.request_prices, read_source=str(read.origin))
    if write is not None:
        prices = replace(prices, write=write.request_prices, write_source=str(write.origin))
    return prices


def _route_prices(plan: Plan, overlay: UnicastOverlay, catalog: Catalog | None) -> dict[str, tuple[EdgePrice, ...]]:
    """Return the edges that have a cost, or would have one at a larger volume, by route."""
    edges = {
        (str(edge.src), str(edge.dst), edge.network_tier): _edge_price(
            edge, overlay, None if catalog is None else overlay.known_to(catalog, edge)
        )
        for edge in overlay.edges
    }
    gateways = {gateway.name: gateway for gateway in plan.gateways}
    routes = {}
    for route in plan.routes:
        hops = itertools.pairwise(gateways[name] for name in route.nodes)
        taken = (edges.get((start.region, end.region, start.network_tier)) for start, end in hops)
        routes[_name(route)] = tuple(edge for edge in taken if edge is not None and (edge.usd_per_gb or edge.tiers))
    return routes


def _edge_price(edge: OverlayEdge, overlay: UnicastOverlay, catalog: Catalog | None) -> EdgePrice:
    """Return the price per GB sent."""
    usd_per_gb = edge.usd_per_gb / overlay.compression_ratio
    price = None if catalog is None else catalog.egress(edge.src, edge.dst)
    is_standard = overlay.network_tier_of(edge) == "standard"
    what = f"{edge.src} → {edge.dst}{STANDARD_EDGE if is_standard else ''}"
    if catalog is None or price is None:
        return EdgePrice(what, usd_per_gb)
    if len(price.tiers) == 1:
        return EdgePrice(what, usd_per_gb, str(price.origin))
    account = catalog.egress_account(edge.src, edge.dst, price)
    return EdgePrice(what, usd_per_gb, str(price.origin), price.tiers, account)


def _name(route: PlannedRoute) -> str:
    """Return the route's name as the lead writes it."""
    return " → ".join(dict.fromkeys(route.nodes))


def single_launch(region: str, provider: Mapping[str, Any]) -> LaunchSpec:
    """Return how to launch one process that is lead, source and sink, on a provider's machine in a region."""
    return LaunchSpec(
        Plan((PlannedGateway("local", region),), (), (PlannedRoute(("local", "local"), 1.0),), lead="local"),
        provider=provider,
    )


def stored_launch(
    topology: Mapping[str, Any] | None,
    provider: Mapping[str, Any] | None,
    ceiling_usd: float | None = None,
    *,
    plan: Plan | None = None,
    proposed: LaunchSpec | None = None,
) -> LaunchSpec:
    """Return how to launch a resumed job.

    `plan` is its complete latest plan, `proposed` the launch of its proposal. With both, a planned job replaces
    machines and replans like a new one. Raises TopologyError.
    """
    if provider is not None and provider["kind"] == "guest":
        return guest_launch(Guest.from_document(provider), ceiling_usd)
    if topology is None:
        return replace(local_launch(), ceiling_usd=ceiling_usd)
    if plan is not None and proposed is not None and proposed.plan_request is not None:
        return replace(proposed, plan=plan, document=topology, provider=provider or LOCAL, ceiling_usd=ceiling_usd)
    from tradewind.engine.topology import topology_from_document

    return replace(_from_topology(topology_from_document(topology), provider or LOCAL), ceiling_usd=ceiling_usd)


def _from_topology(shape: Topology, provider: Mapping[str, Any]) -> LaunchSpec:
    settings = FleetSettings(shape.listen, shape.detours, shape.plain)
    return LaunchSpec(shape.plan, shape.document, provider, settings, prices=plan_prices(shape.plan, None))
