"""Azure's fault table: what its API refuses, loses or shows late, and what a user learns of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.clouds.azure import IDENTITY, azure_api
from tests.fleet.azure_stage import OTHER, REGION, Stage, order
from tests.fleet.orders import FLEET
from tests.fleet.worlds import wait_until
from tradewind.engine.everywhere import Everywhere
from tradewind.errors import GatewayError
from tradewind.fleet.azure import removal
from tradewind.fleet.azure.client import Clients
from tradewind.fleet.azure.names import ADDRESSES, DISKS, INTERFACES, MACHINES, SCHEDULES, Names
from tradewind.fleet.ending import end_fleet
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import FLEET_TAG, KEY_TAG, Admitting, CallRefused, Keepable, NetworkChoice
from tradewind.model.azure import azure_from_document
from tradewind.model.sites import Cloud, Sites

PUT_MACHINE = "PUT .*/virtualMachines/"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with azure_api() as api:
        yield Stage(api, FleetJournal(tmp_path), monkeypatch)


def refused(code: str, message: str, status: int = 409, mode: str = "refuse", **more: Any) -> dict[str, Any]:
    return {"match": PUT_MACHINE, "mode": mode, "code": code, "message": message, "status": status, **more}


WRITE = "Microsoft.Compute/virtualMachines/write"
CORES = "Operation could not be completed as it results in exceeding approved standardDv5Family Cores quota."
FAULTS: dict[str, tuple[dict[str, Any], str, str, str | None]] = {
    "sold out": (refused("SkuNotAvailable", "is currently not available"), "capacity", "SkuNotAvailable", None),
    "no hardware": (refused("AllocationFailed", "No space.", mode="poll"), "capacity", "No space", None),
    "no hardware in the zone": (refused("ZonalAllocationFailed", "…", mode="poll"), "capacity", "Zonal", None),
    "quota": (refused("OperationNotAllowed", CORES), "quota", "standardDv5Family", None),
    "quota that shows late": (refused("QuotaExceeded", CORES, mode="poll"), "quota", "standardDv5Family", None),
    "addresses": (
        {**refused("PublicIPCountLimitReached", "…", 400), "match": "PUT .*/publicIPAddresses/"},
        "quota", "Limit", None,
    ),
    "not supported": (refused("OperationNotAllowed", "The VM size is odd."), "bad request", "is odd", None),
    "permission": (
        refused("AuthorizationFailed", f"The client does not have authorization to perform action '{WRITE}' over", 403),
        "permission", "does not have authorization", WRITE,
    ),
    "a policy": (
        refused("RequestDisallowedByPolicy", 'It was disallowed. [{"policyDefinitionDisplayName":"Our places"}]', 403),
        "permission", "It was disallowed", "an exemption from the policy Our places",
    ),
    "a lock": (
        refused("ScopeLocked", "It is locked."),
        "permission", "locked", "the removal of the lock of the resource group",
    ),
    "no spot": (refused("AzureSpotFeatureNotEnabledForSubscription", "No Spot."), "capacity", "No Spot", None),
    "throttled": (refused("TooManyRequests", "Slow down.", 429, retry_after_s=7), "throttled", "Slow down", None),
    "an outage": (refused("InternalServerError", "…", 500), "transient", "InternalServerError", None),
    "unavailable": (refused("ServerTimeout", "…", 503), "transient", "ServerTimeout", None),
    "unknown": (refused("NeverSeenBefore", "What is this?", 400), "transient", "NeverSeenBefore", None),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_refused_machine_says_why_and_leaves_nothing(stage: Stage, name: str) -> None:
    fault, kind, words, action = FAULTS[name]
    provider = stage.provider()
    with stage.fault(**fault):
        refusal = stage.refusal(provider)
    assert (refusal.kind, refusal.action) == (kind, action), refusal
    assert words in refusal.reason and refusal.reason.startswith(f"{REGION}: ")
    assert refusal.retry_after_s == (7.0 if name == "throttled" else None)
    assert [stage.count(each) for each in (MACHINES, INTERFACES, ADDRESSES, DISKS)] == [0, 0, 0, 0]
    assert stage.launched(provider), "the same order works once the fault is over"


NO_SUBNET = f"{IDENTITY.partition('Microsoft.')[0]}Microsoft.Network/virtualNetworks/none/subnets/none"
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "image": ({"image": "Debian:debian-12:no-such-sku:latest"}, "bad request", "PlatformImageNotFound"),
    "size": ({"machine_type": "Standard_Nonsense"}, "bad request", "InvalidParameter"),
    "group": ({"resource_group": "nobodys"}, "bad request", "ResourceGroupNotFound"),
    "subscription": ({"subscription": "00000000-0000-0000-0000-000000000009"}, "bad request", "SubscriptionNotFound"),
    "subnet": (
        {"subnets": {"westeurope": NO_SUBNET}},
        "bad request", "InvalidResourceReference",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_a_bad_request(stage: Stage, name: str) -> None:
    changes, kind, words = WRONG[name]
    provider = stage.provider(**changes)
    try:
        refusal = stage.refusal(provider)
    except CallRefused as error:
        refusal = error.refusal
    assert refusal.kind == kind and words in refusal.reason, refusal


def test_a_recorded_console_is_read_by_https_only() -> None:
    """The metadata service of the user's machine, which would give its credentials, speaks plain HTTP."""
    settings = azure_from_document({"subscription": "x", "resource_group": "g", "regions": ["eastus"]})
    clients = Clients(settings)
    url = "http://169.254.169.254/metadata/identity/oauth2/token"
    with pytest.raises(CallRefused, match="the recorded console cannot be read: InvalidSchema"):
        clients.call("one", lambda: clients.read(url, 1.0))


