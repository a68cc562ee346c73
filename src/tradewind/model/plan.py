"""The immutable answer to a job: gateways, routes with shares, and connections per hop."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tradewind.errors import GatewayError, TopologyError, UsageError
from tradewind.model.network_tier import NetworkTier
from tradewind.model.program import CONNECTIONS_MAX, GatewayLimits
from tradewind.model.records import dataclass, field
from tradewind.model.units import format_count

if TYPE_CHECKING:
    from tradewind.model.overlay import UnicastOverlay

#: Maximum routes of one plan; a gateway refuses a program with more (docs/reference/limits.md).
ROUTES_MAX = 256
#: Maximum number of routes that a user may ask for: a plan is searched for each number of machines up to it.
ROUTES_ASKED_MAX = 32
#: Valid names of gateways: a certificate has the name as a DNS label.
_NAME = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"


@dataclass(frozen=True, slots=True)
class PlannedGateway:
    """One gateway process. `region` is a region of the catalog (`site:local` is this machine)."""

    name: str
    region: str = "site:local"
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    network_tier: NetworkTier | None = None
    """How its machine sends, if the machines of its region differ in that; else the overlay says it."""


@dataclass(frozen=True, slots=True)
class PlannedHop:
    """The bundle of TCP connections from gateway `start` to gateway `end`."""

    start: str
    end: str
    connections: int


@dataclass(frozen=True, slots=True)
class PlannedRoute:
    """One route from a source to a sink: gateway names in order, target share of the bytes, total egress price."""

    nodes: tuple[str, ...]
    share: float
    usd_per_gb: float = 0.0


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted figures of the plan."""

    throughput_gbps: float
    time_s: float
    cost_usd: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Gateways, hops and routes. `lead` names the gateway that lists, orders and journals; no data flows through it.

    Routes begin at a source. Hops from the lead to the sources may be omitted and then have a default number of
    connections. The constructor checks the plan and raises TopologyError.
    """

    gateways: tuple[PlannedGateway, ...]
    hops: tuple[PlannedHop, ...]
    routes: tuple[PlannedRoute, ...]
    lead: str = "lead"
    prediction: Prediction | None = None
    overlay: UnicastOverlay | None = None
    """The planner's result by region, if the planner made this plan."""

    def __post_init__(self) -> None:
        _check_names(self)
        _check_routes(self)
        _check_hops(self)

    @property
    def mean_usd_per_gb(self) -> float:
        """Egress price per GB sent: the routes' average, weighted by their shares."""
        total = sum(route.share for route in self.routes)
        return sum(route.share * route.usd_per_gb for route in self.routes) / total

    @property
    def names(self) -> set[str]:
        """Names of all gateways, with the lead's."""
        return {gateway.name for gateway in self.gateways}

    @property
    def machines(self) -> tuple[PlannedGateway, ...]:
        """Gateways with a machine: all except the lead, which runs beside the client."""
        return tuple(gateway for gateway in self.gateways if gateway.name != self.lead)

    def network_tier_of(self, name: str) -> NetworkTier | None:
        """Return the planned network tier of a gateway's machine; None if the plan does not choose one."""
        gateway = next((each for each in self.gateways if each.name == name), None)
        if gateway is None or self.overlay is None:
            return None
        here = (each.network_tier for each in self.overlay.machines if str(each.region) == gateway.region)
        return gateway.network_tier or next(here, None)

    def stations(self) -> tuple[tuple[str, str], ...]:
        """Ordered pairs of distinct gateways that are adjacent on some route, without repeats."""
        pairs = dict.fromkeys(
            (start, end)
            for route in self.routes
            for start, end in zip(route.nodes, route.nodes[1:], strict=False)
            if start != end
        )
        return tuple(pairs)


def local_plan() -> Plan:
    """Return a plan with lead, source and sink in one process on this machine."""
    return Plan((PlannedGateway("local"),), (), (PlannedRoute(("local", "local"), 1.0),), lead="local")


def _check_names(plan: Plan) -> None:
    names = [gateway.name for gateway in plan.gateways]
    for name in names:
        if not re.fullmatch(_NAME, name):
            raise TopologyError(f"gateway name {name!r}: 1 to 63 characters of a-z, 0-9 and -, with no - at either end")
    if len(set(names)) != len(names):
        raise TopologyError("two gateways have the same name")
    if plan.lead not in names:
        raise TopologyError(f"the plan has no gateway {plan.lead!r} to lead it")


