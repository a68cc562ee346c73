"""The error table of Compute Engine: its codes and reasons as refusals.

Sources: `google.rpc` reasons in the HTTP answers, and the codes in the errors of operations, as
https://cloud.google.com/compute/docs/troubleshooting lists them. An unknown code is transient.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.fleet.provider import Refusal, RefusalKind

__all__ = ["of_operation", "of_response"]

#: Kind of each reason of an HTTP error, and of each code of an operation's error.
KINDS: Mapping[str, RefusalKind] = {
    # The zone or the region has no machine to give.
    "ZONE_RESOURCE_POOL_EXHAUSTED": "capacity",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": "capacity",
    "REGION_RESOURCE_POOL_EXHAUSTED": "capacity",
    "RESOURCE_POOL_EXHAUSTED": "capacity",
    "STOCKOUT": "capacity",
    # The project may not have more.
    "QUOTA_EXCEEDED": "quota",
    "quotaExceeded": "quota",
    "limitExceeded": "quota",
    "IP_SPACE_EXHAUSTED": "quota",
    "IP_SPACE_EXHAUSTED_WITH_DETAILS": "quota",
    # Not now.
    "rateLimitExceeded": "throttled",
    "userRateLimitExceeded": "throttled",
    "RATE_LIMIT_EXCEEDED": "throttled",
    "RESOURCE_OPERATION_RATE_EXCEEDED": "throttled",
    "resourceOperationRateExceeded": "throttled",
    "concurrentOperationQuotaExceeded": "throttled",
    "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED": "throttled",
    "resourceNotReady": "transient",
    "RESOURCE_NOT_READY": "transient",
    "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE": "transient",
    "resourceInUseByAnotherResource": "transient",
    "backendError": "transient",
    "internalError": "transient",
    "INTERNAL_ERROR": "transient",
    "OPERATION_CANCELED_BY_USER": "transient",
    # Nobody may, or this caller may not.
    "forbidden": "permission",
    "required": "bad request",
    "authError": "permission",
    "accessNotConfigured": "permission",
    "SERVICE_DISABLED": "permission",
    "PERMISSIONS_ERROR": "permission",
    "PERMISSION_DENIED": "permission",
    "BILLING_DISABLED": "permission",
    # The request is wrong, and remains so.
    "invalid": "bad request",
    "badRequest": "bad request",
    "parseError": "bad request",
    "notFound": "bad request",
    "uploadTooLarge": "bad request",
    "conditionNotMet": "bad request",
    "CONDITION_NOT_MET": "bad request",
    "INVALID_FIELD_VALUE": "bad request",
    "INVALID_USAGE": "bad request",
    "RESOURCE_NOT_FOUND": "bad request",
    "RESOURCE_ALREADY_EXISTS": "bad request",
    "alreadyExists": "bad request",
    "UNSUPPORTED_OPERATION": "bad request",
}
#: Needs that are no permissions, by reason of the refusal.
ACTIONS: Mapping[str, str] = {
    "authError": "valid credentials: `gcloud auth application-default login`",
    "BILLING_DISABLED": "a billing account of the project",
    "notFound": "a project, regions, a network and an image that exist: check [gcp]",
}
#: Reasons that say that an API is not enabled.
DISABLED = ("accessNotConfigured", "SERVICE_DISABLED")
_COMPUTE = "compute.googleapis.com"
APIS: Mapping[str, str] = {
    _COMPUTE: "Compute Engine API",
    "cloudresourcemanager.googleapis.com": "Cloud Resource Manager API",
    "iam.googleapis.com": "IAM API",
}
#: Code that says only that the other errors of the operation happened.
FOLLOWS = "VM_MIN_COUNT_NOT_REACHED"
_SERVICE = re.compile(r"\b([a-z]+\.googleapis\.com)")
_PERMISSION = re.compile(r"'([a-z]+(?:\.[A-Za-z]+)+)'")


def of_response(status: int, answer: Mapping[str, Any], retry_after: str | None = None) -> Refusal:
    """Return the refusal of an HTTP answer with an error status. `retry_after` is the header of that name."""
    error = answer.get("error")
    error = error if isinstance(error, dict) else {}
    reasons = [str(one.get("reason")) for one in error.get("errors", ()) if isinstance(one, dict)]
    reasons += [str(one.get("reason")) for one in error.get("details", ()) if isinstance(one, dict)]
    words = _one_line(str(error.get("message") or f"HTTP status {status}"))
    wait_s = float(retry_after) if retry_after is not None and re.fullmatch(r"\d+(\.\d+)?", retry_after) else None
    # A disabled API or missing billing is also reported as `forbidden`, which is the less exact reason.
    known = [reason for reason in reasons if reason in KINDS]
    reason = next((one for one in known if one in ACTIONS or one in DISABLED), known[0] if known else "")
    if reason:
        return _refusal(reason, words, wait_s)
    by_status: Mapping[int, RefusalKind] = {
        400: "bad request",
        401: "permission",
        403: "permission",
        404: "bad request",
        412: "bad request",
        413: "bad request",
        429: "throttled",
    }
    return Refusal(by_status.get(status, "transient"), words, _permission(words) if status == 403 else None, wait_s)


def of_operation(errors: Sequence[Mapping[str, Any]]) -> Refusal:
    """Return the refusal of an operation that ended with these errors."""
    exact = [one for one in errors if one.get("code") != FOLLOWS] or list(errors)
    first = next((one for one in exact if one.get("code") in KINDS), exact[0] if exact else {})
    code = str(first.get("code", "unknown error"))
    return _refusal(code, f"{code}: {_one_line(str(first.get('message', '')))}", None)


def _refusal(reason: str, words: str, wait_s: float | None) -> Refusal:
    kind = KINDS.get(reason, "transient")
    action = ACTIONS.get(reason) or (_permission(words) if kind == "permission" else None)
    if reason in DISABLED:
        named = _SERVICE.search(words)
        service = named[1] if named else _COMPUTE
        action = f"the {APIS.get(service, service)}: gcloud services enable {service}"
    return Refusal(kind, words, action, wait_s)


def _permission(words: str) -> str | None:
    """Return the permission in "Required 'compute.instances.create' permission for …"."""
    found = _PERMISSION.search(words)
    return None if found is None else found[1]


def _one_line(words: str) -> str:
    return " ".join(words.split())
