"""The smallest role with which the provider works."""

from __future__ import annotations

from tradewind.model.gcp import GcpSettings

__all__ = ["PERMISSIONS", "policy", "wanted"]

#: Permissions of a custom role in the project. Each of them is needed for the calls named beside it.
PERMISSIONS = (
    "compute.disks.create",  # launch
    "compute.disks.delete",  # remove leftovers
    "compute.disks.get",  # remove leftovers
    "compute.disks.list",  # find leftovers
    "compute.disks.setLabels",  # launch
    "compute.instances.create",  # launch
    "compute.instances.delete",  # terminate
    "compute.instances.get",  # launch, terminate
    "compute.instances.getSerialPortOutput",  # show the end of a machine's log
    "compute.instances.list",  # list machines
    "compute.instances.setLabels",  # launch
    "compute.instances.setMetadata",  # launch: the startup script
    "compute.instances.setTags",  # launch: the firewall rules are for a network tag
    "compute.regionOperations.get",  # launch
    "compute.regions.get",  # quota, zones
    "compute.subnetworks.use",  # launch
    "compute.zoneOperations.get",  # terminate
)
#: For machines with public addresses.
FOR_ADDRESSES = ("compute.subnetworks.useExternalIp",)
#: For firewall rules of our own.
FOR_FIREWALL = (
    "compute.firewalls.create",
    "compute.firewalls.delete",
    "compute.firewalls.get",  # change: a patch reads the rule
    "compute.firewalls.list",
    "compute.firewalls.update",
    "compute.globalOperations.get",
    "compute.networks.updatePolicy",
)
#: For machines with an identity.
FOR_ACCOUNT = ("compute.instances.setServiceAccount", "iam.serviceAccounts.actAs")


def wanted(settings: GcpSettings) -> list[str]:
    """Return the permissions that these settings need, sorted."""
    return sorted(
        [
            *PERMISSIONS,
            *(FOR_ADDRESSES if settings.public_address else ()),
            *(FOR_FIREWALL if settings.firewall else ()),
            *(FOR_ACCOUNT if settings.service_account is not None else ()),
        ]
    )


def policy(settings: GcpSettings) -> str:
    """Return the custom role for these settings, as the YAML file of `gcloud iam roles create --file`."""
    lines = [
        "title: Tradewind fleets",
        "description: Start, list and end the machines of Tradewind's fleets",
        "stage: GA",
        "includedPermissions:",
        *(f"- {permission}" for permission in wanted(settings)),
    ]
    return "\n".join(lines) + "\n"
