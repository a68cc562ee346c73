"""The wiring of placed flows: the plan of their fleet, and the program of each split proxy. No I/O.

Applications connect to the split proxy of their own host, its *entrance*: at home, beside the supervisor, or on another
host, where the fleet runs a gateway for it. It is the entry of each path: it dials the first proxy, and that one the
next, each with the fleet's mutual TLS. Proxies accept nobody else, and a caller only for the destinations of its flows.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from tradewind.acceleration.services import listening_at, service_port_of
from tradewind.errors import ConfigError
from tradewind.model.flows import FlowEnd, WantedFlow, WayIn
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute
from tradewind.model.records import dataclass
from tradewind.model.region import Region
from tradewind.model.split import SplitLimits, SplitListener, SplitProgram, SplitRoute, SplitWay
from tradewind.placement.plan import FlowPlan, PlacementPlan
from tradewind.planner.routes import region_name

__all__ = [
    "HOME",
    "LOCAL_WAYS",
    "Wire",
    "client_region",
    "entrance_name",
    "entrance_program",
    "entrances_of",
    "fleet_plan",
    "groups_of",
    "hops_of",
    "is_entrance",
    "joined_name",
    "kind_of",
    "listener_key",
    "listener_keys",
    "proxy_name",
    "proxy_program",
    "proxy_regions_of",
    "sharing",
    "wires_of",
]

HOME = "home"
"""Name of the gateway beside the supervisor."""
#: End of the name of a gateway at which flows of another host enter.
ENTRANCE = "-entrance"
#: The listener behind each way in. With `transparent` and `run`, a local proxy gets the connections of programs, and
#: passes them to it.
WAYS: Mapping[WayIn, SplitWay] = {
    "port": "forward",
    "socks5": "socks5",
    "connect": "connect",
    "sni": "sni",
    "transparent": "socks5",
    "run": "socks5",
}
#: Ways in that only Tradewind's own local proxy uses, so that nobody else must reach their listener.
LOCAL_WAYS: tuple[WayIn, ...] = ("transparent", "run")
LISTEN = "127.0.0.1:0"
#: Ways in whose clients can show a token. Clients of the others are known by their networks.
TOKEN_WAYS = ("socks5", "connect")
#: Most listeners of a gateway (crates/split).
LISTENERS_MAX = 64
#: Proxies accept the fleet's gateways at their data port, which the firewalls of all providers admit to them.
HOP_LISTEN = "data"
#: Time after which a silent connection is reset. Backups and shells are silent for long.
IDLE_MS = 3_600_000
#: Hexadecimal digits in the name of a listener.
NAME_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Wire:
    """One flow as connections see it: from this machine to `target`, through proxies."""

    name: str
    target: str
    way: SplitWay
    listen: str
    through: tuple[str, ...]
    """Placed path, from this machine to the target; empty for direct."""
    predicted_mbps: float
    direct_mbps: float
    clients: tuple[str, ...] = ()
    tokens: tuple[tuple[str, str], ...] = ()
    way_in: WayIn = "port"
    placed_as: str = ""
    """Name under which it was placed, alone or with others."""
    period_bytes: float = 0.0
    """Bytes of all flows that were placed with it, in a period."""
    predicted_s: float = 0.0
    """Predicted time for these bytes."""
    entrance: str = HOME
    """Name of the gateway at which its connections enter."""
    entrance_region: str | None = None
    """Region of the host at which they enter; None for this machine."""


def wires_of(flows: Sequence[WantedFlow], plan: PlacementPlan, place: str) -> tuple[Wire, ...]:
    """Return the wires of placed flows. `place` names the flows file. Raises ConfigError for a flow that cannot be
    carried.
    """
    placed = {each.id: each for each in plan.flows}
    group_of = {flow.name: group for group in groups_of(flows, place) for flow in group}
    wires = tuple(
        _wire(flow, group, placed[joined_name(group)], f"{place}: flow {flow.name}")
        for flow in flows
        for group in (group_of[flow.name],)
    )
    for entrance in entrances_of(wires):
        if len(listener_keys(wires, entrance)) > LISTENERS_MAX:
            raise ConfigError(
                f"{place}: more than {LISTENERS_MAX} listeners of one host",
                hint='flows with way_in = "socks5" share one',
            )
        _require_own_addresses([wire for wire in wires if wire.entrance == entrance], place)
    return wires


def _require_own_addresses(wires: Sequence[Wire], place: str) -> None:
    """Raise ConfigError if two listeners of a host have one address. `wires` are those of the host."""
    first: dict[str, Wire] = {}
    for wire in wires:
        other = first.setdefault(listening_at(wire.listen), wire)
        if listener_key(other) != listener_key(wire) and wire.listen != LISTEN:
            raise ConfigError(
                f"{place}: flows {other.name} and {wire.name} cannot both listen at {wire.listen}",
                hint="give each an address or port of its own, or both the same way_in, clients and tokens",
            )


def entrances_of(wires: Iterable[Wire]) -> tuple[str, ...]:
    """Return the gateways at which flows enter, by name."""
    return tuple(dict.fromkeys(wire.entrance for wire in wires))


def groups_of(flows: Sequence[WantedFlow], place: str) -> list[tuple[WantedFlow, ...]]:
    """Return the flows by host, way in and destination, each group with its largest flow first.

    The entrance of a host tells connections apart by listener and destination, so the flows of a group take one path,
    and are placed as one flow. Raises ConfigError.
    """
    groups: dict[tuple[Region | None, ListenerKey, str], list[WantedFlow]] = {}
    for flow in flows:
        where = f"{place}: flow {flow.name}"
        region, target, listen = client_region(flow, where), _far(flow, where), _listen(flow, where)
        key = _listener_key(flow.name, target, flow.way_in, listen, flow.clients, _sorted_tokens(flow))
        groups.setdefault((region, key, target), []).append(flow)
    return [tuple(sorted(group, key=lambda flow: -flow.period_bytes)) for group in groups.values()]


def joined_name(group: Sequence[WantedFlow]) -> str:
    """Return the name under which the flows of a group are placed."""
    return ", ".join(flow.name for flow in group)


def client_region(flow: WantedFlow, place: str) -> Region | None:
    """Return the region of the host that opens a flow's connections; None for this machine. Raises ConfigError."""
    client, _ = _client_and_far(flow, place)
    if client.is_here:
        return None
    if client.region is None:
        raise ConfigError(
            f"{place}: the region of {client.text}, which opens the connections, is not known",
            hint="give its region, which must be that of one of your hosts; `accelerate up` runs a gateway on it",
        )
    return client.region


