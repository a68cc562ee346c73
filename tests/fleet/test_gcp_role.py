"""The role that the guide prints suffices, and each missing permission is named."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.clouds.gcp.cloud import Cloud
from testbed.clouds.gcp.server import Answer, ComputeEngine
from tests.fleet.gcp_stage import REGION, GcpStage, order
from tests.fleet.orders import FLEET
from tradewind.fleet.gcp.role import FOR_ACCOUNT, FOR_ADDRESSES, FOR_FIREWALL, PERMISSIONS, policy
from tradewind.fleet.provider import FLEET_TAG, KEY_TAG, NAME_TAG, OWNER_TAG, CallRefused, Checking, Provider, Refusal
from tradewind.model.gcp import GcpSettings

ACCOUNT = "gateway@test-project.iam.gserviceaccount.com"
LEFT = {FLEET_TAG: "old", KEY_TAG: "k", NAME_TAG: "n", OWNER_TAG: "o"}


def granted(settings: GcpSettings) -> frozenset[str]:
    lines = policy(settings).splitlines()
    return frozenset(line.removeprefix("- ") for line in lines if line.startswith("- "))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[GcpStage]:
    with ComputeEngine(Cloud()) as api:
        yield GcpStage(tmp_path, api)


def refusals(provider: Provider, stage: GcpStage) -> Iterator[Refusal]:
    """Use all calls of a provider, and yield the refusals."""
    stage.cloud.leave_disk("left", "us-central1-a", LEFT)
    stage.cloud.firewalls["tradewind-old-data"] = {"name": "tradewind-old-data", "description": json.dumps(LEFT)}
    ids = ["us-central1-a/disks/left"]
    try:
        provider.quota(REGION)
        provider.offers([REGION])
        (result,) = provider.launch([order()])
        if result.refusal is not None:
            yield result.refusal
        if result.machine is not None:
            ids.append(result.machine.id)
            access = provider.host(result.machine)
            assert access is not None
            access.log_tail(100)
        provider.machines({FLEET_TAG: FLEET})
        provider.leftovers()
    except CallRefused as error:
        yield error.refusal
    yield from (ended.refusal for ended in provider.terminate(ids) if ended.refusal is not None)
    if provider.document()["firewall"]:
        rules = ["global/firewalls/tradewind-old-data"]
        yield from (ended.refusal for ended in provider.terminate(rules) if ended.refusal is not None)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"public_address": False},
        {"firewall": False},
        {"service_account": ACCOUNT},
        {"spot": True, "network_tier": "STANDARD"},
    ],
    ids=["default", "private", "own firewall", "identity", "spot"],
)
def test_the_role_suffices(stage: GcpStage, settings: dict[str, object]) -> None:
    provider = stage.provider(**settings)
    stage.api.role = granted(GcpSettings.from_document(stage.document(**settings)))
    assert list(refusals(provider, stage)) == []
    assert set(stage.cloud.billed()) <= {"global/firewalls/tradewind-old-data"}, "which the user's own rules exclude"


@pytest.mark.parametrize("missing", sorted({*PERMISSIONS, *FOR_ADDRESSES, *FOR_FIREWALL, *FOR_ACCOUNT}))
def test_a_missing_permission_is_named(stage: GcpStage, missing: str) -> None:
    provider = stage.provider(service_account=ACCOUNT)
    role = granted(GcpSettings.from_document(stage.document(service_account=ACCOUNT)))
    stage.api.role = role - {missing}
    found = list(refusals(provider, stage))
    assert {(refusal.kind, refusal.action) for refusal in found} == {("permission", missing)}
    assert all(missing in refusal.reason for refusal in found)


@pytest.mark.parametrize("missing", [None, *sorted({*PERMISSIONS, *FOR_ADDRESSES, *FOR_FIREWALL, *FOR_ACCOUNT})])
def test_a_missing_permission_is_known_before_anything_is_made(stage: GcpStage, missing: str | None) -> None:
    provider = stage.provider(service_account=ACCOUNT)
    role = granted(GcpSettings.from_document(stage.document(service_account=ACCOUNT)))
    stage.api.role = role - {missing}
    assert isinstance(provider, Checking)
    answers = provider.permissions()
    assert {one.action for one in answers} == role
    assert [one.action for one in answers if one.granted is not True] == ([missing] if missing else [])
    assert {name.rpartition(".")[2] for name in stage.methods()} == {"testIamPermissions"}


def test_the_identity_itself_may_allow_its_use(stage: GcpStage) -> None:
    provider = stage.provider(service_account=ACCOUNT)
    role = granted(GcpSettings.from_document(stage.document(service_account=ACCOUNT)))
    stage.api.role, stage.api.account_roles[ACCOUNT] = role - {"iam.serviceAccounts.actAs"}, role
    assert isinstance(provider, Checking) and all(one.granted for one in provider.permissions())


def test_an_api_that_is_not_enabled_is_named(stage: GcpStage) -> None:
    words = (
        "Cloud Resource Manager API has not been used in project 1 before or it is disabled. Enable it by visiting "
        "https://console.developers.google.com/apis/api/cloudresourcemanager.googleapis.com/overview?project=1"
    )
    stage.fault("projects.testIamPermissions", Answer(403, "accessNotConfigured", words))
    provider = stage.provider()
    assert isinstance(provider, Checking)
    with pytest.raises(CallRefused) as caught:
        provider.permissions()
    assert caught.value.hint == (
        "this needs the Cloud Resource Manager API: gcloud services enable cloudresourcemanager.googleapis.com"
    )


def test_the_role_is_what_gcloud_reads() -> None:
    text = policy(GcpSettings("test-project"))
    assert text.startswith("title: Tradewind fleets\n") and "\nstage: GA\nincludedPermissions:\n- compute." in text
    assert not [name for name in granted(GcpSettings("test-project")) if "*" in name or "setIamPolicy" in name]


def test_the_guide_lists_every_permission() -> None:
    """In a row of its table, a name without a service continues the one before it."""
    guide = Path(__file__).parents[2] / "docs" / "guides" / "gcp.md"
    rows = re.findall(r"^\| (`(?:compute|iam)\.[^|]*)\|", guide.read_text(encoding="utf-8"), re.M)
    listed: set[str] = set()
    for row in rows:
        before = ""
        for name in re.findall(r"`([^`]+)`", row):
            full = name if "." in name else f"{before.rpartition('.')[0]}.{name}"
            listed.add(full)
            before = full
    assert listed == {*PERMISSIONS, *FOR_ADDRESSES, *FOR_FIREWALL, *FOR_ACCOUNT}
