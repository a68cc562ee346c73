"""The smallest IAM policy with which fleets run on EC2."""

from __future__ import annotations

import json
from typing import Any

from tradewind.fleet.aws.last_end import schedule_name
from tradewind.fleet.provider import KEY_TAG
from tradewind.model.aws import AwsSettings

__all__ = ["policy", "policy_actions", "policy_document"]

#: EC2 restricts none of these to certain resources.
_READING = (
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeInstances",
    "ec2:DescribeRegions",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVolumes",
)
#: Only groups and instances with our tag may be changed.
_CHANGING = (
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:DeleteSecurityGroup",
    "ec2:DeleteVolume",
    "ec2:GetConsoleOutput",
    "ec2:RevokeSecurityGroupIngress",
    "ec2:TerminateInstances",
)


def policy(settings: AwsSettings) -> str:
    """Return the policy as JSON text."""
    return json.dumps(policy_document(settings), indent=2)


def policy_actions(settings: AwsSettings) -> list[str]:
    """Return the actions of the policy, sorted."""
    given = [statement["Action"] for statement in policy_document(settings)["Statement"]]
    return sorted({action for one in given for action in ([one] if isinstance(one, str) else one)})


def policy_document(settings: AwsSettings) -> dict[str, Any]:
    """Return the policy: what Tradewind calls, and no more.

    Without `servicequotas:GetServiceQuota` the quota is unknown, and a launch beyond it is refused.
    """
    own_groups = all(settings.network(region).security_group is not None for region in settings.regions)
    ours = {"StringLike": {f"aws:ResourceTag/{KEY_TAG}": "*"}}
    making = ("ec2:RunInstances", *(() if settings.regions and own_groups else ("ec2:CreateSecurityGroup",)))
    statements: list[dict[str, Any]] = [
        {"Sid": "Read", "Effect": "Allow", "Action": list(_READING), "Resource": "*"},
        {"Sid": "Image", "Effect": "Allow", "Action": "ssm:GetParameter", "Resource": "*"},
        {"Sid": "Quota", "Effect": "Allow", "Action": "servicequotas:GetServiceQuota", "Resource": "*"},
        {"Sid": "Make", "Effect": "Allow", "Action": list(making), "Resource": "*"},
        {
            "Sid": "TagWhatIsMade",
            "Effect": "Allow",
            "Action": "ec2:CreateTags",
            "Resource": "*",
            "Condition": {"StringEquals": {"ec2:CreateAction": ["RunInstances", "CreateSecurityGroup"]}},
        },
        {"Sid": "ChangeOurs", "Effect": "Allow", "Action": list(_CHANGING), "Resource": "*", "Condition": ours},
    ]
    if settings.instance_profile is not None:
        statements.append(_passing("Identity", "ec2.amazonaws.com"))
    if settings.end_role is not None:
        partition = settings.end_role.split(":")[1]
        ours_too = f"arn:{partition}:scheduler:*:*:schedule/default/{schedule_name('*')}"
        actions = ["scheduler:CreateSchedule", "scheduler:DeleteSchedule"]
        statements.append({"Sid": "ScheduleTheEnd", "Effect": "Allow", "Action": actions, "Resource": ours_too})
        statements.append(_passing("EndRole", "scheduler.amazonaws.com"))
    if settings.spot:
        only = {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}}
        action = "iam:CreateServiceLinkedRole"
        statements.append({"Sid": "Spot", "Effect": "Allow", "Action": action, "Resource": "*", "Condition": only})
    return {"Version": "2012-10-17", "Statement": statements}


def _passing(name: str, service: str) -> dict[str, Any]:
    """Return the statement that lets a login give roles to a service of Amazon."""
    only = {"StringEquals": {"iam:PassedToService": service}}
    return {"Sid": name, "Effect": "Allow", "Action": "iam:PassRole", "Resource": "*", "Condition": only}
