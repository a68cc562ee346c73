"""The orders of the machines of a plan: keys, types, roles and peers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tradewind.fleet.owner import here
from tradewind.fleet.provider import LaunchOrder, Lease, NetworkChoice, Role
from tradewind.fleet.settings import FleetSettings
from tradewind.model.digest import sha256_hex
from tradewind.model.network_tier import NetworkTier
from tradewind.model.plan import Plan, PlannedGateway

if TYPE_CHECKING:
    from tradewind.fleet.enrolment import Enrolment

__all__ = ["Orders", "dialled_gateways"]


class Orders:
    """Makes the orders of one fleet's machines."""

    def __init__(self, fleet_id: str, settings: FleetSettings) -> None:
        self._fleet_id, self._settings = fleet_id, settings
        keeping = settings.keeping
        self._owner = here().label if keeping is None else keeping.owner_label
        #: Number of ended machines by name. It is part of the order's key, so that a replacement is a new order.
        self._endings: Counter[str] = Counter()

    def of(self, plan: Plan, lease_s: int, generation: int, enrolment: Enrolment | None) -> list[LaunchOrder]:
        """Return the orders of all machines that a plan wants."""
        rented = self._settings.rented(plan)
        # The plan of `fleet up` names no types. Those that it keeps have a price, to which the user has agreed.
        kept = {name: (one.type, one.spot) for name, one in self._settings.kept_machines.items()}
        types: dict[str, tuple[str | None, bool]] = {**kept, **_machine_types(plan, rented)}
        orders: list[LaunchOrder] = []
        for gateway in rented:
            name = gateway.name
            machine_type, spot = types.get(name, (None, False))
            key = _order_key(self._fleet_id, name, self._endings[name])
            order = LaunchOrder(
                self._fleet_id,
                name,
                gateway.region,
                key=key,
                generation=generation,
                lease=Lease(lease_s, self._owner),
                role=_role_of(plan, name) if self._settings.led else "probe",
                type=machine_type,
                spot=spot,
                peers=self._peers(plan, name),
                network=NetworkChoice(
                    listen=self._settings.listen.get(name), network_tier=self._network_tier(plan, gateway)
                ),
                join=None if enrolment is None else enrolment.join(name, key),
            )
            orders.append(order)
        return orders

    def ended(self, name: str) -> None:
        """Note that a machine ended: the next one of its name is a new order."""
        self._endings[name] += 1

    def taken_over(self, name: str, now_unix_s: float) -> None:
        """Let the next order be none of those that earlier processes made for this name, as they left no record."""
        self._endings[name] = round(now_unix_s)

    def _peers(self, plan: Plan, name: str) -> tuple[str, ...]:
        """A later job decides who connects to a machine that is kept."""
        return _peers_of(plan, name) or ((plan.lead,) if self._settings.keeping is not None else ())

    def _network_tier(self, plan: Plan, gateway: PlannedGateway) -> NetworkTier | None:
        kept = self._settings.kept_machines.get(gateway.name)
        return plan.network_tier_of(gateway.name) or (None if kept is None else kept.network_tier)


def dialled_gateways(plan: Plan) -> set[str]:
    """Return the gateways that others connect to."""
    ends = {end for _, end in plan.stations()}
    return ends | {route.nodes[0] for route in plan.routes if route.nodes[0] != plan.lead}


def _order_key(fleet_id: str, name: str, endings: int) -> str:
    """Return the key of a machine's order. `endings` counts the ended machines of its name that it replaces."""
    return f"{sha256_hex(f'{fleet_id}/{name}'.encode())[:24]}-{endings}"


def _machine_types(plan: Plan, rented: Iterable[PlannedGateway]) -> dict[str, tuple[str, bool]]:
    """Return the planned machine type of each rented gateway, and whether it is a spot machine.

    The overlay names machine types by region: a region's machines are assigned to its gateways in order, and those of
    each network tier to gateways of that tier if the region has both.
    """
    if plan.overlay is None:
        return {}
    left: dict[tuple[str, NetworkTier | None], list[tuple[str, bool]]] = {}
    for machines in plan.overlay.machines:
        types = [(machines.offer.machine.name, machines.offer.spot)] * machines.count
        region, tier = plan.overlay.pool_of(machines)
        left.setdefault((str(region), tier), []).extend(types)
    pools = ((gateway.name, left.get((gateway.region, gateway.network_tier))) for gateway in rented)
    return {name: pool.pop(0) for name, pool in pools if pool}


def _role_of(plan: Plan, name: str) -> Role:
    """Return the role of a gateway on the routes of a plan."""
    if any(route.nodes[0] == name for route in plan.routes):
        return "source"
    return "sink" if any(route.nodes[-1] == name for route in plan.routes) else "relay"


def _peers_of(plan: Plan, name: str) -> tuple[str, ...]:
    """Return the gateways that connect to another one."""
    found = {start: None for start, end in plan.stations() if end == name}
    if name != plan.lead and any(route.nodes[0] == name for route in plan.routes):
        found[plan.lead] = None
    return tuple(found)
