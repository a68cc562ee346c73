"""Instances as the API wants and shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from tradewind.fleet.boot.ports import CONTROL_PORT
from tradewind.fleet.gcp.api import unix_s
from tradewind.fleet.gcp.firewall import network_tag
from tradewind.fleet.provider import KEY_TAG, NAME_TAG, OWNER_TAG, CallRefused, LaunchOrder, Lease, Machine, Refusal
from tradewind.model.gcp import GcpSettings

__all__ = ["insert_body", "instance_name", "is_ours", "machine_of", "network_path", "stopped_unix_s"]

LEASE_LABEL = "tradewind-lease"
ROLE_LABEL = "tradewind-role"
#: Size of the boot disk: Debian needs 3 GB, and gateways keep nothing on disk.
DISK_GB = 10
#: States in which a VM has stopped. Its time is not billed any more, but its disk is.
STOPPED = ("TERMINATED", "STOPPED")
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
#: A gateway has this time to save its work when its VM is ended.
DRAIN_S = 20
#: A spot VM that Google takes back is gone this long after its shutdown script began (Preemption process, Spot VMs).
PREEMPTION_S = 30

#: Runs when the VM is deleted, stopped or reclaimed, while its network is still up.
SHUTDOWN_SCRIPT = f"""#!/bin/sh
signal=TERM left={DRAIN_S}
for exe in /proc/[0-9]*/exe; do
  if [ "$(readlink "$exe")" = /run/tradewind/gateway ]; then
    gateway=${{exe%/exe}}
    kill -s "$signal" "${{gateway#/proc/}}"
    while [ -e "$gateway" ] && [ "$left" -gt 0 ]; do sleep 1; left=$((left - 1)); done
  fi
done
"""

#: The same for a spot VM. Its gateway works on if Google takes the VM back, and drains by itself shortly before.
SPOT_SHUTDOWN_SCRIPT = SHUTDOWN_SCRIPT.replace(
    "\nfor ",
    f"""
preempted=http://169.254.169.254/computeMetadata/v1/instance/preempted
case "$(curl -fsS -m 2 -H 'Metadata-Flavor: Google' "$preempted")" in TRUE) signal=USR1 left={PREEMPTION_S} ;; esac
for """,
    1,
)

#: Put before boot.sh if the VM has an identity: a VM that shuts down keeps its disk, so it asks to be deleted first.
DELETE_ITSELF = """shutdown() {
  about() { curl -fsS -m 10 -H 'Metadata-Flavor: Google' "http://metadata.google.internal/computeMetadata/v1/$1"; }
  token=$(about instance/service-accounts/default/token | sed 's/.*"access_token":"\\([^"]*\\)".*/\\1/')
  zone=$(about instance/zone)
  path="projects/$(about project/project-id)/zones/${zone##*/}/instances/$(about instance/name)"
  printf 'Authorization: Bearer %s' "$token" \\
    | curl -fsS -m 20 -X DELETE -H @- "https://compute.googleapis.com/compute/v1/$path" > /dev/null
  command shutdown "$@"
}
"""


def instance_name(order: LaunchOrder) -> str:
    """Return the name of an order's instance: the same order has the same name."""
    return "tw-" + sha256(f"{order.fleet_id} {order.name} {order.key}".encode()).hexdigest()[:24]


def insert_body(
    order: LaunchOrder,
    settings: GcpSettings,
    machine_type: str,
    denied: Sequence[str],
    script: str,
) -> dict[str, Any]:
    """Return the body of `regionInstances.bulkInsert` for one machine, in any zone that is not denied.

    Each machine has a request of its own: the requests of one call differ only in names, not in labels and metadata,
    and each gateway must get only its own join token.
    """
    preferences = {f"zones/{zone}": {"preference": "DENY"} for zone in denied}
    return {
        "count": "1",
        "minCount": "1",
        "perInstanceProperties": {instance_name(order): {}},
        **({"locationPolicy": {"locations": preferences}} if denied else {}),
        "instanceProperties": _properties(order, settings, machine_type, script),
    }