def entrance_name(region: Region) -> str:
    """Return the name of the gateway at which flows of the host in a region enter."""
    return f"{region_name(region)}{ENTRANCE}"


def is_entrance(name: str) -> bool:
    """Return whether a gateway is the entrance of flows of another host. Names of proxies end with a number."""
    return name.endswith(ENTRANCE)


def kind_of(name: str) -> str:
    """Return what messages call a gateway."""
    return "entrance" if is_entrance(name) else "proxy"


def _client_and_far(flow: WantedFlow, place: str) -> tuple[FlowEnd, FlowEnd]:
    """Return the end that opens the connections, which is this machine or has no port, and the other end."""
    ends = flow.source, flow.destination
    clients = [end for end in ends if end.is_here] or [end for end in ends if end.address is None or not end.address[1]]
    if len(clients) != 1:
        raise ConfigError(
            f"{place}: it is not clear which end opens the connections",
            hint='one end is "here" or a host without a port, and the other one has a port, as in HOST:PORT',
        )
    return clients[0], ends[clients[0] is flow.source]


def _far(flow: WantedFlow, place: str) -> str:
    """Return the destination of a flow's connections."""
    return _target(_client_and_far(flow, place)[1], place)


def _wire(flow: WantedFlow, group: Sequence[WantedFlow], placed: FlowPlan, place: str) -> Wire:
    """Return the wire of a flow. It was placed as the largest one of its group, whose direction the path has."""
    names = tuple(proxy_name(proxy.region, proxy.instance) for proxy in placed.path)
    region = client_region(flow, place)
    direct_mbps = placed.rate_mbps
    if placed.path and placed.direct_fct_s > 0:
        direct_mbps = placed.rate_mbps * placed.fct_s / placed.direct_fct_s
    return Wire(
        flow.name,
        _far(flow, place),
        WAYS[flow.way_in],
        _listen(flow, place),
        names if _client_and_far(group[0], place)[0] is group[0].source else names[::-1],
        placed.rate_mbps,
        direct_mbps,
        flow.clients,
        _sorted_tokens(flow),
        flow.way_in,
        joined_name(group),
        math.fsum(each.period_bytes for each in group),
        placed.fct_s,
        HOME if region is None else entrance_name(region),
        None if region is None else str(region),
    )


def _sorted_tokens(flow: WantedFlow) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(flow.tokens.items()))


