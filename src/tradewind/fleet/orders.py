"""The order of each machine of a plan: its key, type, role and peers."""

from __future__ import annotations

from collections.abc import Iterable

from tradewind.fleet.provider import Role
from tradewind.model.digest import sha256_hex
from tradewind.model.network_tier import NetworkTier
from tradewind.model.plan import Plan, PlannedGateway

__all__ = ["dialled_gateways", "machine_types", "network_tier_in", "order_key", "peers_of", "role_of"]


def order_key(fleet_id: str, name: str, endings: int) -> str:
    """Return the key of a machine's order. `endings` counts the ended machines of its name that it replaces."""
    return f"{sha256_hex(f'{fleet_id}/{name}'.encode())[:24]}-{endings}"


def machine_types(plan: Plan, rented: Iterable[PlannedGateway]) -> dict[str, tuple[str, bool]]:
    """Return the planned machine type of each rented gateway, and whether it is a spot machine.

    The overlay names machine types by region: a region's machines are assigned to its gateways in order.
    """
    if plan.overlay is None:
        return {}
    left: dict[str, list[tuple[str, bool]]] = {}
    for machines in plan.overlay.machines:
        types = [(machines.offer.machine.name, machines.offer.spot)] * machines.count
        left.setdefault(str(machines.region), []).extend(types)
    return {gateway.name: left[gateway.region].pop(0) for gateway in rented if left.get(gateway.region)}


def network_tier_in(plan: Plan, region: str) -> NetworkTier | None:
    """Return the planned network tier of the machines in a region; None if the plan does not choose one."""
    machines = () if plan.overlay is None else plan.overlay.machines
    return next((m.network_tier for m in machines if str(m.region) == region), None)


def role_of(plan: Plan, name: str) -> Role:
    """Return the role of a gateway on the routes of a plan."""
    if any(route.nodes[0] == name for route in plan.routes):
        return "source"
    return "sink" if any(route.nodes[-1] == name for route in plan.routes) else "relay"


def peers_of(plan: Plan, name: str) -> tuple[str, ...]:
    """Return the gateways that connect to another one."""
    found = {start: None for start, end in plan.stations() if end == name}
    if name != plan.lead and any(route.nodes[0] == name for route in plan.routes):
        found[plan.lead] = None
    return tuple(found)


def dialled_gateways(plan: Plan) -> set[str]:
    """Return the gateways that others connect to."""
    ends = {end for _, end in plan.stations()}
    return ends | {route.nodes[0] for route in plan.routes if route.nodes[0] != plan.lead}