def _properties(order: LaunchOrder, settings: GcpSettings, machine_type: str, script: str) -> dict[str, Any]:
    labels = {**order.tags, LEASE_LABEL: str(order.lease.seconds), ROLE_LABEL: order.role}
    if settings.service_account is not None:
        script = script.replace("#!/bin/sh\n", f"#!/bin/sh\n{DELETE_ITSELF}", 1)
    spot = is_spot(order, settings)
    scheduling = {
        "provisioningModel": "SPOT" if spot else "STANDARD",
        "instanceTerminationAction": "DELETE",
        "maxRunDuration": {"seconds": str(max(order.lease.seconds, settings.hours_max * 3600))},
        "automaticRestart": False,  # Its join token would not be valid any more.
        "onHostMaintenance": "TERMINATE" if spot else "MIGRATE",
    }
    found: dict[str, Any] = {
        "machineType": machine_type,
        "labels": labels,
        "tags": {"items": [network_tag(order.fleet_id)]},
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {"sourceImage": settings.image, "diskSizeGb": str(DISK_GB), "labels": labels},
            }
        ],
        "networkInterfaces": [_interface(order, settings)],
        "metadata": {
            "items": [
                {"key": "startup-script", "value": script},
                {"key": "shutdown-script", "value": SPOT_SHUTDOWN_SCRIPT if spot else SHUTDOWN_SCRIPT},
                {"key": "block-project-ssh-keys", "value": "true"},
            ]
        },
        "scheduling": scheduling,
    }
    if settings.service_account is not None:
        found["serviceAccounts"] = [{"email": settings.service_account, "scopes": [SCOPE]}]
    return found


def is_spot(order: LaunchOrder, settings: GcpSettings) -> bool:
    """Return whether an order is for a spot machine. One without a type leaves that to the settings."""
    return order.spot or (order.type is None and settings.spot)


def network_path(name: str) -> str:
    """Return the path of a network that is given by name or path."""
    return name if "/" in name else f"global/networks/{name}"


def _interface(order: LaunchOrder, settings: GcpSettings) -> dict[str, Any]:
    found: dict[str, Any] = {"network": network_path(order.network.network or settings.network)}
    if settings.subnet is not None:
        region = order.region.partition(":")[2]
        subnet = settings.subnet
        found["subnetwork"] = subnet if "/" in subnet else f"regions/{region}/subnetworks/{subnet}"
    if settings.public_address:
        tier = order.network.network_tier or settings.network_tier
        access = {"name": "External NAT", "type": "ONE_TO_ONE_NAT", "networkTier": tier.upper()}
        found["accessConfigs"] = [access]
    return found


def is_ours(instance: Mapping[str, Any]) -> bool:
    """Return whether an instance has our labels."""
    labels = instance.get("labels")
    return isinstance(labels, dict) and {KEY_TAG, NAME_TAG, OWNER_TAG} <= labels.keys()


def machine_of(instance: Mapping[str, Any], settings: GcpSettings) -> Machine:
    """Return an instance of ours as a machine. Raises CallRefused if the API describes it in another form than Google.

    Leaving it out would hide a machine that costs money.
    """
    try:
        return _machine_of(instance, settings)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        name = instance.get("name")
        raise CallRefused(Refusal("bad request", f"the API describes {name} in another form than Google's")) from error


def _machine_of(instance: Mapping[str, Any], settings: GcpSettings) -> Machine:
    labels: Mapping[str, str] = instance["labels"]
    zone = instance["zone"].rpartition("/")[2]
    interface = instance["networkInterfaces"][0]
    access = (interface.get("accessConfigs") or [{}])[0]
    # Without an access configuration the VM has no public address and will get none.
    has_public = bool(interface.get("accessConfigs"))
    public = access.get("natIP")
    addresses = {"public": public} if public else {}
    if interface.get("networkIP"):
        addresses["private"] = interface["networkIP"]
    dialled = public if has_public else addresses.get("private") if settings.control == "private" else None
    lease = labels.get(LEASE_LABEL, "")
    return Machine(
        f"{zone}/{instance['name']}",
        labels[NAME_TAG],
        f"gcp:{zone.rpartition('-')[0]}",
        instance["machineType"].rpartition("/")[2],
        zone,
        spot=instance.get("scheduling", {}).get("provisioningModel") == "SPOT",
        launched_unix_s=unix_s(instance.get("creationTimestamp")),
        running_unix_s=unix_s(instance.get("lastStartTimestamp")),
        ended_unix_s=stopped_unix_s(instance),
        ended=instance["status"] in STOPPED,
        addresses=addresses,
        control=f"{dialled}:{CONTROL_PORT}" if dialled else None,
        inbound=has_public,
        # Google's networks span all regions.
        network=None if has_public else interface.get("network"),
        lease=Lease(int(lease), labels[OWNER_TAG]) if lease.isdecimal() else None,
        tags={name: value for name, value in labels.items() if name.startswith("tradewind-")},
    )


def stopped_unix_s(instance: Mapping[str, Any]) -> float | None:
    """Return when a VM stopped; None if it runs."""
    return unix_s(instance.get("lastStopTimestamp")) if instance["status"] in STOPPED else None
