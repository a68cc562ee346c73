"""What Azure's errors mean. An unknown error is transient: it is retried, and the region is not given up for it."""

from __future__ import annotations

import re

from tradewind.fleet.provider import Refusal, RefusalKind

__all__ = ["SIGN_IN", "refusal_of"]

#: Length of a reason. Azure's messages have whole paragraphs of advice.
REASON_CHARS_MAX = 400
#: The action of a refusal without credentials.
SIGN_IN = "a sign-in to Azure: `az login`, or the variables AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET"

KINDS: dict[str, RefusalKind] = {
    "AuthorizationFailed": "permission",
    "LinkedAuthorizationFailed": "permission",
    "AuthenticationFailed": "permission",
    "InvalidAuthenticationToken": "permission",
    "InvalidAuthenticationTokenTenant": "permission",
    "ExpiredAuthenticationToken": "permission",
    "RequestDisallowedByPolicy": "permission",
    "ScopeLocked": "permission",
    "ReadOnlyDisabledSubscription": "permission",
    "MissingSubscriptionRegistration": "permission",
    "QuotaExceeded": "quota",
    "ResourceQuotaExceeded": "quota",
    "PublicIPCountLimitReached": "quota",
    "IPv4StandardSkuPublicIpCountLimitReached": "quota",
    "NetworkInterfaceCountLimitReached": "quota",
    "NetworkSecurityGroupCountLimitReached": "quota",
    "VnetCountLimitReached": "quota",
    "SubnetIsFull": "quota",
    "SkuNotAvailable": "capacity",
    "AllocationFailed": "capacity",
    "ZonalAllocationFailed": "capacity",
    "OverconstrainedAllocationRequest": "capacity",
    "OverconstrainedZonalAllocationRequest": "capacity",
    "AllocationTimeout": "capacity",
    "NotAvailableForSubscription": "capacity",
    "AzureSpotFeatureNotEnabledForSubscription": "capacity",
    "LocationNotAvailableForResourceType": "capacity",
    "AvailabilityZoneNotSupported": "capacity",
    "TooManyRequests": "throttled",
    "SubscriptionRequestsThrottled": "throttled",
    "ResourceRequestsThrottled": "throttled",
    "BadRequest": "bad request",
    "InvalidParameter": "bad request",
    "InvalidRequestContent": "bad request",
    "InvalidRequestFormat": "bad request",
    "InvalidResourceReference": "bad request",
    "PlatformImageNotFound": "bad request",
    "ImageNotFound": "bad request",
    "ImageVersionNotFound": "bad request",
    "VMMarketplaceInvalidInput": "bad request",
    "MarketplacePurchaseEligibilityFailed": "bad request",
    "ResourceGroupNotFound": "bad request",
    "SubscriptionNotFound": "bad request",
    "InvalidSubscriptionId": "bad request",
    "PropertyChangeNotAllowed": "bad request",
    "SecurityRuleParameterInvalid": "bad request",
    "VMSizeIsNotPermittedToEnableAcceleratedNetworking": "bad request",
}
#: Azure uses this code for exceeded quotas and for operations that a resource does not support.
AMBIGUOUS = "OperationNotAllowed"

_ACTION = re.compile(r"perform action(?:\(s\))? '([^']+)'")
_POLICY = re.compile(r'"policyDefinitionDisplayName":"([^"]+)"|"name":"([^"]+)"')


def refusal_of(place: str, code: str, message: str, status: int = 0, retry_after_s: float | None = None) -> Refusal:
    """Return the refusal of an error. `place` is the region, or what the call was about."""
    kind = KINDS.get(code, "transient")
    if code == AMBIGUOUS:
        kind = "quota" if "quota" in message.lower() else "bad request"
    if status == 429:
        kind = "throttled"
    reason = " ".join(f"{place}: {code}: {message}".split())
    if len(reason) > REASON_CHARS_MAX:
        reason = f"{reason[: REASON_CHARS_MAX - 1]}…"
    action = _action(code, message) if kind == "permission" else None
    return Refusal(kind, reason, action=action, retry_after_s=retry_after_s if kind == "throttled" else None)


def _action(code: str, message: str) -> str:
    """Return what a client lacks. A linked failure names the action that it may perform first."""
    if named := _ACTION.findall(message):
        return str(named[-1])
    if code == "RequestDisallowedByPolicy":
        policy = _POLICY.search(message)
        return (
            f"an exemption from the policy {policy.group(1) or policy.group(2) if policy else 'that the message names'}"
        )
    if code == "ScopeLocked":
        return "the removal of the lock of the resource group"
    if code == "MissingSubscriptionRegistration":
        return "`az provider register` for Microsoft.Compute, Microsoft.Network and Microsoft.DevTestLab"
    if code == "ReadOnlyDisabledSubscription":
        return "an enabled subscription"
    return SIGN_IN