def test_a_region_that_is_not_configured_is_refused_without_a_call(stage: Stage) -> None:
    refusal = stage.refusal(stage.provider(regions=["eastus"]))
    assert (refusal.kind, refusal.reason) == ("bad request", f"{REGION} is not among the regions of [azure]")
    assert [method for method, _ in stage.api.calls()] == ["GET"]


def test_user_data_that_is_too_long_is_a_bad_request(stage: Stage) -> None:
    long = [{"processor": "x86_64", "url": f"http://192.0.2.1/{'x' * 17000}", "sha256": "0" * 64}]
    refusal = stage.refusal(stage.provider(programs=long))
    assert refusal.kind == "bad request" and "at most 16384 are possible" in refusal.reason
    assert stage.count(INTERFACES) == 0


def test_half_of_the_machines_come(stage: Stage) -> None:
    """The region's quota has room for two of four machines."""
    stage.api.change(cores={"westeurope": 16})
    orders = [order(f"m-{number}") for number in range(4)]
    results = stage.provider().launch(orders)
    refusals = [result.refusal for result in results if result.refusal is not None]
    assert [refusal.kind for refusal in refusals] == ["quota", "quota"]
    assert all("Total Regional Cores" in refusal.reason for refusal in refusals)
    assert (stage.count(MACHINES), stage.count(INTERFACES), stage.count(ADDRESSES)) == (2, 2, 2)


def test_one_region_does_not_affect_another(stage: Stage) -> None:
    with stage.fault(
        match="PUT .*/virtualNetworks/.*-westeurope", mode="refuse", code="VnetCountLimitReached", status=400
    ):
        refused_one, launched = stage.provider().launch([order("one"), order("two", region=OTHER)])
    assert refused_one.refusal is not None and refused_one.refusal.kind == "quota"
    assert launched.machine is not None and launched.machine.region == OTHER


LOST = ["PUT .*/publicIPAddresses/", "PUT .*/networkInterfaces/", "PUT .*/networkSecurityGroups/", PUT_MACHINE]


