"""Machines in Azure, through Resource Manager.

All resources are in one resource group of the user, and have our tags. Azure starts one machine per call, so the calls
for the machines of a launch run at the same time. Each machine is created in three steps: address, interface, machine.
Deleting the machine deletes the other two and the disk. A fleet has a network and a security group in each region,
which go with its last machine there.

A machine that shuts itself down in Azure is stopped, but it is billed until it is deleted. With a user-assigned
identity (`identity`) it deletes itself; without one it is stopped, and `leftovers` shows it. In both cases a schedule
releases its hardware within a day if it still exists.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tradewind.errors import GatewayError
from tradewind.fleet.azure import bodies
from tradewind.fleet.azure.client import Clients
from tradewind.fleet.azure.console import console_of, end_of
from tradewind.fleet.azure.ending import EVICTION_S, deleting_command, eviction_command
from tradewind.fleet.azure.listing import KINDS_IN_PLURAL, SCHEDULES_VERSION, Listing, is_over, power_of
from tradewind.fleet.azure.names import ADDRESSES, DISKS, GROUPS, INTERFACES, MACHINES, SCHEDULES, Names, location_of
from tradewind.fleet.azure.networks import Networks
from tradewind.fleet.azure.offers import Market
from tradewind.fleet.azure.permissions import permission_answers
from tradewind.fleet.azure.removal import AT_ONCE_MAX, Removal
from tradewind.fleet.boot.ports import CONTROL_PORT, DATA_PORT
from tradewind.fleet.boot.user_data import programs_from_document, user_data
from tradewind.fleet.calls import each_of
from tradewind.fleet.catalog_offers import CatalogOffers
from tradewind.fleet.console_access import ConsoleAccess
from tradewind.fleet.earlier_orders import taken_name
from tradewind.fleet.provider import (
    ANY_TYPE,
    FLEET_TAG,
    KEY_TAG,
    NAME_TAG,
    CallRefused,
    Ended,
    Home,
    Host,
    LaunchOrder,
    LaunchResult,
    Leftover,
    Machine,
    Offer,
    PermissionAnswer,
    Quota,
    Refusal,
)
from tradewind.model.azure import AzureSettings, azure_from_document

if TYPE_CHECKING:
    from tradewind.fleet.providers import Settings

__all__ = ["AzureProvider", "connect"]

#: Time within which Azure finds hardware for a machine or says that it has none. Then the machine counts as launched:
#: the fleet waits for its gateway anyway. Below the time limit of a launch.
ALLOCATED_S = 40.0
#: Interval of looks at a machine that is being created [s]. It doubles from the first to the last.
LOOK_S_MIN = 0.25
LOOK_S_MAX = 4.0
#: Error of an order for a machine that exists, where Azure does not heed that it must be new.
EXISTS = "PropertyChangeNotAllowed"
NO_IDENTITY = (
    "machines without `identity` in [azure] are stopped at the end of their lease, not deleted: they are billed until "
    "`tradewind fleet sweep`"
)


class AzureProvider:
    """Rents machines in Azure."""

    kind = "azure"

    def __init__(self, settings: AzureSettings, prices: CatalogOffers) -> None:
        self._settings = settings
        self._clients = Clients(settings)
        self._names = Names(settings)
        self._listing = Listing(settings, self._clients, self._names)
        #: Held while interfaces are attached to a fleet's network, and while unused networks are removed.
        self._attaching = threading.Lock()
        self._removal = Removal(settings, self._clients, self._names, self._listing, self._attaching)
        self._networks = Networks(settings, self._clients, self._names, self._listing)
        self._market = Market(settings, self._clients, prices)
        #: Machines that this object has ordered, by fleet: disks have no tags that say whose they are.
        self._ordered: dict[str, set[str]] = {}

    @property
    def settles_s(self) -> float:
        """Time until lists show every change."""
        return self._settings.settles_s

    @property
    def warning(self) -> str | None:
        """A warning before machines are rented; None if there is nothing to say."""
        return None if self._settings.identity else NO_IDENTITY

    def document(self) -> dict[str, Any]:
        """Return the kind and the settings."""
        return {"kind": self.kind, **self._settings.document()}

    def home(self, region: str) -> Home:
        """Return this host: the lead runs beside the client. Gateways that call home reach it at its `home_cidr`."""
        if self._settings.control == "calls home":
            return Home(address=self._settings.home_cidr.partition("/")[0])
        return Home()

    def kept_s_max(self, region: str) -> float:
        """Return 0 if machines call home, and the time until their schedule stops them if they have one."""
        if self._settings.control not in ("public", "private"):
            return 0.0
        return bodies.SCHEDULED_S_MAX if self._settings.auto_shutdown else math.inf

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        """Return the sizes of the catalog that the subscription may use, in the configured regions."""
        wanted = [region for region in sorted(regions) if location_of(region) in self._settings.regions]
        return tuple(offer for offers in each_of(wanted, self._market.offers) for offer in offers)

    def quota(self, region: str) -> Quota | None:
        """Return how many machines of the default size the quota of virtual processors allows."""
        return self._market.quota(region)

    def permissions(self) -> tuple[PermissionAnswer, ...]:
        """Return which actions of the smallest roles this login may do. Raises CallRefused if Azure does not say."""
        return tuple(permission_answers(self._settings, self._clients))

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        """Create machines concurrently. A machine that was ordered before with the same key is returned instead."""
        fleets = {order.fleet_id for order in orders}
        for order in orders:
            self._ordered.setdefault(order.fleet_id, set()).add(self._names.machine(order))
        there = [vm for vm in self._listing.of(MACHINES) if (vm.tags or {}).get(FLEET_TAG) in fleets]
        results = dict(zip(orders, each_of(orders, partial(self._launched_before, there), AT_ONCE_MAX), strict=True))
        fresh = [order for order in orders if results[order] is None]
        able, refused = self._attach(fresh)
        addresses: dict[str, dict[str, str]] = {}
        steps: list[Callable[[], Any]] = [lambda: self._networks.open(list(able), addresses)]
        steps += [partial(self._started, order, interface) for order, interface in able.items()]
        rules, *started = each_of(steps, _call, AT_ONCE_MAX)
        for order, vm in zip(able, started, strict=True):
            why = vm if isinstance(vm, Refusal) else rules.get(order)
            if why is None:
                results[order] = LaunchResult(order, self._listing.described(vm, addresses))
            else:
                refused[order] = why
        each_of(list(refused), lambda order: self._removal.discard(self._names.machine(order)), AT_ONCE_MAX)
        results |= {order: LaunchResult(order, refusal=why) for order, why in refused.items()}
        return [results[order] or LaunchResult(order, refusal=_unknown(order)) for order in orders]

    def _attach(self, orders: Sequence[LaunchOrder]) -> tuple[dict[LaunchOrder, str], dict[LaunchOrder, Refusal]]:
        """Create what machines are attached to, and return the interface of each order, or why there is none.

        Networks and addresses do not depend on each other, so they are created at the same time.
        """
        with self._attaching:
            steps: list[Callable[[], Any]] = [lambda: self._networks.prepare(orders)]
            steps += [partial(self._address, order) for order in orders if self._settings.public_address]
            networks, *addresses = each_of(steps, _call, AT_ONCE_MAX)
            refused = {order: why for order, why in zip(orders, addresses, strict=False) if why is not None}
            able = [order for order in orders if order not in refused]
            attached = each_of(able, lambda order: self._interface(order, networks), AT_ONCE_MAX)
        found = dict(zip(able, attached, strict=True))
        refused |= {order: one for order, one in found.items() if isinstance(one, Refusal)}
        return {order: one for order, one in found.items() if isinstance(one, str)}, refused

    def _launched_before(self, there: Sequence[Any], order: LaunchOrder) -> LaunchResult | None:
        """Return the machine of an order that was launched before, or why its name is taken; None for a new order."""
        if order.join is None:
            words = "a machine in a cloud needs an identity: plain hops are for emulated networks"
            return LaunchResult(order, refusal=Refusal("bad request", words))
        if self._settings.control == "none":
            words = "machines without public addresses call home, so home_cidr of [fleet] must be one address"
            return LaunchResult(order, refusal=Refusal("bad request", words))
        if location_of(order.region) not in self._settings.regions:
            words = f"{order.region} is not among the regions of [azure]"
            return LaunchResult(order, refusal=Refusal("bad request", words))
        for listed in there:
            if (listed.tags[FLEET_TAG], listed.tags.get(NAME_TAG)) != (order.fleet_id, order.name):
                continue
            vm = self._listing.machine(listed.name)
            if vm is None:
                continue
            if is_over(vm):
                self._removal.remove([(MACHINES, vm.name)], force=True)
            elif vm.tags.get(KEY_TAG) == order.key:
                if (why := _refusal_of(partial(self._schedule, order, vm.name))) is not None:
                    return LaunchResult(order, refusal=why)
                return LaunchResult(order, self._listing.described(vm, self._listing.interfaces()))
            else:
                return taken_name(order)
        return None

    def _address(self, order: LaunchOrder) -> Refusal | None:
        """Create a machine's public address; return why it was refused."""
        location, name = location_of(order.region), self._names.part(ADDRESSES, self._names.machine(order))
        body = bodies.address_body(order, location, self._settings)
        client = self._clients.network.public_ip_addresses
        begin = partial(client.begin_create_or_update, self._settings.resource_group, name, body)
        return _refusal_of(lambda: self._clients.finish(order.region, begin))

    def _interface(self, order: LaunchOrder, networks: Mapping[tuple[str, str], str | Refusal]) -> str | Refusal:
        """Create a machine's interface in the network of its fleet; return its id, or why it was refused."""
        location, machine = location_of(order.region), self._names.machine(order)
        subnet = networks[order.fleet_id, location]
        if isinstance(subnet, Refusal):
            return subnet
        address = None
        if self._settings.public_address:
            address = self._names.id(ADDRESSES, self._names.part(ADDRESSES, machine))
        rules = self._names.id(GROUPS, self._names.of_fleet(order.fleet_id, location))
        name = self._names.part(INTERFACES, machine)
        body = bodies.interface_body(order, location, subnet, rules, address)
        client = self._clients.network.network_interfaces
        begin = partial(client.begin_create_or_update, self._settings.resource_group, name, body)
        refusal = _refusal_of(lambda: self._clients.finish(order.region, begin))
        return refusal or self._names.id(INTERFACES, name)

    def _started(self, order: LaunchOrder, interface: str) -> Any:
        """Create a machine; return it as Azure shows it, or why it was refused."""
        machine = self._names.machine(order)
        try:
            poller = self._begin(order, machine, interface)
            is_scheduled = self._is_scheduled_early(order, machine)
            vm = self._allocated(order, machine, poller)
            if not is_scheduled:
                self._schedule(order, machine)
        except CallRefused as error:
            return error.refusal
        except GatewayError as error:
            return Refusal("bad request", str(error))
        return vm

    def _begin(self, order: LaunchOrder, machine: str, interface: str) -> Any:
        """Begin to create a machine, and return the poller; None if it exists already, because an answer was lost."""
        size = order.type if order.type not in (None, ANY_TYPE) else self._market.default_size
        body = bodies.machine_body(
            order,
            machine,
            location_of(order.region),
            size or "",
            self._settings,
            disk=self._names.part(DISKS, machine),
            interface_id=interface,
            user_data=self._user_data(order, machine),
        )
        begin = self._clients.compute.virtual_machines.begin_create_or_update
        only_new = {"headers": {"If-None-Match": "*"}}
        try:
            return self._clients.begin(
                order.region, partial(begin, self._settings.resource_group, machine, body, **only_new)
            )
        except CallRefused as error:
            refusal = error.refusal
            may_exist = refusal.kind == "transient" or EXISTS in refusal.reason
            if not may_exist or self._listing.machine(machine) is None:
                raise
            return None

    def _user_data(self, order: LaunchOrder, machine: str) -> str:
        assert order.join is not None
        settings = self._settings
        data = f"0.0.0.0:{DATA_PORT}" if order.peers else None
        if settings.control == "calls home":
            join = order.join.calling(data)
        else:
            join = order.join.listening(f"0.0.0.0:{CONTROL_PORT}", data)
        ending = None
        if settings.identity is not None:
            ending = deleting_command(settings.endpoint, self._names.id(MACHINES, machine), settings.identity)
        return user_data(
            join,
            programs_from_document(settings.programs),
            order.lease.seconds,
            order.region,
            proxy=settings.proxy,
            end_command=ending,
            notice_s=EVICTION_S if order.spot else None,
            notice_command=eviction_command() if order.spot else None,
        )

    def _allocated(self, order: LaunchOrder, machine: str, poller: Any) -> Any:
        """Return a machine once it has hardware. Azure reports its creation as done only when it has booted."""
        deadline_s, look_s = time.monotonic() + ALLOCATED_S, LOOK_S_MIN
        while True:
            if poller is not None and poller.done():
                self._clients.call(order.region, poller.result)
            vm = self._listing.machine(machine)
            if vm is None:
                raise CallRefused(
                    Refusal("transient", f"{order.region}: machine {order.name} is gone after its launch")
                )
            if poller is None and vm.provisioning_state == "Failed" and is_over(vm):
                raise CallRefused(Refusal("transient", f"{order.region}: machine {order.name} could not be created"))
            if power_of(vm) == "running" or time.monotonic() > deadline_s:
                return vm
            if poller is None:
                time.sleep(look_s)
            else:
                self._clients.call(order.region, partial(poller.wait, look_s))
            look_s = min(LOOK_S_MAX, look_s * 2)

    def _is_scheduled_early(self, order: LaunchOrder, machine: str) -> bool:
        """Schedule the end of a machine that has no hardware yet; return whether Azure has accepted that.

        If the client dies while it waits for the hardware, nobody else schedules it. Raises CallRefused if a permission
        is missing.
        """
        try:
            self._schedule(order, machine)
        except CallRefused as error:
            if error.refusal.kind == "permission":
                raise
            return False
        return True

    def _schedule(self, order: LaunchOrder, machine: str) -> None:
        """Let Azure stop a machine once a day: its own timer may fail, and its identity may lack the permission."""
        if not self._settings.auto_shutdown:
            return
        body = bodies.schedule_body(order, location_of(order.region), self._names.id(MACHINES, machine))
        path = self._names.id(SCHEDULES, self._names.part(SCHEDULES, machine))
        self._clients.send(order.region, "PUT", path, SCHEDULES_VERSION, body)

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """Return the machines with these tags. A stopped machine counts as ended: its gateway does not run."""
        found = self._listing.ours(tags)
        interfaces = self._listing.interfaces() if found else {}
        machines = [self._listing.described(vm, interfaces) for vm in found]
        return tuple(sorted(machines, key=lambda machine: (machine.name, machine.id)))

    def admit(self, fleet_id: str, addresses: Collection[str]) -> None:
        """Let machines at these addresses at other providers dial a fleet's data ports. Replaces the last ones."""
        with self._attaching:
            self._networks.admit(fleet_id, addresses)

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        """Delete machines and other resources of ours by their ids, concurrently."""
        parsed = {one: self._names.parsed(one) for one in ids}
        wanted = [found for found in parsed.values() if found is not None]
        refusals: Mapping[tuple[str, str], Refusal] = {}
        if wanted:
            refusals = self._removal.remove(wanted, force=grace_s <= 0)
        return [Ended(one, refusal=None if found is None else refusals.get(found)) for one, found in parsed.items()]

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return all resources of ours in the resource group."""
        return tuple(self._listing.leftovers())

    @property
    def leaves(self) -> tuple[str, ...]:
        """Kinds of resources that a fleet may leave."""
        return tuple(KINDS_IN_PLURAL[kind] for kind in self._listing.kinds)

    def left_of(self, fleet_id: str) -> tuple[Leftover, ...]:
        """Return what is left of a fleet. Raises CallRefused."""
        disks = {self._names.id(DISKS, self._names.part(DISKS, one)) for one in self._ordered.get(fleet_id, ())}
        return tuple(one for one in self.leftovers() if one.tags.get(FLEET_TAG) == fleet_id or one.id in disks)

    def host(self, machine: Machine) -> Host | None:
        """Return the recorded console of a machine; None without `boot_diagnostics`."""
        if not self._settings.boot_diagnostics:
            return None
        return ConsoleAccess(machine, partial(end_of, self._listing), partial(console_of, self._listing))


def _call(step: Callable[[], Any]) -> Any:
    return step()


def _refusal_of(step: Callable[[], Any]) -> Refusal | None:
    """Do something; return why it was refused."""
    try:
        step()
    except CallRefused as error:
        return error.refusal
    return None


def _unknown(order: LaunchOrder) -> Refusal:
    return Refusal("transient", f"{order.region}: the order was not answered")


def connect(document: Mapping[str, Any], settings: Settings) -> AzureProvider:
    """Return the provider of the subscription that the document names."""
    return AzureProvider(azure_from_document(document), CatalogOffers(AzureProvider.kind, settings.catalog))
