"""Asks by dry runs which permissions of the smallest policy a login has: EC2 checks a request, and does nothing.

Source: Actions, `DryRun` (EC2 API Reference). EC2 answers DryRunOperation if it would have carried out the request.

The policy lets a login change only what has our tag. So EC2 also refuses the dry run of a change to something that does
not exist, and such a permission can be checked only where there is something of ours.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tradewind.fleet.aws.api import ANY_REGION, AwsApi
from tradewind.fleet.aws.instances import OURS, run_request
from tradewind.fleet.aws.policy import policy_actions
from tradewind.fleet.calls import each_of
from tradewind.fleet.provider import CallRefused, LaunchOrder, Lease, PermissionAnswer, Refusal
from tradewind.model.aws import AwsSettings
from tradewind.model.records import dataclass

__all__ = ["permission_answers"]

DRY_RUN = "dry-run"
DRY_RUN_DONE = "DryRunOperation"
#: Errors after the check of the permission: what the request names does not exist, or is in use.
CHECKED = (
    DRY_RUN_DONE,
    "InvalidInstanceID",
    "InvalidGroup",
    "InvalidVolume",
    "InvalidPermission",
    "DependencyViolation",
)
READING = {
    "ec2:DescribeAvailabilityZones": "describe_availability_zones",
    "ec2:DescribeInstances": "describe_instances",
    "ec2:DescribeRegions": "describe_regions",
    "ec2:DescribeSecurityGroups": "describe_security_groups",
    "ec2:DescribeSubnets": "describe_subnets",
    "ec2:DescribeVolumes": "describe_volumes",
}
#: Ids of which EC2 has no resources, for changes where nothing of ours exists.
NO_INSTANCE, NO_GROUP, NO_VOLUME = "i-00000000000000000", "sg-00000000000000000", "vol-00000000000000000"
#: Dry runs at the same time in a region: boto3 keeps ten connections.
AT_ONCE_MAX = 8
NO_IMAGE = "ami-00000000000000000"
LOSSES = {
    "ec2:GetConsoleOutput": "the end of a machine's log cannot be shown",
    "servicequotas:GetServiceQuota": "the quota is unknown, and noticed when a machine is refused",
}
NOTHING_OF_OURS = "they can be checked only where a machine, disk or group of Tradewind exists"
NOT_HEEDED = "this API does not heed DryRun"
FIRST_SPOT = "only the first spot machine of an account needs it"
NO_DRY_RUNS = "the scheduler has no dry runs"
PASS_ROLE, SPOT_ROLE = "iam:PassRole", "iam:CreateServiceLinkedRole"


def permission_answers(
    settings: AwsSettings, api: AwsApi, machine_type: str, quota_code: str, image_parameter: str
) -> list[PermissionAnswer]:
    """Return an answer for each permission of the policy in each region. Raises CallRefused without a valid login."""
    regions = settings.regions
    if not regions:
        try:
            regions = api.regions()
        except CallRefused as error:
            if not error.refusal.lacks_permission:
                raise
            regions = (ANY_REGION,)
    asked = [_Region(region, settings, api, machine_type, quota_code, image_parameter) for region in regions]
    return [answer for answers in each_of(asked, lambda region: region.answers()) for answer in answers]


@dataclass(frozen=True, slots=True)
class _Region:
    """The questions about one region."""

    name: str
    settings: AwsSettings
    api: AwsApi
    machine_type: str
    quota_code: str
    image_parameter: str

    def answers(self) -> list[PermissionAnswer]:
        """Return the answers. Raises CallRefused without a valid login."""
        wanted = policy_actions(self.settings)
        of_group: list[PermissionAnswer] = []
        if self._dry("describe_regions").reason != NOT_HEEDED:
            of_group = self._of_group()
        if not of_group:
            return [PermissionAnswer(self.name, action, None, NOT_HEEDED) for action in wanted]
        ours = self._ours()
        questions: list[Callable[[], list[PermissionAnswer]]] = [
            *((lambda action=action: [self._answer(action, self._dry(READING[action]))]) for action in READING),
            *((lambda action=action: [self._of_change(action, ours)]) for action in wanted if action in _CHANGES),
            self._of_launch,
            self._of_quota,
        ]
        answered = [of_group, *each_of(questions, _ask, AT_ONCE_MAX)]
        found = {answer.action: answer for answers in answered for answer in answers}
        if SPOT_ROLE in wanted:
            found.setdefault(SPOT_ROLE, PermissionAnswer(self.name, SPOT_ROLE, None, FIRST_SPOT))
        if self.settings.end_role is not None:
            for action in wanted:
                if action.startswith("scheduler:") or action == PASS_ROLE:
                    found.setdefault(action, PermissionAnswer(self.name, action, None, NO_DRY_RUNS))
        return [found[action] for action in wanted if action in found]

    def _dry(self, operation: str, **arguments: Any) -> Refusal:
        """Return EC2's answer to a dry run."""
        try:
            self.api.ec2(self.name, operation, DryRun=True, **arguments)
        except CallRefused as error:
            return error.refusal
        return Refusal("bad request", NOT_HEEDED)

    def _answer(self, action: str, said: Refusal, why: str | None = None) -> PermissionAnswer:
        """Return the answer that EC2's words mean. A missing permission is unknown if there is a `why`.

        Raises CallRefused if no permission is missing, but the login is not valid.
        """
        loss = LOSSES.get(action)
        if said.reason.startswith(CHECKED):
            return PermissionAnswer(self.name, action, True, loss=loss)
        if not said.lacks_permission:
            if said.kind == "permission":
                raise CallRefused(said)
            return PermissionAnswer(self.name, action, None, said.reason, loss, is_error=True)
        if said.action != action:
            return PermissionAnswer(self.name, action, None, f"EC2 asks for {said.action} first", loss)
        return PermissionAnswer(self.name, action, False if why is None else None, why, loss)

    def _ours(self) -> dict[str, str]:
        """Return ids of something of ours in the region, by the parameter of requests that has them."""
        found: dict[str, str] = {}
        lists = (
            ("InstanceId", "describe_instances", "Reservations"),
            ("GroupId", "describe_security_groups", "SecurityGroups"),
            ("VolumeId", "describe_volumes", "Volumes"),
        )
        for parameter, operation, key in lists:
            try:
                for entry in self.api.pages(self.name, operation, key, Filters=[OURS]):
                    found[parameter] = (entry["Instances"][0] if key == "Reservations" else entry)[parameter]
                    break
            except CallRefused:
                continue  # The missing permission is found by its own dry run.
        return found

    def _of_change(self, action: str, ours: Mapping[str, str]) -> PermissionAnswer:
        operation, parameter, absent, more = _CHANGES[action]
        name = ours.get(parameter)
        key, value = (f"{parameter}s", [name or absent]) if parameter + "s" in more else (parameter, name or absent)
        arguments = {each: value for each, value in more.items() if each != key}
        said = self._dry(operation, **{key: value}, **arguments)
        return self._answer(action, said, None if name else NOTHING_OF_OURS)

    def _of_group(self) -> list[PermissionAnswer]:
        """Ask about a change that costs nothing; no answer if the API does not heed the dry run of changes.

        Then the group exists now, and is deleted.
        """
        vpc = self.settings.network(self.name).vpc
        where = {} if vpc is None else {"VpcId": vpc}
        named = {"GroupName": f"tradewind dry-run {secrets.token_hex(8)}", "Description": DRY_RUN}
        said = self._dry("create_security_group", **named, **where)
        if said.reason != NOT_HEEDED:
            return [self._answer("ec2:CreateSecurityGroup", said)]
        found = self.api.ec2(
            self.name, "describe_security_groups", Filters=[{"Name": "group-name", "Values": [named["GroupName"]]}]
        )
        for group in found["SecurityGroups"]:
            self.api.ec2(self.name, "delete_security_group", GroupId=group["GroupId"])
        return []

    def _of_launch(self) -> list[PermissionAnswer]:
        """Ask about a launch, and what only parts of it need."""
        network, answers, image = self.settings.network(self.name), list[PermissionAnswer](), NO_IMAGE
        if network.image is not None:
            image = network.image
        else:
            action = "ssm:GetParameter"
            try:
                found = self.api.call("ssm", self.name, "get_parameter", Name=self.image_parameter)
                image = str(found["Parameter"]["Value"])
                answers.append(PermissionAnswer(self.name, action, True))
            except CallRefused as error:
                answers.append(self._answer(action, error.refusal))
        order = LaunchOrder(DRY_RUN, DRY_RUN, f"aws:{self.name}", DRY_RUN, 0, Lease(60, DRY_RUN))
        request = run_request(
            order,
            self.settings,
            machine_type=self.machine_type,
            image=image,
            group=network.security_group or NO_GROUP,
            subnet=network.subnets[0] if network.subnets else None,
            script="",
            attempt=0,
        )
        del request["ClientToken"], request["UserData"]
        if network.security_group is None:
            del request["NetworkInterfaces"][0]["Groups"]
        tags = {"TagSpecifications": request.pop("TagSpecifications")}
        profile = {name: request.pop(name) for name in ("IamInstanceProfile",) if name in request}
        answers.append(self._answer("ec2:RunInstances", said := self._dry("run_instances", **request)))
        if said.action == SPOT_ROLE:
            answers.append(self._answer(SPOT_ROLE, said))
        answers.append(self._answer("ec2:CreateTags", self._dry("run_instances", **request, **tags)))
        if profile:
            answers.append(self._answer(PASS_ROLE, self._dry("run_instances", **request, **profile)))
        return answers

    def _of_quota(self) -> list[PermissionAnswer]:
        action = "servicequotas:GetServiceQuota"
        try:
            self.api.call(
                "service-quotas", self.name, "get_service_quota", ServiceCode="ec2", QuotaCode=self.quota_code
            )
        except CallRefused as error:
            return [self._answer(action, error.refusal)]
        return [PermissionAnswer(self.name, action, True, loss=LOSSES[action])]


