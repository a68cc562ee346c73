"""IAM policies as EC2 heeds them: with their conditions, and all permissions that a request needs. moto has neither.

`moto_ec2.py` loads this file in moto's own interpreter. Statements may name the resources of the scheduler only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from moto.core.exceptions import AccessDeniedError
from moto.core.exceptions import _RESTError as RESTError
from moto.ec2.models import ec2_backends
from moto.iam.access_control import IAMRequest

Context = Mapping[str, str]
ENCODED_CHARS = 1000
PARAMETERS = re.compile(r"(InstanceId|GroupId|VolumeId)(\.\d+)?")


class Unauthorized(RESTError):  # type: ignore[misc]
    """EC2's own refusal."""

    code = 403

    def __init__(self, user: str, action: str) -> None:
        super().__init__(
            "UnauthorizedOperation",
            f"You are not authorized to perform this operation. User: {user} is not authorized to perform: {action} "
            f"because no identity-based policy allows the {action} action. "
            f"Encoded authorization failure message: {'x' * ENCODED_CHARS}",
        )


def heed_policies() -> None:
    """Let moto check each request as EC2 does."""
    IAMRequest.check_action_permitted = _check
    checked = IAMRequest.check_signature
    # moto leaves the query out of the signed text, and the scheduler's deletions have one.
    IAMRequest.check_signature = lambda request: None if request._service == "scheduler" else checked(request)


def _check(request: IAMRequest, resource: str) -> None:
    if request._action == "sts:GetCallerIdentity":
        return
    policies = request._access_key.collect_policies()
    statements = [statement for policy in policies for statement in _statements(policy) if _covers(statement, request)]
    for action, context in _needed(request):
        effects = {one["Effect"] for one in statements if _concerns(one, action, context)}
        if "Deny" in effects or "Allow" not in effects:
            refusal = Unauthorized if request._service == "ec2" else AccessDeniedError
            raise refusal(request._access_key.arn, action)


def _statements(policy: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(policy["policy_document"])["Statement"]
    return found


def _covers(statement: Mapping[str, Any], request: IAMRequest) -> bool:
    """Return whether a statement is about the resource of a request: anything, or a schedule by its name."""
    wanted: str = statement["Resource"]
    if wanted == "*":
        return True
    assert ":scheduler:" in wanted, "only statements about schedules may name a resource"
    name = urlsplit(request._path).path.rpartition("/")[2]
    return _like(wanted, f"arn:aws:scheduler:{request._region}:{request.account_id}:schedule/default/{name}")


def _needed(request: IAMRequest) -> Iterator[tuple[str, Context]]:
    """Yield the permissions that a request needs, each with the values of the keys that conditions may have."""
    service, _, operation = request._action.partition(":")
    given = request._data if service == "ec2" else {}
    form = {name: values[0] if isinstance(values, list) else values for name, values in given.items()}
    changed = [value for name, value in form.items() if PARAMETERS.fullmatch(name)]
    for name in changed or [""]:
        tags = ec2_backends[request.account_id][request._region].tags.get(name, {})
        yield request._action, {f"aws:ResourceTag/{key}": value for key, value in tags.items()}
    if any(name.startswith("TagSpecification.") for name in form):
        yield "ec2:CreateTags", {"ec2:CreateAction": operation}
    if request._action == "scheduler:CreateSchedule":
        yield "iam:PassRole", {"iam:PassedToService": "scheduler.amazonaws.com"}
    if any(name.startswith("IamInstanceProfile.") for name in form):
        yield "iam:PassRole", {"iam:PassedToService": "ec2.amazonaws.com"}


def _concerns(statement: Mapping[str, Any], action: str, context: Context) -> bool:
    actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
    conditions = statement.get("Condition", {})
    return any(_like(each, action) for each in actions) and all(
        _holds(operator, key, wanted, context) for operator, keys in conditions.items() for key, wanted in keys.items()
    )


def _holds(operator: str, key: str, wanted: str | list[str], context: Context) -> bool:
    if operator not in ("StringEquals", "StringLike"):
        raise ValueError(f"the stand-in does not know the condition {operator}")
    values = [wanted] if isinstance(wanted, str) else wanted
    if key not in context:
        return False
    return context[key] in values if operator == "StringEquals" else any(_like(one, context[key]) for one in values)


def _like(pattern: str, text: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text, re.I) is not None
