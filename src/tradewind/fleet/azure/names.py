"""Names and ids of our resources. A machine's name follows from its order: a repeated order names the same machine."""

from __future__ import annotations

import re
from hashlib import sha256

from tradewind.fleet.provider import LaunchOrder
from tradewind.model.azure import AzureSettings
from tradewind.model.records import dataclass

__all__ = ["PREFIX", "Names", "is_own_disk", "location_of", "machine_of", "region_of"]

PREFIX = "tradewind-"
#: Length of an order's name within that of a machine. A host name in Azure has at most 64 letters.
ORDER_CHARS_MAX = 32

MACHINES = "Microsoft.Compute/virtualMachines"
DISKS = "Microsoft.Compute/disks"
INTERFACES = "Microsoft.Network/networkInterfaces"
ADDRESSES = "Microsoft.Network/publicIPAddresses"
GROUPS = "Microsoft.Network/networkSecurityGroups"
NETWORKS = "Microsoft.Network/virtualNetworks"
SCHEDULES = "Microsoft.DevTestLab/schedules"
SCHEDULE_PREFIX = "shutdown-computevm-"

#: Endings of the names of what belongs to a machine.
_PARTS = {INTERFACES: "-nic", ADDRESSES: "-ip", DISKS: "-disk"}
_DISK = re.compile(rf"{PREFIX}.{{1,{ORDER_CHARS_MAX}}}-[0-9a-f]{{12}}{_PARTS[DISKS]}")


def location_of(region: str) -> str:
    """Return Azure's name of a region: `westeurope` for `azure:westeurope`."""
    return region.rpartition(":")[2]


def region_of(location: str) -> str:
    """Return our name of a region."""
    return f"azure:{location.replace(' ', '').lower()}"


def machine_of(kind: str, name: str) -> str:
    """Return the name of the machine to which a resource belongs, by its own name."""
    if kind == SCHEDULES:
        return name.removeprefix(SCHEDULE_PREFIX)
    return name.removesuffix(_PARTS.get(kind, ""))


def is_own_disk(name: str) -> bool:
    """Return whether a disk has the name of a machine's disk. Disks have no tags, and others may begin alike."""
    return _DISK.fullmatch(name.lower()) is not None


@dataclass(frozen=True, slots=True)
class Names:
    """Names and ids of the resources in one resource group."""

    settings: AzureSettings

    def id(self, kind: str, name: str) -> str:
        """Return the id of a resource, always in the same letters: Azure ignores their case."""
        return f"{self.group}/providers/{kind}/{name}"

    @property
    def group(self) -> str:
        """Return the id of the resource group."""
        return f"/subscriptions/{self.settings.subscription}/resourceGroups/{self.settings.resource_group}"

    def machine(self, order: LaunchOrder) -> str:
        """Return the name of an order's machine."""
        digest = sha256(f"{order.fleet_id} {order.name} {order.key}".encode()).hexdigest()
        return f"{PREFIX}{order.name[:ORDER_CHARS_MAX]}-{digest[:12]}"

    def part(self, kind: str, machine: str) -> str:
        """Return the name of what belongs to a machine: its interface, address, disk or schedule."""
        return f"{SCHEDULE_PREFIX}{machine}" if kind == SCHEDULES else f"{machine}{_PARTS[kind]}"

    def of_fleet(self, fleet_id: str, location: str) -> str:
        """Return the name of a fleet's network and of its security group in a region."""
        return f"{PREFIX}{sha256(fleet_id.encode()).hexdigest()[:12]}-{location}"

    def parsed(self, resource_id: str) -> tuple[str, str] | None:
        """Return the type and the name of a resource of this group by its id; None for another id."""
        parts = resource_id.split("/")
        if len(parts) != 9 or "/".join(parts[:5]).lower() != self.group.lower():
            return None
        kinds = {kind.lower(): kind for kind in (MACHINES, DISKS, INTERFACES, ADDRESSES, GROUPS, NETWORKS, SCHEDULES)}
        kind = kinds.get("/".join(parts[6:8]).lower())
        return None if kind is None else (kind, parts[8])
