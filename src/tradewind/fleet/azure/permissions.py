"""Finds which actions of the smallest roles a login may do, by the permissions that Azure lists for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tradewind.fleet.azure.client import Clients
from tradewind.fleet.azure.policy import (
    DELEGATION_ACTIONS,
    DIAGNOSTICS_ACTIONS,
    IDENTITY_ACTIONS,
    JOIN_SUBNET,
    READER_ACTIONS,
    owner_actions,
)
from tradewind.fleet.provider import CallRefused, PermissionAnswer
from tradewind.model.azure import AzureSettings

__all__ = ["permission_answers"]

VERSION = "2022-04-01"
USAGES, SIZES = READER_ACTIONS
#: Consequences of missing actions that fleets can do without.
LOSSES = {
    USAGES: "a quota is noticed when a machine is refused",
    SIZES: "the zones of machines are unknown",
    **dict.fromkeys(DIAGNOSTICS_ACTIONS, "the end of a machine's log cannot be shown"),
}
AT_ACCOUNTS = "it may be granted at each storage account"


def permission_answers(settings: AzureSettings, clients: Clients) -> Iterator[PermissionAnswer]:
    """Yield an answer for each action of the owner's roles. Raises CallRefused if Azure does not list permissions.

    A login may join a subnet and assign an identity by a role at these alone, so the permissions there count, too.
    """
    group = f"/subscriptions/{settings.subscription}/resourceGroups/{settings.resource_group}"
    listed = _listed(clients, group)
    elsewhere: dict[str, Sequence[str]] = {}
    if settings.identity:
        elsewhere |= dict.fromkeys(IDENTITY_ACTIONS, (settings.identity,))
    if not set(settings.regions) - settings.subnets.keys():
        elsewhere[JOIN_SUBNET] = sorted(set(settings.subnets.values()))
    for action in (*owner_actions(settings), *READER_ACTIONS):
        is_granted = _is_granted(action, listed)
        if action in elsewhere and not is_granted:
            yield from (_at(place, action, clients) for place in elsewhere[action])
        else:
            place = f"resource group {settings.resource_group}"
            yield PermissionAnswer(place, action, is_granted, loss=LOSSES.get(action))
    for action in DELEGATION_ACTIONS:
        yield PermissionAnswer("storage accounts", action, None, AT_ACCOUNTS)


def _at(resource: str, action: str, clients: Clients) -> PermissionAnswer:
    """Return whether a login may do something to a resource of the user."""
    name = resource.rpartition("/")[2]
    try:
        return PermissionAnswer(name, action, _is_granted(action, _listed(clients, resource)))
    except CallRefused as error:
        return PermissionAnswer(name, action, None, str(error), is_error=True)


def _listed(clients: Clients, scope: str) -> list[Mapping[str, Any]]:
    """Return the permissions of a login at a scope, those inherited from wider scopes included. Raises CallRefused."""
    path = f"{scope}/providers/Microsoft.Authorization/permissions"
    return list(clients.pages(scope.rpartition("/")[2], path, VERSION))


def _is_granted(action: str, permissions: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether one role allows an action. What a role excludes, another one may allow."""
    return any(
        _matches(action, role.get("actions") or ()) and not _matches(action, role.get("notActions") or ())
        for role in permissions
    )


def _matches(action: str, patterns: Sequence[str]) -> bool:
    return any(re.fullmatch(re.escape(each).replace(r"\*", ".*"), action, re.I) for each in patterns)
