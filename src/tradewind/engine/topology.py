"""Topology files: a graph of gateways given by hand, read into a `model.Plan` (docs/reference/topology.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.errors import TopologyError
from tradewind.model.document import read_json
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute, local_plan
from tradewind.model.program import GatewayLimits
from tradewind.model.records import dataclass, field, fields

#: Default connections of a hop.
DEFAULT_CONNECTIONS = 8
#: Name of the gateway that leads.
LEAD = "lead"
ROLES = ("source", "relay", "sink")
#: Default region of gateways: this machine.
HERE = "site:local"


@dataclass(frozen=True, slots=True)
class Topology:
    """A plan, and the addresses on this machine that the file gives.

    `listen` gives the data port of a gateway, `ip:port`; `detours` the address that a hop dials instead. With `plain`
    the hops are neither encrypted nor authenticated: for benchmarks on one machine only.
    """

    plan: Plan
    document: Mapping[str, Any]
    listen: Mapping[str, str] = field(default_factory=dict)
    detours: Mapping[tuple[str, str], str] = field(default_factory=dict)
    plain: bool = False


FORMAT = "the format: docs/reference/topology.md"


def read_topology(path: str) -> Topology:
    """Read and check a topology file. Raises TopologyError."""
    try:
        document = read_json(path)
    except OSError as error:
        raise TopologyError(f"{path}: {error.strerror}", hint=FORMAT) from error
    except ValueError as error:
        raise TopologyError(f"{path}: not JSON: {error}", hint=FORMAT) from error
    try:
        return topology_from_document(document)
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}", hint=error.hint or FORMAT) from None


def plan_of(document: Any) -> Plan:
    """Return the plan of a topology; None means this machine alone. Raises TopologyError."""
    return local_plan() if document is None else topology_from_document(document).plan


def topology_from_document(document: Any) -> Topology:
    """Return the topology of a file's JSON. Raises TopologyError."""
    _expect(document, "the file", {"gateways", "routes"}, {"connections", "hops", "plain", "description", "lead"})
    lead = document.get("lead", {})
    _expect(lead, "the lead", set(), {"region"})
    roles, gateways, listen = {}, [PlannedGateway(LEAD, lead.get("region", HERE))], {}
    for name, entry in _mapping(document["gateways"], "gateways").items():
        _expect(entry, f"gateway {name}", {"role"}, {"region", "listen", "limits"})
        if name == LEAD:
            raise TopologyError(f"the name {LEAD!r} is reserved for the lead")
        roles[name] = _roles(name, entry["role"])
        gateways.append(PlannedGateway(name, entry.get("region", HERE), _limits(name, entry.get("limits", {}))))
        if "listen" in entry:
            listen[name] = str(entry["listen"])
    routes = tuple(_route(entry, roles) for entry in _list(document["routes"], "routes"))
    hops, detours = _hops(document, routes)
    plan = Plan(tuple(gateways), hops, routes, lead=LEAD)
    idle = set(roles) - {name for route in plan.routes for name in route.nodes}
    if idle:
        raise TopologyError(f"gateway {min(idle)} is on no route")
    return Topology(plan, document, listen, detours, bool(document.get("plain", False)))


def topology_document(plan: Plan) -> dict[str, Any]:
    """Return the JSON from which `topology_from_document` makes this plan again, without the figures of the planner."""
    planned = {gateway.name: gateway for gateway in plan.gateways}
    roles: dict[str, list[str]] = {}
    for route in plan.routes:
        for index, name in enumerate(route.nodes):
            role = "source" if index == 0 else "sink" if index == len(route.nodes) - 1 else "relay"
            known = roles.setdefault(name, [])
            if role not in known:
                known.append(role)
    return {
        "lead": {"region": planned[plan.lead].region},
        "gateways": {
            name: {"role": roles[name], "region": gateway.region, **_limits_document(gateway.limits)}
            for name, gateway in planned.items()
            if name in roles
        },
        "routes": [
            {"nodes": list(route.nodes), "share": route.share, "usd_per_gb": route.usd_per_gb} for route in plan.routes
        ],
        "hops": [{"from": hop.start, "to": hop.end, "connections": hop.connections} for hop in plan.hops],
    }