def _check_routes(plan: Plan) -> None:
    names = plan.names
    if not 1 <= len(plan.routes) <= ROUTES_MAX:
        raise TopologyError(f"a plan has 1 to {ROUTES_MAX} routes, not {len(plan.routes)}")
    for route in plan.routes:
        label = " → ".join(route.nodes)
        for name in route.nodes:
            if name not in names:
                raise TopologyError(f"route {label}: no gateway {name!r}")
        if len(route.nodes) < 2:
            raise TopologyError(f"route {label!r}: needs a source and a sink")
        inner = [name for index, name in enumerate(route.nodes) if index == 0 or route.nodes[index - 1] != name]
        if len(set(inner)) != len(inner):
            raise TopologyError(f"route {label}: visits a gateway twice")
        if not 0 < route.share <= 1:
            raise TopologyError(f"route {label}: share {route.share} is not above 0 and at most 1")
        if not 0 <= route.usd_per_gb < float("inf"):
            raise TopologyError(f"route {label}: usd_per_gb {route.usd_per_gb} is not a price")


def _check_hops(plan: Plan) -> None:
    planned = {(hop.start, hop.end) for hop in plan.hops}
    if len(planned) != len(plan.hops):
        raise TopologyError("two hops join the same gateways in the same direction")
    for hop in plan.hops:
        if not 1 <= hop.connections <= CONNECTIONS_MAX:
            connections = format_count(hop.connections, "connection")
            raise TopologyError(f"hop {hop.start} → {hop.end}: {connections}; must be 1 to {CONNECTIONS_MAX}")
    needed = set(plan.stations())
    for start, end in needed - planned:
        raise TopologyError(f"no hop {start} → {end}, but a route uses it")
    from_lead = {(plan.lead, route.nodes[0]) for route in plan.routes}
    for start, end in planned - needed - from_lead:
        raise TopologyError(f"hop {start} → {end} is on no route")


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Addresses of one gateway: `control` is `unix:PATH` or `ip:port`; `data` is `ip:port` or None."""

    control: str
    data: str | None = None
    inbound: bool = True
    """False if gateways of other regions cannot open connections to its machine."""
    network: str | None = None
    """Name of the network in which they can nevertheless; None if there is none."""
    data_at_home: str | None = None
    """`ip:port` that the lead dials instead of `data`; None if it needs no other."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """`addresses` by gateway name.

    `detours` gives, for (caller, called), an address to dial instead of the data port: a tunnel or a proxy between the
    two.
    """

    plan: Plan
    addresses: Mapping[str, GatewayAddress]
    detours: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def upstream_dials(self, upstream: str, downstream: str) -> bool:
        """Return whether the upstream end of a hop opens its connections; otherwise the downstream end does.

        Raises GatewayError if neither end can be dialled.
        """
        if self._address(upstream, downstream) is not None:
            return True
        if self._address(downstream, upstream) is not None:
            return False
        raise GatewayError(
            f"no hop from {upstream} to {downstream}: neither accepts connections",
            hint="plan a relay between them that accepts connections, or join their networks and set `joined = true`",
        )

    def address(self, caller: str, called: str) -> str:
        """Return the address that `caller` dials to reach `called`. Raises KeyError if `called` has no data port."""
        address = self._address(caller, called)
        if address is None:
            raise KeyError(called)
        return address

    def _address(self, caller: str, called: str) -> str | None:
        there = self.addresses[called]
        if (detour := self.detours.get((caller, called))) is not None:
            return detour
        if caller == self.plan.lead and there.data_at_home is not None:
            return there.data_at_home
        network = self.addresses[caller].network
        is_joined = network is not None and network == there.network
        return there.data if there.inbound or is_joined or self._region(caller) == self._region(called) else None

    def _region(self, name: str) -> str:
        return next(gateway.region for gateway in self.plan.gateways if gateway.name == name)


def check_routes(routes_max: int) -> int:
    """Return a number of routes that a user may ask for. Raises UsageError for any other."""
    if not 1 <= routes_max <= ROUTES_ASKED_MAX:
        raise UsageError(f"a number of routes, 1 to {ROUTES_ASKED_MAX}, not {routes_max}")
    return routes_max
