"""The resources that are created, as Resource Manager's JSON."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta, timezone
from functools import cache
from ipaddress import IPv4Network, collapse_addresses
from typing import Any

from tradewind.fleet.boot.ports import CONTROL_PORT, DATA_PORT
from tradewind.fleet.provider import FLEET_TAG, OWNER_TAG, LaunchOrder
from tradewind.model.azure import AzureSettings

__all__ = [
    "LEASE_TAG",
    "ROLE_TAG",
    "SCHEDULED_S_MAX",
    "address_body",
    "group_body",
    "interface_body",
    "machine_body",
    "network_body",
    "schedule_body",
    "tags_of",
]

#: Facts about a machine that its listing restores.
LEASE_TAG = "tradewind-lease"
ROLE_TAG = "tradewind-role"
#: Addresses of a fleet's own network. Networks of fleets are not connected, so all of them have the same.
NETWORK = "10.97.0.0/16"
SUBNET_NAME = "gateways"
#: The user whose login Azure demands. Nobody has its key.
USER = "tradewind"
#: The first priority of our rules. Azure's own rules follow ours: they would open all ports to the whole network.
FIRST_PRIORITY = 200
#: A schedule stops a machine at the minute of its launch, on the next day.
SCHEDULE_AFTER = timedelta(hours=23, minutes=59)
#: No machine with a schedule runs for longer: the seconds of the minute are cut off.
SCHEDULED_S_MAX = (SCHEDULE_AFTER - timedelta(minutes=1)).total_seconds()


def tags_of(order: LaunchOrder) -> dict[str, str]:
    """Return the tags of a machine and of what belongs to it."""
    return {**order.tags, LEASE_TAG: str(order.lease.seconds), ROLE_TAG: order.role}


def fleet_tags(order: LaunchOrder) -> dict[str, str]:
    """Return the tags of what belongs to a fleet."""
    return {FLEET_TAG: order.fleet_id, OWNER_TAG: order.lease.owner}


def network_body(order: LaunchOrder, location: str) -> dict[str, Any]:
    """Return a fleet's network in a region."""
    subnet = {"name": SUBNET_NAME, "properties": {"addressPrefix": NETWORK}}
    properties = {"addressSpace": {"addressPrefixes": [NETWORK]}, "subnets": [subnet]}
    return {"location": location, "tags": fleet_tags(order), "properties": properties}


def group_body(tags: Mapping[str, str], location: str, home_cidr: str, addresses: Collection[str]) -> dict[str, Any]:
    """Return a fleet's security group in a region.

    Home may dial the control port. Home and the fleet's machines, which have these `addresses`, may dial the data port.
    """
    # Azure refuses rules whose addresses overlap.
    data = [str(one) for one in collapse_addresses(IPv4Network(one) for one in (home_cidr, *addresses))]
    rules = [
        _rule("control", FIRST_PRIORITY, CONTROL_PORT, [home_cidr]),
        _rule("data", FIRST_PRIORITY + 1, DATA_PORT, data),
        _rule("nothing-else", FIRST_PRIORITY + 2, None, ["*"]),
    ]
    return {"location": location, "tags": dict(tags), "properties": {"securityRules": rules}}


def _rule(name: str, priority: int, port: int | None, sources: list[str]) -> dict[str, Any]:
    source = {"sourceAddressPrefix": sources[0]} if len(sources) == 1 else {"sourceAddressPrefixes": sources}
    properties = {
        **source,
        "priority": priority,
        "direction": "Inbound",
        "access": "Deny" if port is None else "Allow",
        "protocol": "*" if port is None else "Tcp",
        "sourcePortRange": "*",
        "destinationPortRange": "*" if port is None else str(port),
        "destinationAddressPrefix": "*",
    }
    return {"name": name, "properties": properties}