def _limits_document(limits: GatewayLimits) -> dict[str, Any]:
    """Return the limits that differ from the defaults."""
    usual = GatewayLimits()
    values = {each.name: getattr(limits, each.name) for each in fields(GatewayLimits)}
    changed = {key: value for key, value in values.items() if value != getattr(usual, key)}
    return {"limits": changed} if changed else {}


def _roles(name: str, role: Any) -> tuple[str, ...]:
    roles = tuple(role) if isinstance(role, list) else (role,)
    if not roles or any(one not in ROLES for one in roles):
        raise TopologyError(f"gateway {name}: role {role!r} is not one of {', '.join(ROLES)}")
    return roles


def _route(entry: Any, roles: Mapping[str, tuple[str, ...]]) -> PlannedRoute:
    _expect(entry, "a route", {"nodes", "share"}, {"usd_per_gb"})
    nodes = tuple(str(name) for name in _list(entry["nodes"], "nodes"))
    for index, name in enumerate(nodes):
        role = "source" if index == 0 else "sink" if index == len(nodes) - 1 else "relay"
        if role not in roles.get(name, (role,)):
            raise TopologyError(f"route {' → '.join(nodes)}: {name} would be a {role}, but has role {roles[name][0]}")
    return PlannedRoute(nodes, _number(entry["share"], "share"), _number(entry.get("usd_per_gb", 0), "usd_per_gb"))


def _hops(
    document: Mapping[str, Any], routes: tuple[PlannedRoute, ...]
) -> tuple[tuple[PlannedHop, ...], dict[tuple[str, str], str]]:
    """Return the hops that the routes need; those that the file lists have their own connections and addresses.

    The lead is not in the routes of a topology: its hops to the sources are added when programs are compiled.
    """
    default = int(_number(document.get("connections", DEFAULT_CONNECTIONS), "connections"))
    connections = {
        pair: default
        for route in routes
        for pair in zip(route.nodes, route.nodes[1:], strict=False)
        if pair[0] != pair[1]
    }
    detours = {}
    for entry in _list(document.get("hops", []), "hops"):
        _expect(entry, "a hop", {"from", "to"}, {"connections", "address"})
        pair = (str(entry["from"]), str(entry["to"]))
        if pair not in connections and pair[0] != LEAD:
            raise TopologyError(f"hop {pair[0]} → {pair[1]} is on no route")
        if "connections" in entry:
            connections[pair] = int(_number(entry["connections"], "connections"))
        if "address" in entry:
            detours[pair] = str(entry["address"])
    return tuple(PlannedHop(*pair, count) for pair, count in connections.items()), detours


def _limits(name: str, document: Any) -> GatewayLimits:
    _expect(document, f"limits of gateway {name}", set(), {entry.name for entry in fields(GatewayLimits)})
    return GatewayLimits(**{key: _limit(name, key, content) for key, content in document.items()})


def _limit(gateway: str, key: str, content: Any) -> int:
    least, most = GatewayLimits.bounds(key)
    value = _number(content, key)
    if not least <= value <= most:
        raise TopologyError(f"gateway {gateway}: {key} is {value!r:.40}", hint=f"{key} is {least} to {most}")
    return int(value)


def _expect(document: Any, what: str, required: set[str], optional: set[str]) -> None:
    keys = set(_mapping(document, what))
    if required - keys:
        raise TopologyError(f"{what} has no {min(required - keys)!r}")
    if keys - required - optional:
        raise TopologyError(
            f"{what}: unknown entry {min(keys - required - optional)!r}",
            hint="known: " + ", ".join(sorted(required | optional)),
        )


def _mapping(document: Any, what: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise TopologyError(f"{what} must be an object")
    return document


def _list(document: Any, what: str) -> list[Any]:
    if not isinstance(document, list):
        raise TopologyError(f"{what} must be a list")
    return document


def _number(content: Any, what: str) -> float:
    if isinstance(content, bool) or not isinstance(content, (int, float)):
        raise TopologyError(f"{what} must be a number, not {content!r}")
    return content
