"""Asks which permissions of the smallest role a login has. Google answers without making anything."""

from __future__ import annotations

from collections.abc import Iterator

from tradewind.fleet.gcp.api import ComputeApi
from tradewind.fleet.gcp.role import wanted
from tradewind.fleet.provider import CallRefused, PermissionAnswer
from tradewind.model.gcp import GcpSettings

__all__ = ["permission_answers"]

#: Permission that may be granted for an identity alone.
ACT_AS = "iam.serviceAccounts.actAs"
#: Consequences of missing permissions that fleets can do without.
LOSSES = {"compute.instances.getSerialPortOutput": "the end of a machine's log cannot be shown"}


def permission_answers(settings: GcpSettings, api: ComputeApi) -> Iterator[PermissionAnswer]:
    """Yield an answer for each permission of the role. Raises CallRefused."""
    permissions, place = wanted(settings), f"project {settings.project}"
    granted = api.granted(permissions)
    for permission in permissions:
        is_granted = permission in granted
        if permission == ACT_AS and not is_granted and settings.service_account is not None:
            yield _act_as(settings.service_account, api)
        else:
            yield PermissionAnswer(place, permission, is_granted, loss=LOSSES.get(permission))


def _act_as(account: str, api: ComputeApi) -> PermissionAnswer:
    """Return whether the login may start machines with an identity. Google calls the usual one `default`."""
    if account == "default":
        return PermissionAnswer(account, ACT_AS, None, "the project does not grant it, and the identity may do so")
    try:
        return PermissionAnswer(account, ACT_AS, ACT_AS in api.granted_at(account, [ACT_AS]))
    except CallRefused as error:
        return PermissionAnswer(account, ACT_AS, None, str(error), is_error=True)