@pytest.mark.parametrize("match", LOST)
def test_a_lost_answer_starts_no_second_machine(stage: Stage, match: str) -> None:
    provider = stage.provider()
    with stage.fault(match=match, mode="lose", times=1, code="", message="", status=0):
        (result,) = provider.launch([order()])
        if result.refusal is not None:
            assert result.refusal.kind == "transient"
            (result,) = provider.launch([order()])
    assert result.machine is not None
    assert (stage.count(MACHINES), stage.count(INTERFACES), stage.count(ADDRESSES)) == (1, 1, 1)
    assert [machine.id for machine in provider.machines({FLEET_TAG: FLEET})] == [result.machine.id]


def test_a_machine_that_no_list_shows_yet_is_not_started_again(stage: Stage) -> None:
    """Lists lag behind by longer than the test lasts."""
    provider = stage.provider(settles_s=60.0)
    stage.api.change(list_lag_ms=60_000)
    (first,) = stage.launched(provider)
    assert first.control is not None
    assert provider.machines({FLEET_TAG: FLEET}) == ()
    (again,) = provider.launch([order()])
    assert again.machine is not None and again.machine.id == first.id
    assert again.machine.control == first.control
    assert stage.count(MACHINES) == 1


def test_machines_that_lists_still_show_are_ended(stage: Stage) -> None:
    provider = stage.provider(settles_s=1.0)
    stage.api.change(list_lag_ms=1_000)
    (machine,) = stage.launched(provider)
    wait_until(lambda: len(provider.leftovers()) == 7)
    provider.terminate([machine.id])
    assert provider.machines({FLEET_TAG: FLEET}) == (), "a listed machine is looked at"
    assert stage.api.resources() == {}


def test_a_machine_that_no_list_shows_yet_can_be_ended(stage: Stage) -> None:
    provider = stage.provider(settles_s=60.0)
    stage.api.change(list_lag_ms=60_000)
    (machine,) = stage.launched(provider)
    provider.terminate([machine.id])
    assert stage.api.resources() == {}


def test_states_of_machines_are_not_read_more_often_than_lists_change(stage: Stage) -> None:
    """Azure throttles clients that read too often, and a fleet lists its machines each second while they boot."""
    provider = stage.provider(settles_s=60.0)
    machines = stage.launched(provider, order("one"), order("two"))
    before = stage.api.reads_of_states()
    assert before >= 2
    for _ in range(5):
        assert len(provider.machines({FLEET_TAG: FLEET})) == 2
    assert stage.api.reads_of_states() == before
    provider.terminate([machines[0].id])
    assert [machine.name for machine in provider.machines({FLEET_TAG: FLEET})] == ["two"]


def test_an_order_is_recognized_where_azure_ignores_that_its_machine_must_be_new(stage: Stage) -> None:
    """Older versions of the API answer that the machine cannot be changed."""
    provider = stage.provider(settles_s=60.0)
    (first,) = stage.launched(provider)
    stage.api.change(list_lag_ms=60_000)
    with stage.fault(**refused("PropertyChangeNotAllowed", "Changing property 'osProfile.customData' is not allowed.")):
        (again,) = provider.launch([order()])
    assert again.machine is not None and again.machine.id == first.id


def test_a_name_of_another_order_is_refused(stage: Stage) -> None:
    provider = stage.provider()
    stage.launched(provider)
    refusal = stage.refusal(provider, order(key="another"))
    assert (refusal.kind, refusal.reason) == ("bad request", f"fleet {FLEET} has another machine one")


def test_a_machine_that_stopped_itself_has_ended_but_is_left(stage: Stage) -> None:
    """A shutdown inside does not release the hardware in Azure: the machine is billed until it is deleted."""
    provider = stage.provider()
    (machine,) = stage.launched(provider)
    assert "billed" in str(getattr(provider, "warning", None))
    stage.power("stopped", machine)
    (listed,) = provider.machines({FLEET_TAG: FLEET})
    assert listed.ended
    kinds = {left.id: left.kind for left in provider.leftovers()}
    assert kinds[machine.id] == "stopped machine, which is still billed"
    assert stage.launched(provider)[0].id == machine.id, "the order starts a new machine of the same name"
    assert not provider.machines({KEY_TAG: order().key})[0].ended
    provider.terminate([machine.id])
    assert stage.api.resources() == {}


