"""The last resort against an instance that nobody ends: Amazon's scheduler terminates it after `hours_max`.

The instance needs no part in it: it may never have booted, and its owner may be gone. A schedule has the id of its
instance as its name. It deletes itself once it has run, and costs nothing (EventBridge Scheduler User Guide, One-time
schedules; Universal targets).
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

from tradewind.fleet.aws.api import AwsApi
from tradewind.fleet.provider import CallRefused, LaunchOrder
from tradewind.model.aws import AwsSettings

__all__ = ["forget_end", "life_s_max", "schedule_end", "schedule_name"]

SERVICE = "scheduler"
#: The scheduler's codes for a schedule that exists already, and for one that does not exist.
EXISTS, UNKNOWN = "ConflictException", "ResourceNotFoundException"
#: Attempts of the scheduler itself, within a day: EC2 may throttle or be down at that time.
ATTEMPTS = 20


def schedule_name(instance_id: str) -> str:
    """Return the name of an instance's schedule."""
    return f"tradewind-{instance_id}"


def life_s_max(order: LaunchOrder, settings: AwsSettings) -> int:
    """Return the time after which the machine of an order is ended in any case [s]. No lease is longer."""
    return max(order.lease.seconds, settings.hours_max * 3600)


def schedule_end(api: AwsApi, region: str, instance_id: str, role: str, life_s: int) -> None:
    """Let Amazon terminate an instance when `life_s` has passed. Raises CallRefused.

    An instance that has a schedule keeps it: the launch is repeated.
    """
    partition = role.split(":")[1]
    end = datetime.now(timezone.utc) + timedelta(seconds=life_s)
    target: dict[str, Any] = {
        "Arn": f"arn:{partition}:scheduler:::aws-sdk:ec2:terminateInstances",
        "RoleArn": role,
        "Input": json.dumps({"InstanceIds": [instance_id]}),
        "RetryPolicy": {"MaximumRetryAttempts": ATTEMPTS},
    }
    try:
        api.call(
            SERVICE,
            region,
            "create_schedule",
            Name=schedule_name(instance_id),
            ScheduleExpression=f"at({end:%Y-%m-%dT%H:%M:%S})",
            ScheduleExpressionTimezone="UTC",
            FlexibleTimeWindow={"Mode": "OFF"},
            ActionAfterCompletion="DELETE",
            Target=target,
        )
    except CallRefused as error:
        if not error.refusal.reason.startswith(EXISTS):
            raise


def forget_end(api: AwsApi, region: str, instance_id: str) -> None:
    """Delete the schedule of an instance that has ended. One that stays finds no instance, and deletes itself."""
    try:
        api.call(SERVICE, region, "delete_schedule", Name=schedule_name(instance_id))
    except CallRefused:
        return
