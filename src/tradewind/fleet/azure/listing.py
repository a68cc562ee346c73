"""Reading machines and their addresses from the lists of a resource group."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tradewind.fleet.azure.bodies import LEASE_TAG
from tradewind.fleet.azure.client import Clients, NotThere
from tradewind.fleet.azure.names import (
    ADDRESSES,
    DISKS,
    GROUPS,
    INTERFACES,
    MACHINES,
    NETWORKS,
    SCHEDULES,
    Names,
    is_own_disk,
    machine_of,
    region_of,
)
from tradewind.fleet.boot.ports import CONTROL_PORT
from tradewind.fleet.calls import each_of
from tradewind.fleet.provider import FLEET_TAG, NAME_TAG, OWNER_TAG, CallRefused, Lease, Leftover, Machine
from tradewind.model.azure import AzureSettings
from tradewind.model.records import dataclass, field

__all__ = ["KINDS_IN_PLURAL", "Listing", "is_ours", "is_over", "power_of"]

#: Name of each type among the leftovers.
KINDS = {
    MACHINES: "machine",
    INTERFACES: "interface",
    ADDRESSES: "address",
    DISKS: "disk",
    SCHEDULES: "schedule",
    GROUPS: "security group",
    NETWORKS: "network",
}
#: The same in the plural.
KINDS_IN_PLURAL = {kind: f"{name}es" if name.endswith("ss") else f"{name}s" for kind, name in KINDS.items()}
STOPPED = "stopped machine, which is still billed"
SCHEDULES_VERSION = "2018-09-15"


def power_of(vm: Any) -> str:
    """Return the power state of a machine that was read with its instance view: `running`, `stopped`, …; else empty."""
    view = getattr(vm, "instance_view", None)
    codes = [status.code or "" for status in (view.statuses if view is not None else None) or ()]
    return next((code.partition("/")[2] for code in codes if code.startswith("PowerState/")), "")


def is_over(vm: Any) -> bool:
    """Return whether a machine has ended: it stopped itself, was stopped, or never got its hardware.

    It is still billed in the first case.
    """
    power = power_of(vm)
    failed = vm.provisioning_state == "Failed" and power != "running"
    return failed or vm.provisioning_state == "Deleting" or power in ("stopped", "deallocated", "deallocating")


def is_ours(kind: str, resource: Any) -> bool:
    """Return whether a resource is ours. Others may have theirs in the same resource group."""
    return FLEET_TAG in (resource.tags or {}) or (kind == DISKS and is_own_disk(resource.name))


@dataclass(frozen=True, slots=True)
class Listing:
    """Reads what there is in the resource group."""

    settings: AzureSettings
    clients: Clients
    names: Names
    states: dict[str, tuple[float, Any]] = field(default_factory=dict)
    """Machines with their states, and when they were read, by name. Azure limits reads to about 25 per second."""

    def of(self, kind: str) -> list[Any]:
        """Return all resources of a type, of ours and others. Raises CallRefused."""
        group, compute, network = self.settings.resource_group, self.clients.compute, self.clients.network
        if kind == SCHEDULES:
            found = self.clients.pages(group, f"{self.names.group}/providers/{kind}", SCHEDULES_VERSION)
            return [_Schedule(one["name"], one.get("tags") or {}, one.get("location", "")) for one in found]
        lists: Mapping[str, Callable[[], Any]] = {
            MACHINES: lambda: compute.virtual_machines.list(group),
            DISKS: lambda: compute.disks.list_by_resource_group(group),
            INTERFACES: lambda: network.network_interfaces.list(group),
            ADDRESSES: lambda: network.public_ip_addresses.list(group),
            GROUPS: lambda: network.network_security_groups.list(group),
            NETWORKS: lambda: network.virtual_networks.list(group),
        }
        return self.clients.list(group, lists[kind])

    def several(self, kinds: Sequence[str]) -> dict[str, list[Any]]:
        """Return the resources of several types, which are listed concurrently. Raises CallRefused."""
        return dict(zip(kinds, each_of(kinds, self.of), strict=True))

    @property
    def kinds(self) -> list[str]:
        """The types of resources that these settings create."""
        found = [MACHINES, INTERFACES, DISKS, GROUPS]
        found += [ADDRESSES] if self.settings.public_address else []
        found += [NETWORKS] if set(self.settings.regions) - self.settings.subnets.keys() else []
        return found + ([SCHEDULES] if self.settings.auto_shutdown else [])

    def machine(self, name: str) -> Any | None:
        """Return a machine with its state; None if it is gone. Raises CallRefused."""
        group = self.settings.resource_group
        self.states.pop(name, None)
        try:
            vm = self.clients.call(
                name, lambda: self.clients.compute.virtual_machines.get(group, name, expand="instanceView")
            )
        except NotThere:
            return None
        self.states[name] = (time.monotonic(), vm)
        return vm

    def _recent(self, name: str) -> Any | None:
        """Return a machine with a state that is at most `settles_s` old; None if it is gone. Raises CallRefused."""
        read_s, vm = self.states.get(name, (float("-inf"), None))
        return vm if time.monotonic() - read_s < self.settings.settles_s else self.machine(name)

    def ours(self, tags: Mapping[str, str]) -> list[Any]:
        """Return our machines with all these tags, with their states. Raises CallRefused."""
        listed = [vm for vm in self.of(MACHINES) if FLEET_TAG in (vm.tags or {})]
        wanted = [vm.name for vm in listed if tags.items() <= vm.tags.items()]
        return [vm for vm in each_of(wanted, self._recent) if vm is not None]

    def interfaces(self) -> dict[str, dict[str, str]]:
        """Return the addresses of each interface by its id in lower case; the public one comes first."""
        kinds = [INTERFACES, ADDRESSES] if self.settings.public_address else [INTERFACES]
        listed = self.several(kinds)
        public = {one.id.lower(): one.ip_address for one in listed.get(ADDRESSES, ())}
        return {one.id.lower(): addresses_of(one, public) for one in listed[INTERFACES]}

    def described(self, vm: Any, interfaces: Mapping[str, Mapping[str, str]]) -> Machine:
        """Return a machine of ours as the fleet sees it."""
        tags = dict(vm.tags)
        attached = vm.network_profile.network_interfaces or ()
        addresses = dict(interfaces.get(attached[0].id.lower(), {})) if attached else {}
        dialled = addresses.get(self.settings.control)
        lease = tags.get(LEASE_TAG, "")
        return Machine(
            self.names.id(MACHINES, vm.name),
            tags.get(NAME_TAG, vm.name),
            region_of(vm.location),
            _text(vm.hardware_profile.vm_size),
            vm.zones[0] if vm.zones else None,
            spot=_text(vm.priority) == "Spot",
            launched_unix_s=vm.time_created.timestamp() if vm.time_created else None,
            ended=is_over(vm),
            addresses=addresses,
            control=f"{dialled}:{CONTROL_PORT}" if dialled else None,
            inbound=self.settings.public_address,
            network="azure" if self.settings.joined and not self.settings.public_address else None,
            lease=Lease(int(lease), tags[OWNER_TAG]) if lease.isdecimal() and OWNER_TAG in tags else None,
            tags=tags,
        )

    def leftovers(self) -> list[Leftover]:
        """Return all resources of ours. Disks have no tags: they have those of their machine. Raises CallRefused."""
        listed = self.several(self.kinds)
        found = []
        machines = {vm.name.lower(): dict(vm.tags) for vm in listed[MACHINES] if FLEET_TAG in (vm.tags or {})}
        over = {vm.name.lower() for vm in self._states(list(machines)) if is_over(vm)}
        for kind, resources in listed.items():
            for one in resources:
                if not is_ours(kind, one):
                    continue
                tags = dict(one.tags or {})
                if FLEET_TAG not in tags:
                    tags = machines.get(machine_of(kind, one.name.lower()), {})
                name = STOPPED if kind == MACHINES and one.name.lower() in over else KINDS[kind]
                found.append(Leftover(self.names.id(kind, one.name), name, region_of(one.location), tags))
        return found

    def _states(self, names: Sequence[str]) -> list[Any]:
        def look(name: str) -> Any:
            try:
                return self.machine(name)
            except CallRefused:
                return None  # It is a leftover whatever its state is.

        return [vm for vm in each_of(names, look) if vm is not None]


def _text(value: Any) -> str:
    """Return a value that the client reads as text, or as an enumeration's member if it knows it."""
    return str(getattr(value, "value", value) or "")


def addresses_of(interface: Any, public: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of an interface by network. `public` has the public addresses by id in lower case."""
    settings = (interface.ip_configurations or [None])[0]
    if settings is None:
        return {}
    found = {}
    if settings.public_ip_address is not None and (address := public.get(settings.public_ip_address.id.lower())):
        found["public"] = address
    if settings.private_ip_address:
        found["private"] = settings.private_ip_address
    return found


@dataclass(frozen=True, slots=True)
class _Schedule:
    name: str
    tags: dict[str, str]
    location: str