def test_ending_a_fleet_ends_its_stopped_machines(stage: Stage, tmp_path: Path) -> None:
    """As `tradewind fleet down` does, in place of a client that is gone."""
    provider, journal = stage.provider(), FleetJournal(tmp_path / "state")
    stage.power("stopped", stage.launched(provider)[0])
    journal.open(FLEET, "a test", provider.document(), {"one": REGION})
    (record,) = journal.records()
    assert end_fleet(record, journal, "unused").machines == 0, "its gateway had ended"
    assert stage.api.resources() == {} and list(journal.records()) == []


def test_a_fleet_that_no_record_knows_is_ended_with_its_stopped_machines(stage: Stage, tmp_path: Path) -> None:
    """As `tradewind fleet down ID` does on an empty state folder. Another fleet stays as it is."""
    provider = stage.provider()
    stage.power("stopped", stage.launched(provider)[0])
    (other,) = stage.launched(provider, order("two", "other"))
    stage.power("stopped", other)
    settings = provider.document()
    place = Everywhere(
        Sites(clouds=(Cloud("azure", (REGION,), settings),)), FleetJournal(tmp_path / "empty"), "gateway"
    )
    assert list(place.found()) == [] and place.known([FLEET, "typo"]) == {FLEET}
    done = list(place.end([], [FLEET]))
    assert done[0].what == "azure: removed a stopped machine, which is still billed"
    assert all(one.error is None for one in done)
    assert {left.tags[FLEET_TAG] for left in provider.leftovers()} == {"other"}


@pytest.mark.parametrize("identity", [None, IDENTITY])
def test_a_machine_is_stopped_within_a_day_even_if_it_can_delete_itself(stage: Stage, identity: str | None) -> None:
    settings = {} if identity is None else {"identity": identity}
    provider = stage.provider(**settings)
    (machine,) = stage.launched(provider)
    assert list(stage.api.resources()["Microsoft.DevTestLab/schedules"]) == [
        f"shutdown-computevm-{name}" for name in stage.api.resources()[MACHINES]
    ]
    stage.launched(stage.provider(auto_shutdown=False, **settings), order("two"))
    assert len(stage.api.resources()["Microsoft.DevTestLab/schedules"]) == 1
    provider.terminate([machine.id])
    assert not stage.api.resources().get("Microsoft.DevTestLab/schedules")


def calls_about(stage: Stage, kind: str) -> list[int]:
    """Return the numbers of the calls that create such a resource."""
    return [number for number, call in enumerate(stage.api.calls()) if call[0] == "PUT" and f"/{kind}/" in call[1]]


def test_a_machine_has_its_schedule_before_anybody_waits_for_its_hardware(stage: Stage) -> None:
    """A client that is killed while it waits leaves a machine that Azure stops within a day."""
    provider = stage.provider()
    (machine,) = stage.launched(provider)
    (created,), (scheduled,) = calls_about(stage, "virtualMachines"), calls_about(stage, "schedules")
    name = machine.id.rpartition("/")[2]
    looks = [
        number
        for number, call in enumerate(stage.api.calls())
        if call[0] == "GET" and call[1].endswith(f"/virtualMachines/{name}") and number > created
    ]
    assert looks and created < scheduled < looks[0]


def test_a_schedule_that_azure_refuses_for_a_machine_without_hardware_is_repeated(stage: Stage) -> None:
    provider = stage.provider()
    early = refused("ResourceNotFound", "The machine was not found.", 404, times=1)
    with stage.fault(**{**early, "match": "PUT .*/schedules/"}):
        assert stage.launched(provider)
    assert len(calls_about(stage, "schedules")) == 2 and stage.count(SCHEDULES) == 1


