"""The smallest roles for machines in Azure, as custom roles of `az role definition create`."""

from __future__ import annotations

from typing import Any

from tradewind.model.azure import AzureSettings

__all__ = [
    "DELEGATION_ACTIONS",
    "DIAGNOSTICS_ACTIONS",
    "IDENTITY_ACTIONS",
    "JOIN_SUBNET",
    "MACHINE_ACTIONS",
    "OWNER_ACTIONS",
    "PERMISSIONS_ACTION",
    "READER_ACTIONS",
    "owner_actions",
    "policy",
]

#: Action with which `init` and `doctor` list the permissions of a login.
PERMISSIONS_ACTION = "Microsoft.Authorization/permissions/read"
#: Action at the subnets of the user, or in the resource group for our own.
JOIN_SUBNET = "Microsoft.Network/virtualNetworks/subnets/join/action"
#: Actions of the owner of fleets in the resource group.
OWNER_ACTIONS = (
    PERMISSIONS_ACTION,
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/disks/read",
    # For the disk that is created with a machine.
    "Microsoft.Compute/disks/write",
    "Microsoft.Compute/disks/delete",
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkInterfaces/delete",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/networkSecurityGroups/read",
    "Microsoft.Network/networkSecurityGroups/write",
    "Microsoft.Network/networkSecurityGroups/delete",
    "Microsoft.Network/networkSecurityGroups/join/action",
    JOIN_SUBNET,
    "Microsoft.Network/locations/operations/read",
)
#: In addition, with public addresses.
ADDRESS_ACTIONS = (
    "Microsoft.Network/publicIPAddresses/read",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/publicIPAddresses/delete",
    "Microsoft.Network/publicIPAddresses/join/action",
)
#: In addition, if a region has no subnet of the user.
NETWORK_ACTIONS = (
    "Microsoft.Network/virtualNetworks/read",
    "Microsoft.Network/virtualNetworks/write",
    "Microsoft.Network/virtualNetworks/delete",
)
#: In addition, with an identity of the machines; with schedules.
IDENTITY_ACTIONS = ("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",)
SCHEDULE_ACTIONS = (
    "Microsoft.DevTestLab/schedules/read",
    "Microsoft.DevTestLab/schedules/write",
    "Microsoft.DevTestLab/schedules/delete",
)
DIAGNOSTICS_ACTIONS = ("Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action",)
#: Quotas and sizes belong to the subscription. Without this role, a quota is noticed when a machine is refused.
READER_ACTIONS = ("Microsoft.Compute/locations/usages/read", "Microsoft.Compute/skus/read")
#: Action of who lends gateways access to storage accounts with a sign-in to Entra ID: of the owner, at each account.
DELEGATION_ACTIONS = ("Microsoft.Storage/storageAccounts/blobServices/generateUserDelegationKey/action",)
#: Actions of a machine with its own identity.
MACHINE_ACTIONS = ("Microsoft.Compute/virtualMachines/delete",)


def owner_actions(settings: AzureSettings) -> list[str]:
    """Return the actions in the resource group that these settings need."""
    actions = [*OWNER_ACTIONS]
    actions += ADDRESS_ACTIONS if settings.public_address else ()
    actions += NETWORK_ACTIONS if set(settings.regions) - settings.subnets.keys() else ()
    actions += IDENTITY_ACTIONS if settings.identity else ()
    actions += SCHEDULE_ACTIONS if settings.auto_shutdown else ()
    actions += DIAGNOSTICS_ACTIONS if settings.boot_diagnostics else ()
    return actions


def policy(settings: AzureSettings) -> list[dict[str, Any]]:
    """Return the custom roles that these settings need, each with the scope at which to assign it."""
    subscription = f"/subscriptions/{settings.subscription}"
    group = f"{subscription}/resourceGroups/{settings.resource_group}"
    roles = [
        _role("Tradewind fleets", "Rents and ends machines in one resource group", owner_actions(settings), group),
        _role("Tradewind quotas", "Reads quotas and machine sizes", READER_ACTIONS, subscription),
        _role("Tradewind lending", "Limits the access that machines get to storage", DELEGATION_ACTIONS, subscription),
    ]
    if settings.identity:
        roles.append(_role("Tradewind machine", "Lets a machine delete itself", MACHINE_ACTIONS, group))
    return roles


def _role(name: str, description: str, actions: tuple[str, ...] | list[str], scope: str) -> dict[str, Any]:
    return {
        "Name": name,
        "IsCustom": True,
        "Description": description,
        "Actions": sorted(actions),
        "NotActions": [],
        "AssignableScopes": [scope],
    }
