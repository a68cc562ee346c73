"""The network and the security group of a fleet in each region."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from tradewind.fleet.addresses import is_ipv4
from tradewind.fleet.azure import bodies
from tradewind.fleet.azure.client import Clients
from tradewind.fleet.azure.listing import Listing, addresses_of
from tradewind.fleet.azure.names import ADDRESSES, GROUPS, INTERFACES, NETWORKS, Names, location_of, region_of
from tradewind.fleet.calls import each_of
from tradewind.fleet.provider import FLEET_TAG, CallRefused, LaunchOrder, Refusal
from tradewind.model.azure import AzureSettings
from tradewind.model.records import dataclass, field

__all__ = ["Networks"]

Place = tuple[str, str]
"""A fleet and a region in Azure's words."""
Attached = dict[str, dict[str, str]]
"""Addresses by the interface's id, in lower case; see `Listing.interfaces`."""


@dataclass(frozen=True, slots=True)
class Networks:
    """Networks and security groups of fleets."""

    settings: AzureSettings
    clients: Clients
    names: Names
    listing: Listing
    outside: dict[str, frozenset[str]] = field(default_factory=dict)
    """Addresses of each fleet's machines at other providers."""

    def admit(self, fleet_id: str, addresses: Collection[str]) -> None:
        """Let machines at these addresses at other providers, and no others there, dial a fleet's data ports.

        Only IPv4 addresses can be admitted. Raises CallRefused.
        """
        self.outside[fleet_id] = frozenset(address for address in addresses if is_ipv4(address))
        attached: Attached = {}
        found, _ = self._addresses((), attached)
        groups = [group for group in self.listing.of(GROUPS) if (group.tags or {}).get(FLEET_TAG) == fleet_id]
        each_of(groups, lambda group: self._put_rules(group.name, group.location, group.tags, found.get(fleet_id, ())))

    def prepare(self, orders: Sequence[LaunchOrder]) -> dict[Place, str | Refusal]:
        """Create what new machines are attached to, and return the id of the subnet, or why there is none, by place.

        An existing security group keeps its rules until `open` changes them.
        """
        places = _first_of_each(orders)
        return dict(zip(places, each_of(list(places.values()), self._prepared), strict=True))

    def _prepared(self, order: LaunchOrder) -> str | Refusal:
        location = location_of(order.region)
        own = self.settings.subnets.get(location)
        try:
            steps = [self._create_group] if own else [self._create_group, self._create_network]
            subnets = each_of(steps, lambda step: step(order, location))
        except CallRefused as error:
            return error.refusal
        return own or subnets[-1]

    def _create_group(self, order: LaunchOrder, location: str) -> str:
        name = self.names.of_fleet(order.fleet_id, location)
        if not any(group.name.lower() == name for group in self.listing.of(GROUPS)):
            self._put_group(order, location, ())
        return ""

    def _create_network(self, order: LaunchOrder, location: str) -> str:
        name = self.names.of_fleet(order.fleet_id, location)
        if not any(network.name.lower() == name for network in self.listing.of(NETWORKS)):
            body = bodies.network_body(order, location)
            client = self.clients.network.virtual_networks
            begin = partial(client.begin_create_or_update, self.settings.resource_group, name, body)
            self.clients.finish(order.region, begin)
        return f"{self.names.id(NETWORKS, name)}/subnets/{bodies.SUBNET_NAME}"

    def open(self, orders: Sequence[LaunchOrder], attached: Attached) -> dict[LaunchOrder, Refusal]:
        """Let the machines of the fleets, including the new ones of these orders, dial each other's data ports.

        `attached` gets the addresses of all interfaces. Return the orders whose machines would not be reached, and why.
        """
        if not orders:
            return {}
        try:
            addresses, places = self._addresses(orders, attached)
        except CallRefused as error:
            return dict.fromkeys(orders, error.refusal)
        mine = _first_of_each(orders)
        for fleet, location in places:
            # Regions in which the fleet has machines already must accept the new ones, too.
            sample = next((order for order in orders if order.fleet_id == fleet), None)
            if sample is not None:
                mine.setdefault((fleet, location), sample)

        def put(place: Place) -> Refusal | None:
            try:
                self._put_group(mine[place], place[1], addresses.get(place[0], ()))
            except CallRefused as error:
                return error.refusal
            return None

        refusals = dict(zip(mine, each_of(list(mine), put), strict=True))
        found = {}
        for order in orders:
            refusal = refusals[order.fleet_id, location_of(order.region)]
            if refusal is not None:
                found[order] = refusal
        return found

    def _addresses(self, orders: Sequence[LaunchOrder], attached: Attached) -> tuple[dict[str, set[str]], set[Place]]:
        """Return the addresses of each fleet's machines, and where fleets have machines.

        New interfaces are read one by one: lists may not show them yet.
        """
        listed = self.listing.several([INTERFACES, ADDRESSES] if self.settings.public_address else [INTERFACES])
        seen = {kind: {one.name.lower(): one for one in resources} for kind, resources in listed.items()}

        def read(wanted: tuple[str, LaunchOrder]) -> Any:
            kind, order = wanted
            name = self.names.part(kind, self.names.machine(order))
            client = self.clients.network
            get = client.network_interfaces.get if kind == INTERFACES else client.public_ip_addresses.get
            return self.clients.call(order.region, partial(get, self.settings.resource_group, name))

        missing = [
            (kind, order)
            for order in orders
            for kind in listed
            if self.names.part(kind, self.names.machine(order)).lower() not in seen[kind]
        ]
        for (kind, _), one in zip(missing, each_of(missing, read), strict=True):
            seen[kind][one.name.lower()] = one
        public = {one.id.lower(): one.ip_address for one in seen.get(ADDRESSES, {}).values()}
        found: dict[str, set[str]] = {}
        places = set()
        for interface in seen[INTERFACES].values():
            fleet = (interface.tags or {}).get(FLEET_TAG)
            attached[interface.id.lower()] = addresses_of(interface, public)
            if fleet is not None:
                found.setdefault(fleet, set()).update(attached[interface.id.lower()].values())
                places.add((fleet, interface.location.replace(" ", "").lower()))
        return found, places

    def _put_group(self, order: LaunchOrder, location: str, addresses: Collection[str]) -> None:
        name = self.names.of_fleet(order.fleet_id, location)
        self._put_rules(name, location, bodies.fleet_tags(order), addresses)

    def _put_rules(self, name: str, location: str, tags: Mapping[str, str], addresses: Collection[str]) -> None:
        allowed = {*addresses, *self.outside.get(tags[FLEET_TAG], ())}
        body = bodies.group_body(tags, location, self.settings.home_cidr, allowed)
        client = self.clients.network.network_security_groups
        begin = partial(client.begin_create_or_update, self.settings.resource_group, name, body)
        self.clients.finish(region_of(location), begin)


def _first_of_each(orders: Sequence[LaunchOrder]) -> dict[Place, LaunchOrder]:
    found: dict[Place, LaunchOrder] = {}
    for order in orders:
        found.setdefault((order.fleet_id, location_of(order.region)), order)
    return found