@pytest.mark.parametrize(
    ("code", "status", "kind", "times"),
    [("AuthorizationFailed", 403, "permission", 1), ("Teapot", 400, "transient", 2)],
)
def test_a_machine_without_a_schedule_is_removed(stage: Stage, code: str, status: int, kind: str, times: int) -> None:
    provider = stage.provider()
    with stage.fault(**{**refused(code, "No.", status), "match": "PUT .*/schedules/"}):
        assert stage.refusal(provider).kind == kind
    assert len(calls_about(stage, "schedules")) == times and stage.count() == 0


def test_a_repeated_launch_schedules_what_the_first_could_not(stage: Stage) -> None:
    """Its client died between the two calls."""
    (machine,) = stage.launched(stage.provider(auto_shutdown=False))
    assert stage.count(SCHEDULES) == 0
    for _ in range(2):
        (again,) = stage.launched(stage.provider())
        assert again.id == machine.id and stage.count(SCHEDULES) == 1


def test_a_machine_without_hardware_leaves_no_schedule(stage: Stage) -> None:
    provider = stage.provider()
    with stage.fault(**refused("AllocationFailed", "No space.", mode="poll")):
        assert stage.refusal(provider).kind == "capacity"
    assert calls_about(stage, "schedules") and stage.count(SCHEDULES) == 0


def test_a_spot_machine_that_is_evicted_is_gone_with_all_its_parts(stage: Stage) -> None:
    provider = stage.provider(spot=True)
    (machine,) = stage.launched(provider, order(spot=True, zone="2"))
    assert (machine.spot, machine.zone) == (True, "2")
    stage.api.change(notice_s=0)
    stage.power("evict", machine)
    wait_until(lambda: provider.machines({FLEET_TAG: FLEET}) == ())
    assert [stage.count(kind) for kind in (MACHINES, INTERFACES, ADDRESSES, DISKS)] == [0, 0, 0, 0]
    provider.terminate([left.id for left in provider.leftovers()])
    assert stage.api.resources() == {}, "the network of the fleet goes, too"


def test_an_order_that_a_zone_has_no_hardware_for_is_launched_in_another(stage: Stage) -> None:
    """Its address is in the zone, too, and the zone of an address cannot be changed."""
    provider = stage.provider()
    with stage.fault(**refused("ZonalAllocationFailed", "…", mode="poll")):
        assert stage.refusal(provider, order(zone="1")).kind == "capacity"
    (machine,) = stage.launched(provider, order(zone="2"))
    assert machine.zone == "2"


def test_a_security_group_that_is_still_used_is_tried_again_and_then_left(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "WAIT_S", 0.01)
    provider = stage.provider()
    (machine,) = stage.launched(provider)
    used = {"match": "DELETE .*/networkSecurityGroups/", "mode": "refuse", "status": 400, "message": "in use"}
    used["code"] = "InUseNetworkSecurityGroupCannotBeDeleted"
    with stage.fault(**used, times=2):
        assert provider.terminate([machine.id])[0].refusal is None
    assert stage.api.resources() == {}
    (machine,) = stage.launched(provider)
    with stage.fault(**used):
        assert provider.terminate([machine.id])[0].refusal is None
    (left,) = provider.leftovers()
    assert (left.kind, left.tags[FLEET_TAG]) == ("security group", FLEET)
    assert provider.terminate([left.id])[0].refusal is None
    assert stage.api.resources() == {}


@pytest.mark.parametrize("name", ["tradewind-data", "tradewind-data-disk", "tradewind-my-machine-backup-1-disk"])
def test_a_disk_of_somebody_else_with_a_name_like_ours_is_not_ours(stage: Stage, name: str) -> None:
    stage.api.ask(f"disks?name={name}", "")
    provider = stage.provider()
    assert list(provider.leftovers()) == []
    settings = azure_from_document(stage.api.document())
    assert provider.terminate([Names(settings).id(DISKS, name)])[0].refusal is None
    assert stage.count(DISKS) == 1, "it is never removed"


