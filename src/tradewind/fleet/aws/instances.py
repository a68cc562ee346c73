"""From an order to the request for an instance, and from an instance to a machine."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from tradewind.fleet.boot.ports import CONTROL_PORT, DATA_PORT
from tradewind.fleet.boot.user_data import ProgramSource, user_data
from tradewind.fleet.provider import FLEET_TAG, KEY_TAG, NAME_TAG, OWNER_TAG, LaunchOrder, Lease, Machine
from tradewind.model.aws import AwsSettings

__all__ = [
    "LEASE_TAG",
    "OURS",
    "instance_script",
    "is_public",
    "is_spot",
    "machine_of",
    "own_tags",
    "run_request",
    "tag_list",
]

LEASE_TAG = "tradewind-lease"
#: Filter of all that is ours.
OURS = {"Name": "tag-key", "Values": [KEY_TAG]}
#: Instances in these states cost nothing any more.
ENDED = ("shutting-down", "terminated")
#: Amazon announces this long before that it takes a spot instance back (Spot interruption notices, EC2 User Guide).
SPOT_NOTICE_S = 120
#: Succeeds once it has announced that. IMDSv2 needs a token.
SPOT_NOTICE = (
    'm=http://169.254.169.254/latest; t=$(curl -fsS -m 2 -X PUT -H "X-aws-ec2-metadata-token-ttl-seconds: 60" '
    '$m/api/token) && curl -fsS -m 2 -H "X-aws-ec2-metadata-token: $t" $m/meta-data/spot/instance-action'
)


def is_public(order: LaunchOrder, settings: AwsSettings) -> bool:
    """Return whether a machine gets a public address."""
    chosen = order.network.public_address
    return settings.public_address if chosen is None else chosen


def is_spot(order: LaunchOrder, settings: AwsSettings) -> bool:
    """Return whether a machine is a spot instance. An order without a type follows the settings."""
    return order.spot or (order.type is None and settings.spot)


def instance_script(order: LaunchOrder, settings: AwsSettings, programs: Sequence[ProgramSource]) -> str:
    """Return the user data of a machine. Raises GatewayError if it is too long."""
    assert order.join is not None, "checked before"
    data = f"0.0.0.0:{DATA_PORT}" if order.peers else None
    if is_public(order, settings):
        join = order.join.listening(f"0.0.0.0:{CONTROL_PORT}", data)
    else:
        join = order.join.calling(data)
    notice_s, notice = (SPOT_NOTICE_S, SPOT_NOTICE) if is_spot(order, settings) else (None, None)
    return user_data(
        join,
        programs,
        order.lease.seconds,
        order.region,
        proxy=settings.proxy,
        notice_s=notice_s,
        notice_command=notice,
    )


def run_request(
    order: LaunchOrder,
    settings: AwsSettings,
    *,
    machine_type: str,
    image: str,
    group: str,
    subnet: str | None,
    script: str,
    attempt: int,
) -> dict[str, Any]:
    """Return the arguments of RunInstances for one machine.

    An instance that shuts itself down is terminated, with its disk. The same order has the same client token, also in
    another process, so that a repeated call returns the instance of the first.
    """
    tags = tag_list({**order.tags, LEASE_TAG: str(order.lease.seconds), "Name": f"tradewind {order.name}"})
    words = (order.fleet_id, order.key, machine_type, is_spot(order, settings), order.zone, attempt)
    interface: dict[str, Any] = {
        "DeviceIndex": 0,
        "Groups": [group],
        "AssociatePublicIpAddress": is_public(order, settings),
        "DeleteOnTermination": True,
    }
    if subnet is not None:
        interface["SubnetId"] = subnet
    request: dict[str, Any] = {
        "ImageId": image,
        "InstanceType": machine_type,
        "MinCount": 1,
        "MaxCount": 1,
        "UserData": script,
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "NetworkInterfaces": [interface],
        "ClientToken": str(uuid.uuid5(uuid.NAMESPACE_URL, repr(words))),
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
    }
    if order.zone is not None and subnet is None:
        request["Placement"] = {"AvailabilityZone": order.zone}
    if is_spot(order, settings):
        request["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
    if settings.instance_profile is not None:
        kind = "Arn" if settings.instance_profile.startswith("arn:") else "Name"
        request["IamInstanceProfile"] = {kind: settings.instance_profile}
    return request


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as EC2 takes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def own_tags(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return our tags of an instance, volume or group, except the lease."""
    tags = {tag["Key"]: tag["Value"] for tag in entry.get("Tags", ())}
    return {key: value for key, value in tags.items() if key.startswith("tradewind-") and key != LEASE_TAG}


def machine_of(region: str, instance: Mapping[str, Any], settings: AwsSettings) -> Machine:
    """Return the machine of an instance. `region` is the name without `aws:`."""
    tags = own_tags(instance)
    lease_s = next((tag["Value"] for tag in instance.get("Tags", ()) if tag["Key"] == LEASE_TAG), "")
    state = instance["State"]["Name"]
    public, private = instance.get("PublicIpAddress"), instance.get("PrivateIpAddress")
    known = {"public": public, "private": private}
    launched_s = _unix_s(instance.get("LaunchTime"))
    ended = state in ENDED
    return Machine(
        f"{region}/{instance['InstanceId']}",
        tags.get(NAME_TAG, ""),
        f"aws:{region}",
        instance.get("InstanceType"),
        instance.get("Placement", {}).get("AvailabilityZone"),
        instance.get("InstanceLifecycle") == "spot",
        launched_unix_s=launched_s,
        running_unix_s=None if state == "pending" else launched_s,
        ended_unix_s=_ended_unix_s(instance) if ended else None,
        ended=ended,
        addresses={name: address for name, address in known.items() if address},
        control=f"{public}:{CONTROL_PORT}" if public and not ended else None,
        inbound=bool(public) or state == "pending",
        network="aws" if settings.joined and not public else None,
        lease=Lease(int(lease_s), tags[OWNER_TAG]) if lease_s.isdecimal() and OWNER_TAG in tags else None,
        tags=tags if FLEET_TAG in tags else {},
    )


def _ended_unix_s(instance: Mapping[str, Any]) -> float | None:
    """Return the time of `User initiated (2026-02-03 04:05:06 GMT)`, in which EC2 states the end."""
    words = str(instance.get("StateTransitionReason", "")).partition("(")[2].partition(" GMT)")[0]
    try:
        return datetime.strptime(words, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def _unix_s(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
