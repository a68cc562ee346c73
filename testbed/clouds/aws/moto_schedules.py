"""Amazon's scheduler as far as moto lacks it: it checks one-time schedules that end instances, and runs them.

`moto_ec2.py` loads this file in moto's own interpreter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from moto.scheduler.models import scheduler_backends

ACCOUNT = "123456789012"
EXPRESSION = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")
TARGET = re.compile(r"arn:aws[a-z-]*:scheduler:::aws-sdk:ec2:terminateInstances")


def wrong_schedule(given: Mapping[str, Any]) -> str | None:
    """Return what Amazon would not accept of a request for a schedule."""
    target = given.get("Target", {})
    if EXPRESSION.fullmatch(given.get("ScheduleExpression", "")) is None:
        return "Invalid Schedule Expression"
    if given.get("FlexibleTimeWindow", {}).get("Mode") not in ("OFF", "FLEXIBLE"):
        return "FlexibleTimeWindow.Mode is missing"
    if ROLE.fullmatch(target.get("RoleArn", "")) is None or target["RoleArn"].endswith("/no-such-role"):
        return "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."
    if TARGET.fullmatch(target.get("Arn", "")) is None:
        return f"Provided Arn is not in correct format: {target.get('Arn')}"
    names = json.loads(target.get("Input", "null"))
    if not isinstance(names, dict) or set(names) != {"InstanceIds"}:
        return "Invalid RequestJson provided"
    return None


def schedule_names() -> list[str]:
    """Return the names of all schedules."""
    return sorted(name for schedules in _by_region() for name in schedules)


def run_schedules(unix_s: float) -> Iterator[str]:
    """Yield the ids of instances whose schedules are due at a time, and delete these if they ask for it."""
    for schedules in _by_region():
        for name, schedule in list(schedules.items()):
            found = EXPRESSION.fullmatch(schedule.schedule_expression)
            assert found is not None and schedule.schedule_expression_timezone == "UTC"
            due = datetime.fromisoformat(found[1]).replace(tzinfo=timezone.utc).timestamp()
            if due <= unix_s:
                yield from json.loads(schedule.target["Input"])["InstanceIds"]
                if schedule.action_after_completion == "DELETE":
                    del schedules[name]


def _by_region() -> list[dict[str, Any]]:
    return [backend.schedule_groups["default"].schedules for backend in list(scheduler_backends[ACCOUNT].values())]