def test_a_machine_that_cannot_be_ended_says_why(stage: Stage) -> None:
    provider = stage.provider()
    (machine,) = stage.launched(provider)
    with stage.fault(
        match="DELETE .*/virtualMachines/", mode="refuse", status=409, code="ScopeLocked", message="locked"
    ):
        (ended,) = provider.terminate([machine.id])
    assert ended.refusal is not None and ended.refusal.kind == "permission" and "locked" in ended.refusal.reason
    assert provider.terminate([machine.id])[0].refusal is None


def test_the_sign_in_is_named_if_it_is_missing(stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    provider = stage.provider()
    for name in ("IDENTITY_ENDPOINT", "IDENTITY_HEADER"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    with pytest.raises(CallRefused) as caught:
        provider.launch([order()])
    assert caught.value.refusal.kind == "permission" and "az login" in (caught.value.refusal.action or "")
    stage.sign_in("nobody")
    monkeypatch.delenv("AZURE_TOKEN_CREDENTIALS")
    with pytest.raises(CallRefused) as caught:
        stage.provider().launch([order()])
    assert caught.value.refusal.kind == "permission"


def test_a_missing_client_is_one_line(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> Any:
        if name == "azure.mgmt.compute":
            raise ModuleNotFoundError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(GatewayError, match="the azure provider needs azure-mgmt-compute") as caught:
        stage.provider().machines({})
    assert caught.value.hint == "pip install 'tradewind[azure]'"


def test_an_unreachable_api_is_transient(stage: Stage) -> None:
    provider = stage.provider(endpoint="https://127.0.0.1:9")
    with pytest.raises(CallRefused) as caught:
        provider.machines({})
    assert caught.value.refusal.kind == "transient"


def test_schedules_are_found_on_all_pages_of_their_list(stage: Stage) -> None:
    """A machine that deletes itself leaves its schedule. The stand-in answers with two at once."""
    provider = stage.provider()
    stage.launched(provider, *(order(name) for name in ("one", "two", "three")))
    schedules = [left for left in provider.leftovers() if left.kind == "schedule"]
    assert len(schedules) == 3
    provider.terminate([left.id for left in provider.leftovers()])
    assert provider.leftovers() == ()


def test_machines_are_kept_no_longer_than_their_schedule_lets_them_run(stage: Stage) -> None:
    scheduled, other = stage.provider(), stage.provider(auto_shutdown=False)
    assert isinstance(scheduled, Keepable) and scheduled.kept_s_max(REGION) == 23 * 3600 + 58 * 60
    assert isinstance(other, Keepable) and other.kept_s_max(REGION) == math.inf


def test_offers_leave_out_sizes_that_the_subscription_may_not_use(stage: Stage) -> None:
    provider = stage.provider(spot=True)
    all_of_them = provider.offers([REGION])
    assert {offer.spot for offer in all_of_them} == {True, False}
    assert all_of_them[0].zones == ("1", "2", "3") and all_of_them[0].left is not None
    stage.api.change(unavailable={"Standard_D8_v5": True})
    assert {offer.type for offer in provider.offers([REGION])} == {offer.type for offer in all_of_them} - {
        "Standard_D8_v5"
    }
    refusal = stage.refusal(provider, order(type="Standard_D8_v5"))
    assert refusal.kind == "capacity" and "SkuNotAvailable" in refusal.reason


def test_the_quota_counts_machines_of_others(stage: Stage) -> None:
    stage.api.change(cores={"westeurope": 40})
    provider = stage.provider()
    stage.launched(provider, order(type="Standard_D16_v5"))
    quota = provider.quota(REGION)
    assert quota is not None and quota.left == 3, "machines of 8 processors in the remaining 24"


def test_routing_and_addresses_are_what_the_settings_say(stage: Stage) -> None:
    from tradewind.fleet.azure.bodies import address_body, group_body

    settings = azure_from_document(stage.api.document(routing="internet"))
    assert address_body(order(), "westeurope", settings)["properties"]["ipTags"] == [
        {"ipTagType": "RoutingPreference", "tag": "Internet"}
    ]
    for routing, tier, tagged in (
        ("internet", NetworkChoice(network_tier="premium"), False),
        ("microsoft", NetworkChoice(network_tier="standard"), True),
    ):
        planned = order(network=tier)
        settings = azure_from_document(stage.api.document(routing=routing))
        properties = address_body(planned, "westeurope", settings)["properties"]
        assert ("ipTags" in properties) == tagged, "the plan's tier replaces the routing of the settings"
    (machine,) = stage.launched(stage.provider(routing="internet"))
    assert list(machine.addresses) == ["public", "private"] and machine.control == f"{machine.addresses['public']}:7442"
    rules = group_body({}, "westeurope", "198.51.100.0/24", ["198.51.100.7", "203.0.113.4"])["properties"][
        "securityRules"
    ]
    assert rules[1]["properties"]["sourceAddressPrefixes"] == ["198.51.100.0/24", "203.0.113.4/32"], "nothing overlaps"


def test_machines_at_other_providers_are_admitted_by_their_ipv4_addresses(stage: Stage) -> None:
    """An address of another kind must not keep the fleet from listing its machines."""
    provider = stage.provider(home_cidr="198.51.100.0/24")
    assert isinstance(provider, Admitting)
    stage.launched(provider)
    provider.admit(FLEET, ["203.0.113.99", "fd00::1", "host.example"])
    settings = azure_from_document(stage.api.document())
    (group,) = Clients(settings).network.network_security_groups.list(settings.resource_group)
    data = group.security_rules[1].source_address_prefixes
    assert "203.0.113.99/32" in data and not any("fd00" in one or "host" in one for one in data)


def user_data_of(stage: Stage, name: str) -> str:
    import base64

    machines = stage.api.ask("machines?known=", method="GET")
    (found,) = [one["custom_data"] for one in machines if one["name"].startswith(f"tradewind-{name}-")]
    return base64.b64decode(found).decode()


def test_machines_without_public_addresses_are_dialled_at_private_ones_or_call_home(stage: Stage) -> None:
    hidden: dict[str, Any] = {"public_address": False, "proxy": "http://10.0.0.4:3128"}
    joined, away = stage.provider(**hidden, home_cidr="10.0.0.0/16"), stage.provider(**hidden, home_cidr="20.1.2.3/32")
    (one,) = stage.launched(joined, order("one"))
    assert list(one.addresses) == ["private"] and one.control == f"{one.addresses['private']}:7442" and not one.inbound
    (two,) = stage.launched(away, order("two"))
    assert two.control is None and not two.inbound
    assert (joined.home(REGION).address, away.home(REGION).address) == ("127.0.0.1", "20.1.2.3")
    assert '"kind": "listen"' in user_data_of(stage, "one") and '"kind": "call"' in user_data_of(stage, "two")
    assert "export https_proxy=http://10.0.0.4:3128\n" in user_data_of(stage, "one")
    assert stage.count(ADDRESSES) == 0
    refusal = stage.refusal(stage.provider(**hidden), order("three"))
    assert refusal.kind == "bad request" and "home_cidr" in refusal.reason


def test_user_data_has_no_secret_but_the_join_token(stage: Stage) -> None:
    """The metadata service and the portal show it."""
    stage.launched(stage.provider(identity=IDENTITY))
    text = user_data_of(stage, "one")
    assert text.startswith("#!/bin/sh\n") and "owner" not in text.replace('"owner"', "")
    assert "/metadata/identity/oauth2/token" in text and "virtualMachines/tradewind-one-" in text
