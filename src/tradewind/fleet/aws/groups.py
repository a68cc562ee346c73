"""The security group of a fleet in a region: who may reach the control and data ports of its machines."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tradewind.fleet.aws.api import AwsApi
from tradewind.fleet.aws.instances import own_tags, tag_list
from tradewind.fleet.boot.ports import CONTROL_PORT, DATA_PORT
from tradewind.fleet.provider import FLEET_TAG, KEY_TAG, OWNER_TAG, CallRefused, Leftover

__all__ = ["DELETE_S", "NO_GROUP", "FleetGroup", "delete_group", "group_leftovers"]

#: Value of the order tag of groups: they belong to no single order.
ORDER = "group"
#: A group cannot be deleted while a terminated instance still has its network interface. Time that its deletion is
#: tried for, and the interval. One that takes longer is reported as a leftover, and deleted by the next call.
DELETE_S, TRY_S = 45.0, 1.0
#: A group that was made just now may not be known everywhere yet.
KNOWN_S = 20.0
#: Errors of calls for a group that does not exist.
NO_GROUP = ("InvalidGroup.NotFound", "InvalidGroupId.NotFound", "InvalidSecurityGroupID.NotFound")
#: Errors of a change of rules that exist already, or not any more.
CHANGED = ("InvalidPermission.Duplicate", "InvalidPermission.NotFound")


class FleetGroup:
    """The group of one fleet in one region. Its methods raise CallRefused."""

    def __init__(self, api: AwsApi, region: str, fleet_id: str, owner: str, vpc: str | None) -> None:
        self._api, self._region, self._fleet_id, self._owner, self._vpc = api, region, fleet_id, owner, vpc
        self._id: str | None = None

    def make(self) -> str:
        """Return the id of the group; make it if it does not exist."""
        if self._id is None:
            found = self._found()
            self._id = found["GroupId"] if found is not None else self._made()
        return self._id

    def _made(self) -> str:
        tags = {FLEET_TAG: self._fleet_id, KEY_TAG: ORDER, OWNER_TAG: self._owner}
        vpc = {} if self._vpc is None else {"VpcId": self._vpc}
        try:
            answer = self._api.ec2(
                self._region,
                "create_security_group",
                GroupName=f"tradewind {self._fleet_id}",
                Description="Gateways of a fleet of Tradewind",
                TagSpecifications=[{"ResourceType": "security-group", "Tags": tag_list(tags)}],
                **vpc,
            )
        except CallRefused as error:
            # Another call has made it meanwhile.
            found = self._found() if "InvalidGroup.Duplicate" in error.refusal.reason else None
            if found is None:
                raise
            return str(found["GroupId"])
        return str(answer["GroupId"])

    def _found(self) -> dict[str, Any] | None:
        filters = [{"Name": f"tag:{FLEET_TAG}", "Values": [self._fleet_id]}]
        return next(self._api.pages(self._region, "describe_security_groups", "SecurityGroups", Filters=filters), None)

    def admit(self, home_cidr: str | None, addresses: Collection[str]) -> None:
        """Admit home to both ports, these addresses to the data port, and nobody else."""
        group_id = self.make()
        home = set() if home_cidr is None else {home_cidr}
        wanted = {(CONTROL_PORT, cidr) for cidr in home}
        wanted |= {(DATA_PORT, cidr) for cidr in home | {_as_cidr(address) for address in addresses}}
        deadline_s = time.monotonic() + KNOWN_S
        while True:
            try:
                self._change_to(group_id, wanted)
                return
            except CallRefused as error:
                # Another call has changed the group since it was read, and EC2 has done nothing of this one.
                if not error.refusal.reason.startswith(CHANGED) or time.monotonic() >= deadline_s:
                    raise
            time.sleep(TRY_S)

    def _change_to(self, group_id: str, wanted: Collection[tuple[int, str]]) -> None:
        found = self._known_group()
        present = set(_rules(found)) if found is not None else set()
        for ports, operation in (
            (set(wanted) - present, "authorize_security_group_ingress"),
            (present - set(wanted), "revoke_security_group_ingress"),
        ):
            if ports:
                self._change(group_id, operation, ports)

    def _known_group(self) -> dict[str, Any] | None:
        deadline_s = time.monotonic() + KNOWN_S
        while (found := self._found()) is None and time.monotonic() < deadline_s:
            time.sleep(TRY_S)
        return found

    def _change(self, group_id: str, operation: str, ports: Collection[tuple[int, str]]) -> None:
        rules: dict[int, list[str]] = {}
        for port, cidr in sorted(ports):
            rules.setdefault(port, []).append(cidr)
        permissions = [_permission(port, cidrs) for port, cidrs in rules.items()]
        self._api.ec2(self._region, operation, GroupId=group_id, IpPermissions=permissions)


def delete_group(api: AwsApi, region: str, group_id: str, timeout_s: float = DELETE_S) -> None:
    """Delete a group. One that does not exist is not an error. Raises CallRefused if it is still in use at the end."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            api.ec2(region, "delete_security_group", GroupId=group_id)
            return
        except CallRefused as error:
            reason = error.refusal.reason
            if reason.startswith(NO_GROUP):
                return
            if error.refusal.kind not in ("transient", "throttled") or time.monotonic() >= deadline_s:
                raise
        time.sleep(TRY_S)


def group_leftovers(api: AwsApi, region: str) -> Iterator[Leftover]:
    """Yield all groups of ours in a region."""
    filters = [{"Name": f"tag:{KEY_TAG}", "Values": [ORDER]}]
    for group in api.pages(region, "describe_security_groups", "SecurityGroups", Filters=filters):
        tags = own_tags(group)
        if FLEET_TAG in tags:
            yield Leftover(f"{region}/{group['GroupId']}", "security group", f"aws:{region}", tags)


def _rules(group: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    for permission in group.get("IpPermissions", ()):
        for entry in permission.get("IpRanges", ()):
            yield int(permission.get("FromPort", 0)), str(entry["CidrIp"])
        for entry in permission.get("Ipv6Ranges", ()):
            yield int(permission.get("FromPort", 0)), str(entry["CidrIpv6"])


def _permission(port: int, cidrs: Collection[str]) -> dict[str, Any]:
    v4 = [{"CidrIp": cidr} for cidr in cidrs if ":" not in cidr]
    v6 = [{"CidrIpv6": cidr} for cidr in cidrs if ":" in cidr]
    ranges = {name: value for name, value in (("IpRanges", v4), ("Ipv6Ranges", v6)) if value}
    return {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, **ranges}


def _as_cidr(address: str) -> str:
    if "/" in address:
        return address
    return f"{address}/128" if ":" in address else f"{address}/32"