def address_body(order: LaunchOrder, location: str, settings: AzureSettings) -> dict[str, Any]:
    """Return a machine's public address. Its routing decides where traffic leaves Microsoft's network.

    The network tier of the order replaces the routing of the settings.
    """
    properties: dict[str, Any] = {"publicIPAllocationMethod": "Static", "deleteOption": "Delete"}
    if (order.network.network_tier or ("standard" if settings.routing == "internet" else "premium")) == "standard":
        properties["ipTags"] = [{"ipTagType": "RoutingPreference", "tag": "Internet"}]
    body = {"location": location, "tags": tags_of(order), "sku": {"name": "Standard"}, "properties": properties}
    # A machine in a zone takes no address of the whole region.
    return body if order.zone is None else {**body, "zones": [order.zone]}


def interface_body(
    order: LaunchOrder, location: str, subnet_id: str, group_id: str, address_id: str | None
) -> dict[str, Any]:
    """Return a machine's interface."""
    attached: dict[str, Any] = {"subnet": {"id": subnet_id}}
    if address_id is not None:
        attached["publicIPAddress"] = {"id": address_id, "properties": {"deleteOption": "Delete"}}
    properties = {
        # Without it, a machine does not reach the rate of its size.
        "enableAcceleratedNetworking": True,
        "networkSecurityGroup": {"id": group_id},
        "ipConfigurations": [{"name": "one", "properties": attached}],
    }
    return {"location": location, "tags": tags_of(order), "properties": properties}


def machine_body(
    order: LaunchOrder,
    name: str,
    location: str,
    size: str,
    settings: AzureSettings,
    *,
    disk: str,
    interface_id: str,
    user_data: str,
) -> dict[str, Any]:
    """Return a machine. Whatever belongs to it is deleted with it.

    It has no security profile: `Standard` needs a feature that few subscriptions have, and without one Azure chooses.
    """
    linux = {
        "disablePasswordAuthentication": True,
        "ssh": {"publicKeys": [{"path": f"/home/{USER}/.ssh/authorized_keys", "keyData": login_key()}]},
    }
    properties: dict[str, Any] = {
        "hardwareProfile": {"vmSize": size},
        "storageProfile": {
            "imageReference": _image(settings.image),
            "osDisk": {
                "name": disk,
                "createOption": "FromImage",
                "deleteOption": "Delete",
                "managedDisk": {"storageAccountType": "StandardSSD_LRS"},
            },
        },
        "osProfile": {
            "computerName": name,
            "adminUsername": USER,
            "customData": base64.b64encode(user_data.encode()).decode(),
            "linuxConfiguration": linux,
        },
        "networkProfile": {"networkInterfaces": [{"id": interface_id, "properties": {"deleteOption": "Delete"}}]},
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": settings.boot_diagnostics}},
    }
    if order.spot:
        # -1: up to the price on demand, so that a machine is evicted only for capacity.
        properties |= {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": -1}}
    body: dict[str, Any] = {"location": location, "tags": tags_of(order), "properties": properties}
    if order.zone is not None:
        body["zones"] = [order.zone]
    if settings.identity is not None:
        body["identity"] = {"type": "UserAssigned", "userAssignedIdentities": {settings.identity: {}}}
    return body


def schedule_body(order: LaunchOrder, location: str, machine_id: str) -> dict[str, Any]:
    """Return a schedule that stops a machine once a day."""
    when = datetime.now(timezone.utc) + SCHEDULE_AFTER
    properties = {
        "status": "Enabled",
        "taskType": "ComputeVmShutdownTask",
        "dailyRecurrence": {"time": f"{when:%H%M}"},
        "timeZoneId": "UTC",
        "targetResourceId": machine_id,
    }
    return {"location": location, "tags": tags_of(order), "properties": properties}


def _image(image: str) -> dict[str, str]:
    if image.startswith("/"):
        return {"id": image}
    return dict(zip(("publisher", "offer", "sku", "version"), image.split(":"), strict=True))


@cache
def login_key() -> str:
    """Return a public SSH key, which Azure demands of each Linux machine. Its private key is not kept."""
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = generate_private_key(public_exponent=65537, key_size=2048).public_key()
    return str(public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH), "ascii")
