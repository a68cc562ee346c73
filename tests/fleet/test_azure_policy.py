"""Azure's smallest roles: exactly their actions suffice, and each missing one is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.clouds.azure import IDENTITY, SUBSCRIPTION, azure_api
from tests.fleet.azure_stage import OTHER, REGION, Stage, order
from tests.fleet.orders import FLEET
from tradewind.fleet.azure import removal
from tradewind.fleet.azure.policy import (
    DELEGATION_ACTIONS,
    IDENTITY_ACTIONS,
    JOIN_SUBNET,
    MACHINE_ACTIONS,
    OWNER_ACTIONS,
    PERMISSIONS_ACTION,
    READER_ACTIONS,
    policy,
)
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import FLEET_TAG, CallRefused, Checking, PermissionAnswer, Provider, Refusal
from tradewind.model.azure import azure_from_document

#: Settings with which fleets need all permissions that there are.
WITH: dict[str, dict[str, Any]] = {
    "an identity": {"identity": IDENTITY},
    "schedules": {},
    "consoles": {"identity": IDENTITY, "boot_diagnostics": True},
}


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(removal, "WAIT_S", 0.01)
    with azure_api() as api:
        yield Stage(api, FleetJournal(tmp_path), monkeypatch)


def actions(stage: Stage, **settings: Any) -> list[str]:
    """Return the actions of the two roles of a fleet's owner."""
    owner, reader, *_ = policy(azure_from_document(stage.api.document(**settings)))
    assert owner["AssignableScopes"][0].endswith("/resourceGroups/tradewind")
    assert reader["AssignableScopes"][0].count("/") == 2
    return [*owner["Actions"], *reader["Actions"]]


def whole_life(provider: Provider) -> Iterator[Refusal]:
    """Ask for permissions, do all that a fleet does, and yield each refusal."""
    assert isinstance(provider, Checking)
    try:
        provider.permissions()
    except CallRefused as error:
        yield error.refusal
    try:
        assert provider.quota(REGION)
    except CallRefused as error:
        yield error.refusal
    try:
        results = provider.launch([order("one"), order("two", region=OTHER)])
        yield from (result.refusal for result in results if result.refusal is not None)
        machines = provider.machines({FLEET_TAG: FLEET})
        for machine in machines:
            if host := provider.host(machine):
                assert isinstance(host.log_tail(10), str)
        left = provider.leftovers()
        answers = provider.terminate([one.id for one in left])
        yield from (answer.refusal for answer in answers if answer.refusal is not None)
    except CallRefused as error:
        yield error.refusal


@pytest.mark.parametrize("settings", WITH.values(), ids=list(WITH))
def test_the_roles_suffice(stage: Stage, settings: dict[str, Any]) -> None:
    stage.api.allow("guest", actions(stage, **settings))
    stage.sign_in("guest")
    provider = stage.provider(**settings)
    assert provider.offers([REGION])[0].zones, "sizes and zones can be read"
    assert list(whole_life(provider)) == []
    assert stage.api.resources() == {}


def test_the_roles_have_no_more_than_they_say(stage: Stage) -> None:
    everything = {*actions(stage), *actions(stage, **WITH["consoles"])}
    assert everything > {*OWNER_ACTIONS, *READER_ACTIONS}
    assert not any("*" in action for action in everything)
    (*_, lending, machine) = policy(azure_from_document(stage.api.document(identity=IDENTITY)))
    assert tuple(machine["Actions"]) == MACHINE_ACTIONS
    assert tuple(lending["Actions"]) == DELEGATION_ACTIONS


def named_actions() -> list[tuple[str, str]]:
    from testbed.clouds.azure import GROUP, SUBSCRIPTION

    found = {}
    for name, settings in WITH.items():
        document = {"subscription": SUBSCRIPTION, "resource_group": GROUP, "regions": ["westeurope"], **settings}
        for role in policy(azure_from_document(document))[:2]:
            found.update(dict.fromkeys(role["Actions"], name))
    return sorted((action, name) for action, name in found.items())


@pytest.mark.parametrize(("action", "name"), named_actions(), ids=lambda part: part if "/" in part else "")
def test_a_missing_action_is_named(stage: Stage, action: str, name: str) -> None:
    settings = WITH[name]
    stage.api.allow("guest", [one for one in actions(stage, **settings) if one != action])
    stage.sign_in("guest")
    if action.endswith("/disks/delete"):
        # Machines take their disks with them. Only a disk that is left needs it.
        stage.api.ask("disks?name=tradewind-left-0123456789ab-disk", "")
    if action == "Microsoft.Compute/skus/read":
        assert stage.provider(**settings).offers([REGION])[0].zones == (), "a fleet does without zones"
        return
    refusals = list(refusals_of(stage, settings))
    assert refusals, "nothing needs it"
    assert {refusal.kind for refusal in refusals} == {"permission"}
    assert {refusal.action for refusal in refusals} == {action}, refusals


def lacking(provider: Provider) -> list[PermissionAnswer]:
    """Return the answers for the actions that a login may not do. Only those of storage accounts are unknown."""
    assert isinstance(provider, Checking)
    answers = provider.permissions()
    assert {one.action for one in answers if one.granted is None} == set(DELEGATION_ACTIONS)
    return [one for one in answers if one.granted is False]


@pytest.mark.parametrize("settings", WITH.values(), ids=list(WITH))
def test_missing_actions_are_known_before_anything_is_made(stage: Stage, settings: dict[str, Any]) -> None:
    stage.sign_in("guest")
    provider, wanted = stage.provider(**settings), actions(stage, **settings)
    stage.api.allow("guest", wanted)
    assert lacking(provider) == [], "on many pages"
    stage.api.change(page_items=1000)
    for missing in set(wanted) - {PERMISSIONS_ACTION}:
        stage.api.allow("guest", [one for one in wanted if one != missing])
        assert [one.action for one in lacking(provider)] == [missing]
    assert stage.api.resources() == {}


def test_roles_are_read_as_azure_writes_them(stage: Stage) -> None:
    stage.sign_in("guest")
    stage.api.allow(
        "guest", ["*/READ", "Microsoft.Compute/*", "microsoft.network/*", "Microsoft.DevTestLab/schedules/*"]
    )
    assert lacking(stage.provider()) == []


def test_an_identity_and_a_subnet_may_themselves_allow_their_use(stage: Stage) -> None:
    network = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/tradewind/providers/Microsoft.Network/virtualNetworks/own"
    subnets = {"westeurope": f"{network}/subnets/one", "eastus": f"{network}/subnets/two"}
    settings: dict[str, Any] = {"identity": IDENTITY, "subnets": subnets}
    join, assign = JOIN_SUBNET, IDENTITY_ACTIONS[0]
    common = [one for one in actions(stage, **settings) if one not in (join, assign)]
    stage.sign_in("guest")
    stage.api.allow("guest", common, {IDENTITY: [assign], subnets["eastus"]: [join]})
    assert [(one.place, one.action) for one in lacking(stage.provider(**settings))] == [("one", join)]


def refusals_of(stage: Stage, settings: dict[str, Any]) -> Iterator[Refusal]:
    from tradewind.errors import GatewayError

    provider = stage.provider(**settings)
    try:
        yield from whole_life(provider)
    except GatewayError as error:
        cause = error.__cause__
        assert isinstance(cause, CallRefused)
        yield cause.refusal