def _ask(question: Callable[[], list[PermissionAnswer]]) -> list[PermissionAnswer]:
    return question()


_RULE: Sequence[Mapping[str, Any]] = (
    {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 1, "IpRanges": [{"CidrIp": "192.0.2.1/32"}]},
)
#: Action → operation, parameter with the id of what is changed, an id that nothing has, and other parameters.
_CHANGES: Mapping[str, tuple[str, str, str, Mapping[str, Any]]] = {
    "ec2:AuthorizeSecurityGroupIngress": (
        "authorize_security_group_ingress",
        "GroupId",
        NO_GROUP,
        {"IpPermissions": list(_RULE)},
    ),
    "ec2:DeleteSecurityGroup": ("delete_security_group", "GroupId", NO_GROUP, {}),
    "ec2:DeleteVolume": ("delete_volume", "VolumeId", NO_VOLUME, {}),
    "ec2:GetConsoleOutput": ("get_console_output", "InstanceId", NO_INSTANCE, {}),
    "ec2:RevokeSecurityGroupIngress": (
        "revoke_security_group_ingress",
        "GroupId",
        NO_GROUP,
        {"IpPermissions": list(_RULE)},
    ),
    "ec2:TerminateInstances": ("terminate_instances", "InstanceId", NO_INSTANCE, {"InstanceIds": []}),
}
