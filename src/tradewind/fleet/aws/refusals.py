"""Why Amazon refused a call: its error codes, by kind.

Source: Error codes for the Amazon EC2 API (EC2 API Reference). A code that is not listed is transient, unless it begins
with one of the beginnings at the end.
"""

from __future__ import annotations

from tradewind.fleet.provider import Refusal, RefusalKind

__all__ = ["LOGIN", "refusal_of"]

LOGIN = "valid credentials: `aws sso login`, `aws configure`, or another `profile` in [aws]"
#: Other needs of a call, by code. EC2 answers AuthFailure also in a region that the account has not enabled.
_NEEDS = {
    "AuthFailure": f"{LOGIN}; and a region that the account has enabled",
    "ExpiredToken": LOGIN,
    "ExpiredTokenException": LOGIN,
    "InvalidClientTokenId": LOGIN,
    "OptInRequired": "an account that is signed up for EC2, and a region that it has enabled",
    # EC2 also answers so if temporary credentials have expired.
    "RequestExpired": f"{LOGIN}; and the right time on this machine",
    "SignatureDoesNotMatch": LOGIN,
    "UnrecognizedClientException": LOGIN,
}

#: Maximum length of a reason. Amazon appends an encoded message of kilobytes to some.
REASON_MAX = 300

#: The first spot instance of an account needs a role that its user may have to make (EC2 User Guide, Service-linked
#: role for Spot Instance requests).
SPOT_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"

_KINDS: dict[RefusalKind, tuple[str, ...]] = {
    "permission": (
        "AccessDenied",
        "AccessDeniedException",
        "AccountDisabled",
        "AuthFailure",
        SPOT_ROLE,
        "Blocked",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "OptInRequired",
        "PendingVerification",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    ),
    "quota": (
        "AddressLimitExceeded",
        "InstanceLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "ResourceCountExceeded",
        "RulesPerSecurityGroupLimitExceeded",
        "SecurityGroupLimitExceeded",
        "SecurityGroupsPerInstanceLimitExceeded",
        "ServiceQuotaExceededException",
        "VcpuLimitExceeded",
        "VolumeLimitExceeded",
    ),
    "capacity": (
        "InsufficientAddressCapacity",
        "InsufficientCapacity",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientVolumeCapacity",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
        # The type, or the kind of its disk, is not offered in this zone.
        "Unsupported",
        "VolumeTypeNotAvailableInZone",
    ),
    "throttled": (
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    ),
    "bad request": (
        "DefaultVpcDoesNotExist",
        "MissingParameter",
        # The account has no value of its own for a quota.
        "NoSuchResourceException",
        "OperationNotPermitted",
        "ParameterNotFound",
        "TagPolicyViolation",
        "UnknownParameter",
        "UnsupportedOperation",
        "ValidationError",
        "ValidationException",
        "VPCIdNotSpecified",
        "VPCResourceNotSpecified",
    ),
    "transient": (
        # An earlier request of the same order, with another lease, has started the instance. A list shows it soon.
        "IdempotentParameterMismatch",
        # A new resource may not be known everywhere yet.
        "InvalidInstanceID.NotFound",
        "InvalidGroup.InUse",
        "InvalidGroup.NotFound",
        "InvalidGroupId.NotFound",
        "InvalidSecurityGroupID.NotFound",
        "DependencyViolation",
    ),
}
_KIND_OF = {code: kind for kind, codes in _KINDS.items() for code in codes}
#: Beginnings of codes of wrong requests: an unknown image, a subnet that does not exist, a malformed value.
_BAD_BEGINNINGS = ("Invalid", "Malformed", "Missing")
#: Without one of these codes no permission is missing: the credentials themselves are wrong.
_LACKING = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")


def refusal_of(code: str, message: str, action: str, retry_after_s: float | None = None) -> Refusal:
    """Return the refusal of a call. `action` is the permission that the call needs, such as `ec2:RunInstances`."""
    kind = _KIND_OF.get(code)
    if kind is None:
        kind = "bad request" if code.startswith(_BAD_BEGINNINGS) else "transient"
    words = message.partition(" Encoded authorization failure message:")[0]
    reason = " ".join(f"{code}: {words}".split())[:REASON_MAX]
    if code == SPOT_ROLE:
        return Refusal(kind, reason, "iam:CreateServiceLinkedRole", retry_after_s)
    return Refusal(kind, reason, _missing(message, action) if code in _LACKING else _NEEDS.get(code), retry_after_s)


def _missing(message: str, action: str) -> str:
    """Return the permission that a message names; else the one that the call needs.

    RunInstances also needs others, such as iam:PassRole and ec2:CreateTags.
    """
    named = message.partition("is not authorized to perform: ")[2].split()
    return named[0].rstrip(".,") if named and ":" in named[0] else action