def _target(end: FlowEnd, place: str) -> str:
    if end.address is None or end.address[1] is None:
        raise ConfigError(
            f"{place}: {end.text} has no port to connect to", hint="write HOST:PORT, and give its region separately"
        )
    host, port = end.address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listen(flow: WantedFlow, place: str) -> str:
    """Return where a flow listens. Raises ConfigError if anybody could use it."""
    is_here = client_region(flow, place) is None
    if flow.way_in in LOCAL_WAYS and not is_here:
        raise ConfigError(
            f"{place}: way_in {flow.way_in!r} is only for programs of this machine",
            hint="let the host's programs connect to `listen`",
        )
    if flow.listen is None and not is_here:
        raise ConfigError(
            f"{place}: a flow of another host needs an address at which its programs connect there",
            hint='for example listen = "127.0.0.1:8443"',
        )
    if flow.way_in in LOCAL_WAYS:
        if flow.listen is not None or flow.clients or flow.tokens:
            raise ConfigError(
                f"{place}: way_in {flow.way_in!r} is for programs of this machine, and has no listener to configure",
                hint="leave out listen, clients and tokens",
            )
        return LISTEN
    listen, needs_tokens = flow.listen or LISTEN, flow.way_in in TOKEN_WAYS
    if flow.tokens and not needs_tokens:
        raise ConfigError(
            f"{place}: way_in {flow.way_in!r} does not support tokens",
            hint=f"use {' or '.join(TOKEN_WAYS)}, or clients",
        )
    if _is_loopback(listen, is_here, place) or (flow.tokens if needs_tokens else flow.clients):
        return listen
    key = "tokens" if needs_tokens else "clients"
    if service_port_of(listen) is not None:
        raise ConfigError(
            f"{place}: everybody in the cluster could use the Service at {listen!r}", hint=f"add `{key}` to the flow"
        )
    raise ConfigError(
        f"{place}: listen {listen!r} is not a loopback address, so anybody could use it",
        hint=f"add `{key}` to the flow, or listen at 127.0.0.1",
    )


def _is_loopback(listen: str, is_here: bool, place: str) -> bool:
    """Return whether nobody but the users of a host reaches an address. Raises ConfigError if it is none.

    Names are those of Services in a cluster.
    """
    if not is_here and service_port_of(listen) is not None:
        return False
    try:
        return ipaddress.ip_address(listen.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:
        raise ConfigError(f"{place}: listen {listen!r} has no IP address", hint="for example 127.0.0.1:8443") from None


def proxy_name(region: str, instance: int) -> str:
    """Return the name of a placed proxy's gateway."""
    return f"{region_name(Region.parse(region))}-{instance + 1}"


def proxy_regions_of(plan: PlacementPlan) -> dict[str, str]:
    """Return the region of each proxy in use, by name."""
    return {proxy_name(load.region, load.instance): load.region for load in plan.instances}


def fleet_plan(paths: Iterable[Sequence[str]], regions: Mapping[str, str], home: str) -> Plan:
    """Return the plan of a fleet: home's region, and the region of each other gateway by name. It has no transfer.

    A path begins with its entrance. The hops are all pairs of gateways that connect on some path, so that firewalls
    admit them.
    """
    pairs: dict[tuple[str, str], None] = {}
    for path in paths:
        for start, end in pairwise(path):
            if start in (HOME, *regions) and end in regions:
                pairs[start, end] = None
    gateways = (PlannedGateway(HOME, home), *(PlannedGateway(name, region) for name, region in regions.items()))
    share = 1 / (len(pairs) + 1)
    routes = (PlannedRoute((HOME, HOME), share), *(PlannedRoute(pair, share) for pair in pairs))
    return Plan(gateways, tuple(PlannedHop(*pair, 1) for pair in pairs), routes, lead=HOME)


@dataclass(frozen=True)
class ListenerKey:
    """The key of the listener: flows with the same key share one."""

    owner: str | None
    """The flow, or the way in, that has the listener for itself; None if others may share it."""
    listen: str
    way: SplitWay
    target: str | None
    port: int | None
    clients: tuple[str, ...]
    tokens: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """Name under which the proxy of this machine counts. It stays the same when other flows come and go."""
        return f"{self.way}-{hashlib.sha256(repr(self).encode()).hexdigest()[:NAME_DIGITS]}"


def listener_key(wire: Wire) -> ListenerKey:
    """Return the listener of a flow. Flows with `socks5`, `connect` or `sni` at one address may share it."""
    return _listener_key(wire.name, wire.target, wire.way_in, wire.listen, wire.clients, wire.tokens)


def _listener_key(
    name: str,
    target: str,
    way_in: WayIn,
    listen: str,
    clients: tuple[str, ...],
    tokens: tuple[tuple[str, str], ...],
) -> ListenerKey:
    way, owner = WAYS[way_in], None if way_in not in LOCAL_WAYS else str(way_in)
    if way == "forward" and listen.endswith(":0"):
        owner = name
    port = int(target.rpartition(":")[2]) if way == "sni" else None
    return ListenerKey(owner, listen, way, target if way == "forward" else None, port, clients, tokens)


def sharing(wire: Wire, wires: Iterable[Wire]) -> tuple[str, ...]:
    """Return the other flows that cannot be told apart from one: they have its listener and destination."""
    group = wire.entrance, listener_key(wire), wire.target
    others = (other for other in wires if other != wire)
    return tuple(other.name for other in others if (other.entrance, listener_key(other), other.target) == group)


def listener_keys(wires: Sequence[Wire], entrance: str = HOME) -> tuple[ListenerKey, ...]:
    """Return the listeners of an entrance, in the order of its program."""
    return tuple(dict.fromkeys(listener_key(wire) for wire in wires if wire.entrance == entrance))


def hops_of(wires: Iterable[Wire]) -> set[tuple[str, str]]:
    """Return the pairs of neighbours on placed paths: the one that connects, and the proxy to which it does."""
    return {pair for wire in wires for pair in pairwise((wire.entrance, *wire.through))}


def entrance_program(
    name: str,
    wires: Sequence[Wire],
    paths: Mapping[str, tuple[str, ...]],
    addresses: Mapping[str, str],
    drain_s: float,
    pool: int = 0,
    congestion_control: str | None = None,
    client_bytes_per_s: int | None = None,
    destination_bytes_per_s: int | None = None,
) -> SplitProgram:
    """Return the program of the proxy at which some flows enter.

    `paths` are the proxies of each flow now, by name; `addresses` those that it dials. It keeps `pool` connections
    ready for each of them. It probes the first proxy of each placed path, also while no flow takes that.
    """
    routes: dict[ListenerKey, dict[str, tuple[str, ...]]] = {}
    wires = [wire for wire in wires if wire.entrance == name]
    for wire in wires:
        routes.setdefault(listener_key(wire), {})[wire.target] = paths[wire.name]
    listeners = tuple(
        SplitListener(
            listening_at(key.listen),
            key.way,
            key.target,
            key.port,
            dict(key.tokens) or None,
            key.clients,
            name=key.name,
            routes=tuple(SplitRoute(target, path) for target, path in targets.items()),
        )
        for key, targets in routes.items()
    )
    used = {proxy for wire in wires for proxy in paths[wire.name]}
    # Flows that are compared with the direct path come back, so connections to their proxies stay ready.
    used |= {proxy for wire in wires for proxy in wire.through if proxy in addresses}
    return SplitProgram(
        listeners,
        tuple(dict.fromkeys(wire.target for wire in wires)),
        {proxy: addresses[proxy] for proxy in sorted(used) if proxy in addresses},
        limits=_limits(drain_s, pool, client_bytes_per_s, destination_bytes_per_s),
        congestion_control=congestion_control,
        probes=_probes(name, wires, used),
    )


def _probes(name: str, wires: Iterable[Wire], known: Collection[str]) -> tuple[str, ...]:
    """Return the next proxies of a gateway on placed paths."""
    return tuple(sorted(end for start, end in hops_of(wires) if start == name and end in known))


def proxy_program(
    name: str,
    wires: Sequence[Wire],
    paths: Collection[tuple[str, tuple[str, ...]]],
    addresses: Mapping[str, str],
    drain_s: float,
    pool: int = 0,
    congestion_control: str | None = None,
) -> SplitProgram:
    """Return the program of a proxy. It serves the destinations of flows whose paths may use it, and no others, and a
    caller only for the flows that come from it.

    `paths` are pairs of a flow's name and a path that it takes or took; `addresses` those that this proxy dials.
    """
    flows = {wire.name: wire for wire in wires}
    callers: dict[str, dict[str, None]] = {}
    for flow, path in sorted(paths):
        for caller, called in pairwise((flows[flow].entrance, *path)):
            if called == name:
                callers.setdefault(caller, {})[flows[flow].target] = None
    allow = tuple(dict.fromkeys(target for targets in callers.values() for target in targets))
    later = {other for _, path in paths if name in path for other in path[path.index(name) + 1 :]}
    known = {other: addresses[other] for other in sorted(later) if other in addresses}
    return SplitProgram(
        (SplitListener(HOP_LISTEN, "hop", callers={caller: tuple(each) for caller, each in callers.items()}),),
        allow,
        known,
        limits=_limits(drain_s, pool),
        congestion_control=congestion_control,
        probes=_probes(name, wires, known),
    )


def _limits(
    drain_s: float, pool: int, client_bytes_per_s: int | None = None, destination_bytes_per_s: int | None = None
) -> SplitLimits:
    return SplitLimits(
        idle_timeout_ms=IDLE_MS,
        drain_timeout_ms=max(1, round(drain_s * 1e3)),
        pool=pool,
        bytes_per_second_per_client_max=client_bytes_per_s,
        bytes_per_second_per_destination_max=destination_bytes_per_s,
    )
