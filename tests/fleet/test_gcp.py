"""The provider of Compute Engine against a stand-in that checks requests against Google's own description."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from testbed.clouds.gcp.cloud import Cloud
from testbed.clouds.gcp.discovery import compute_discovery
from testbed.clouds.gcp.server import Answer, ComputeEngine, FailOperation
from tests.fleet.gcp_stage import HOME, REGION, GcpStage, launch, order
from tests.fleet.orders import FLEET, OWNER, refusal_of
from tests.fleet.test_catalog_offers import REFRESHED, store_price
from tests.fleet.worlds import wait_until
from tradewind.engine.everywhere import Everywhere
from tradewind.errors import GatewayError
from tradewind.fleet.gcp.instances import DELETE_ITSELF, SHUTDOWN_SCRIPT, SPOT_SHUTDOWN_SCRIPT
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import FLEET_TAG, Admitting, CallRefused, NetworkChoice
from tradewind.fleet.providers.gcp import GcpProvider
from tradewind.model import sites


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[GcpStage]:
    with ComputeEngine(Cloud()) as api:
        yield GcpStage(tmp_path, api)


def created(stage: GcpStage) -> list[dict[str, Any]]:
    """Return the properties of the created instances, in order."""
    bodies = [call.body for call in stage.api.calls if call.method == "regionInstances.bulkInsert"]
    return [body["instanceProperties"] for body in bodies]


def test_the_stand_in_refuses_what_google_refuses(stage: GcpStage) -> None:
    """Otherwise no other test shows that our requests are right."""
    discovery = compute_discovery()
    launch(stage.provider())
    (call,) = (call for call in stage.api.calls if call.method == "regionInstances.bulkInsert")
    schema = discovery.methods[call.method].request
    assert schema is not None
    assert list(discovery.problems(call.body, schema)) == []
    for path, value, words in (
        (("instanceProperties", "schedulng"), {}, "Unknown name 'schedulng'"),
        (("instanceProperties", "scheduling", "provisioningModel"), "CHEAP", "'CHEAP' is not one of"),
        (("count",), True, "Invalid value at 'count'"),
        (("instanceProperties", "disks"), {}, "Invalid value at 'instanceProperties.disks' (array)"),
    ):
        wrong: dict[str, Any] = json.loads(json.dumps(call.body))
        inner = wrong
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
        (problem,) = discovery.problems(wrong, schema)
        assert words in problem
    found = discovery.find("GET", "projects/test-project/aggregated/instances")
    assert found is not None
    assert list(discovery.query_problems(found[0], {"filtre": "x"}))


@pytest.mark.parametrize(
    "filter_text",
    ["name:tradewind-", 'labels.a:* AND labels.b="c"', "(labels.a:*) AND labels.b=c", 'name="a" OR name="b"'],
)
def test_the_stand_in_refuses_filters_that_google_does_not_describe(stage: GcpStage, filter_text: str) -> None:
    query = urlencode({"filter": filter_text})
    with pytest.raises(HTTPError) as error:
        urlopen(f"{stage.api.endpoint}/compute/v1/projects/test-project/aggregated/instances?{query}")
    with error.value as answer:
        assert answer.code == 400 and b"Invalid list filter expression" in answer.read()


def test_machines_are_launched_at_once_with_labels_and_their_own_token(stage: GcpStage) -> None:
    stage.cloud.operation_s = 0.6
    provider = stage.provider()
    machines = launch(provider, *(order(f"m-{number}") for number in range(8)))
    calls = [call for call in stage.api.calls if call.method == "regionInstances.bulkInsert"]
    assert len({call.query["requestId"] for call in calls}) == len(calls) == 8
    polls = stage.methods().index("regionOperations.get")
    begun = [number for number, method in enumerate(stage.methods()) if method == "regionInstances.bulkInsert"]
    assert sum(number < polls for number in begun) > 1, "they are created one after the other"
    assert [machine.name for machine in machines] == [f"m-{number}" for number in range(8)]
    for machine, given in zip(machines, sorted(created(stage), key=lambda one: str(one["labels"])), strict=True):
        assert given["labels"] == {**machine.tags, "tradewind-lease": "900", "tradewind-role": "relay"}
        assert given["disks"][0]["autoDelete"] and given["disks"][0]["initializeParams"]["labels"] == given["labels"]
        script = next(item["value"] for item in given["metadata"]["items"] if item["key"] == "startup-script")
        assert [f'"name": "m-{number}"' in script for number in range(8)].count(True) == 1
        assert "serviceAccounts" not in given
        assert machine.lease is not None and (machine.lease.seconds, machine.lease.owner) == (900, OWNER)
        assert machine.control == f"{machine.addresses['public']}:7442" and machine.inbound


def test_a_repeated_order_is_the_same_machine(stage: GcpStage) -> None:
    (first,) = launch(stage.provider())
    assert launch(stage.provider()) == [first]
    stage.cloud.lag_s = 3600.0
    (late,) = launch(stage.provider(), order("late"))
    assert stage.provider().machines({FLEET_TAG: FLEET}) == (first,), "it is not listed yet"
    (again,) = launch(stage.provider(), order("late"))
    assert again.id == late.id and len(stage.cloud.instances) == 2


def test_a_spot_machine_of_a_tier_and_zone(stage: GcpStage) -> None:
    provider = stage.provider(network_tier="STANDARD", zones=["us-central1-b", "us-central1-c"])
    machines = launch(
        provider,
        order("a", spot=True, type="n2-standard-8"),
        order("b", zone="us-central1-c", type="n2-standard-8"),
    )
    assert [(machine.spot, machine.zone) for machine in machines] == [(True, "us-central1-b"), (False, "us-central1-c")]
    models = {given["scheduling"]["provisioningModel"]: given for given in created(stage)}
    assert models["SPOT"]["scheduling"]["onHostMaintenance"] == "TERMINATE"
    assert models["STANDARD"]["networkInterfaces"][0]["accessConfigs"][0]["networkTier"] == "STANDARD"
    launch(provider, order("d", type="n2-standard-4", network=NetworkChoice(network_tier="premium")))
    access = created(stage)[-1]["networkInterfaces"][0]["accessConfigs"][0]
    assert access["networkTier"] == "PREMIUM", "the plan's tier replaces that of the settings"
    cheap = stage.provider(spot=True)
    (machine,) = launch(cheap, order("c"))
    assert machine.spot, "the settings decide where the plan does not"


def test_networks_images_and_identities_of_the_user(stage: GcpStage) -> None:
    stage.cloud.networks.add("global/networks/mine")
    stage.cloud.subnets.add("regions/us-central1/subnetworks/gateways")
    stage.cloud.images.add("projects/ours/global/images/gateway-1")
    provider = stage.provider(
        network="mine",
        subnet="gateways",
        image="projects/ours/global/images/gateway-1",
        service_account="gateway@test-project.iam.gserviceaccount.com",
    )
    launch(provider)
    (given,) = created(stage)
    assert given["networkInterfaces"][0]["subnetwork"] == "regions/us-central1/subnetworks/gateways"
    assert given["serviceAccounts"][0]["email"] == "gateway@test-project.iam.gserviceaccount.com"
    script = next(item["value"] for item in given["metadata"]["items"] if item["key"] == "startup-script")
    assert script.startswith("#!/bin/sh\n" + DELETE_ITSELF)
    assert {rule["network"].rpartition("projects/test-project/")[2] for rule in stage.cloud.firewalls.values()} == {
        "global/networks/mine"
    }


def test_machines_without_public_addresses_call_home(stage: GcpStage) -> None:
    provider = stage.provider(public_address=False)
    assert provider.home(REGION).address == HOME
    (machine,) = launch(provider)
    assert (machine.control, machine.inbound, list(machine.addresses)) == (None, False, ["private"])
    (given,) = created(stage)
    assert "accessConfigs" not in given["networkInterfaces"][0]
    script = next(item["value"] for item in given["metadata"]["items"] if item["key"] == "startup-script")
    assert '"kind": "call", "owner": "192.0.2.1:7444"' in script
    assert [name.rpartition("-")[2] for name in stage.cloud.firewalls] == ["data"]


def test_machines_in_the_network_of_home_are_dialled_there(stage: GcpStage) -> None:
    provider = stage.provider(public_address=False, home_cidr="10.128.0.200/32")
    (machine,) = launch(provider)
    assert machine.control == f"{machine.addresses['private']}:7442" and not machine.inbound
    name = machine.id.partition("/")[2]
    assert stage.cloud.allows("10.128.0.200", name, 7442) and not stage.cloud.allows(HOME, name, 7442)
    assert provider.home(REGION).address == "127.0.0.1", "nothing calls home"


def test_ports_are_open_to_home_and_to_the_fleet_only(stage: GcpStage) -> None:
    provider = stage.provider(peer_cidrs=["192.0.2.128/25"])
    one, two = launch(provider, order("one"), order("two"))
    (other,) = launch(provider, order("other", fleet="fleet-2"))
    first, second = (machine.id.partition("/")[2] for machine in (one, two))
    for name in (first, second):
        assert stage.cloud.allows(HOME, name, 7442) and stage.cloud.allows(HOME, name, 7443)
        assert stage.cloud.allows("192.0.2.200", name, 7443)
        for address in (other.addresses["public"], "192.0.2.1", "8.8.8.8"):
            assert not stage.cloud.allows(address, name, 7442)
            assert not stage.cloud.allows(address, name, 7443)
    for address in one.addresses.values():
        assert stage.cloud.allows(address, second, 7443)
        assert not stage.cloud.allows(address, second, 7442)
    (third,) = launch(provider, order("third"))
    assert stage.cloud.allows(third.addresses["public"], first, 7443), "a machine that came later"


def test_a_machine_that_can_never_be_admitted_is_refused_and_ended(stage: GcpStage) -> None:
    provider = stage.provider()
    stage.fault("firewalls.patch", Answer(403, "forbidden", "Required 'compute.firewalls.update' permission for 'x'"))
    refusal = refusal_of(provider.launch([order()])[0])
    assert (refusal.kind, refusal.action) == ("permission", "compute.firewalls.update")
    assert stage.cloud.billed() == []


def test_an_address_that_could_not_be_admitted_is_admitted_later(
    stage: GcpStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.fleet.gcp.firewall.WAIT_S", 0.001)
    provider = stage.provider()
    (one,) = launch(provider)
    stage.fault("firewalls.patch", Answer(503, "backendError", "not now"), times=5)
    (third,) = launch(provider, order("third"))
    name = one.id.partition("/")[2]
    assert not stage.cloud.allows(third.addresses["public"], name, 7443)
    provider.machines({FLEET_TAG: FLEET})
    assert stage.cloud.allows(third.addresses["public"], name, 7443)


def test_rules_of_the_user_are_left_alone(stage: GcpStage) -> None:
    for name, home in (("one", None), ("two", "2001:db8::7/128")):
        provider = stage.provider(firewall=False, home_cidr=home)
        (machine,) = launch(provider, order(name))
        provider.terminate([machine.id])
    assert not [method for method in stage.methods() if method.startswith("firewalls")]


def test_the_last_machine_takes_the_rules_with_it(stage: GcpStage, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = stage.provider()
    one, two = launch(provider, order("one"), order("two"))
    launch(provider, order("other", fleet="fleet-2"))
    provider.terminate([one.id])
    assert len(stage.cloud.firewalls) == 4
    stage.cloud.stuck_firewalls = 2
    monkeypatch.setattr("tradewind.fleet.gcp.firewall.WAIT_S", 0.001)
    (ended,) = stage.provider().terminate([two.id])
    assert ended.refusal is None and ended.ended_unix_s is not None
    assert len(stage.cloud.firewalls) == 2, "those of the other fleet"


def test_rules_that_another_user_has_removed_while_the_only_machine_was_gone_are_made_again(
    stage: GcpStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google has taken the machine back, and another user of the project has just ended a machine of his own."""
    monkeypatch.setattr("tradewind.fleet.gcp.firewall.STALE_S", -1.0)
    provider, other = stage.provider(), stage.provider()
    (machine,) = launch(provider)
    (theirs,) = launch(other, order("theirs", fleet="fleet-2"))
    stage.cloud.preempt(machine.id.partition("/")[2])
    stage.cloud.forward(60)
    other.terminate([theirs.id])
    assert not stage.cloud.firewalls
    (fresh,) = launch(provider, order("two"))
    name = fresh.id.partition("/")[2]
    assert stage.cloud.allows(HOME, name, 7442) and stage.cloud.allows(HOME, name, 7443)


def test_a_rule_that_cannot_be_deleted_is_a_leftover(stage: GcpStage) -> None:
    provider = stage.provider()
    (machine,) = launch(provider)
    stage.fault("firewalls.delete", Answer(403, "forbidden", "not now"), times=2)
    (ended,) = provider.terminate([machine.id])
    assert ended.refusal is None, "the machine is gone"
    found = stage.provider().leftovers()
    assert [(left.kind, left.tags[FLEET_TAG]) for left in found] == [("firewall rule", FLEET)] * 2
    assert [answer.refusal for answer in provider.terminate([left.id for left in found])] == [None, None]
    assert stage.cloud.billed() == []


def test_resources_of_others_are_neither_listed_nor_deleted(stage: GcpStage) -> None:
    stage.cloud.leave_disk("precious", "us-central1-a", {})
    stage.cloud.firewalls["tradewind-theirs"] = {"name": "tradewind-theirs", "description": "made by hand"}
    provider = stage.provider()
    assert provider.leftovers() == () and provider.machines({}) == ()
    answers = provider.terminate(["us-central1-a/disks/precious", "us-central1-a/no-such", "nonsense"])
    assert [answer.refusal for answer in answers] == [None, None, None]
    assert set(stage.cloud.disks) == {"us-central1-a/precious"}


def test_google_deletes_a_machine_after_its_longest_run(stage: GcpStage) -> None:
    launch(stage.provider(hours_max=2))
    stage.cloud.forward(2 * 3600 - 60)
    assert len(stage.cloud.running()) == 1
    stage.cloud.forward(120)
    assert stage.cloud.running() == [] and not stage.cloud.disks


class Inside:
    """The inside of a machine without a system."""

    address = "10.9.0.1"

    def __init__(self) -> None:
        self.runs = True

    def alive(self) -> bool:
        return self.runs

    def console(self) -> str:
        return "tradewind: booted\ntradewind: the lease has expired; the machine ends\n"

    def press_power_button(self) -> None:
        self.runs = False

    def announce_preemption(self) -> None:
        pass

    pull_plug = press_power_button


def test_a_machine_that_shuts_itself_down_is_listed_as_ended_and_deleted_later(tmp_path: Path) -> None:
    inside = Inside()
    with ComputeEngine(Cloud(boot=lambda _: inside)) as api:
        stage = GcpStage(tmp_path, api)
        provider = stage.provider()
        (machine,) = launch(provider)
        access = provider.host(machine)
        assert access is not None and access.ending(0.0) is None
        inside.runs = False
        wait_until(lambda: stage.cloud.running() == [])
        assert access.ending(30.0) == "its VM has shut down"
        assert access.log_tail(30).endswith("the machine ends\n") and len(access.log_tail(30)) == 30
        with pytest.raises(GatewayError, match="admits no login"):
            access.run(["true"], 1.0)
        (listed,) = provider.machines({FLEET_TAG: FLEET})
        assert listed.ended and listed.ended_unix_s is not None
        assert stage.cloud.disks, "its disk is billed"
        kinds = [left.kind for left in provider.leftovers()]
        assert kinds == ["stopped machine, whose disk is billed", "firewall rule", "firewall rule"]
        launch(stage.provider(), order("soon", fleet="fleet-2"))
        assert len(stage.cloud.instances) == 2, "its fleet must have time to notice the end"
        for one in stage.cloud.instances.values():
            one.stopped_s = None if one.stopped_s is None else one.stopped_s - 3600
        launch(stage.provider(), order("later", fleet="fleet-2"))
        wait_until(lambda: not any(one.labels[FLEET_TAG] == FLEET for one in stage.cloud.instances.values()))
        inside.runs = True


def test_a_preempted_machine_ends_and_is_deleted(stage: GcpStage) -> None:
    provider = stage.provider()
    (machine,) = launch(provider, order(spot=True, type="n2-standard-4"))
    stage.cloud.preempt(machine.id.partition("/")[2])
    wait_until(lambda: provider.machines({FLEET_TAG: FLEET}) == ())
    assert not stage.cloud.disks


def test_a_sweep_removes_a_machine_that_shut_itself_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GcpProvider, "settles_s", 0.1)
    inside = Inside()
    with ComputeEngine(Cloud(boot=lambda _: inside)) as api:
        stage = GcpStage(tmp_path, api)
        launch(stage.provider())
        inside.runs = False
        wait_until(lambda: stage.cloud.running() == [])
        places = sites.Sites(clouds=(sites.Cloud("gcp", (REGION,), stage.document()),))
        everywhere = Everywhere(places, FleetJournal(tmp_path / "state"), "no-binary")
        assert list(everywhere.found()) == [] and len(list(everywhere.remains())) == 3
        assert [swept.error for swept in everywhere.sweep([], everything=True)] == [None] * 3
        assert list(everywhere.remains()) == []
        assert not stage.cloud.disks and not stage.cloud.firewalls


def test_a_sweep_ends_a_machine_that_lists_did_not_show_at_first(
    stage: GcpStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its command was killed just after it had ordered the machine, and the rules were there before."""
    monkeypatch.setattr(GcpProvider, "settles_s", 1.5)
    stage.cloud.lag_s = 1.0
    launch(stage.provider())
    places = sites.Sites(clouds=(sites.Cloud("gcp", (REGION,), stage.document()),))
    everywhere = Everywhere(places, FleetJournal(stage.folder / "state"), "no-binary")
    assert list(everywhere.found()) == []
    swept = list(everywhere.sweep([], everything=True))
    assert [one.error for one in swept] == [None] and [found.machine.name for found in swept[0].ended] == ["one"]
    assert stage.cloud.billed() == [] and list(everywhere.remains()) == []


@pytest.mark.parametrize("script", [SHUTDOWN_SCRIPT, SPOT_SHUTDOWN_SCRIPT, DELETE_ITSELF])
def test_the_scripts_of_a_machine_are_posix_shell(script: str) -> None:
    subprocess.run(["sh", "-n"], input=script.encode(), check=True)


def test_a_machine_with_an_identity_asks_to_be_deleted_before_it_shuts_down(tmp_path: Path) -> None:
    """The metadata server and the API are programs here that write down what they are asked."""
    answers = {
        "token": '{"access_token":"secret-1","expires_in":3599,"token_type":"Bearer"}',
        "zone": "projects/12345/zones/us-central1-a",
        "project-id": "test-project",
        "name": "tw-1",
    }
    cases = "\n".join(f"*/{name}) printf '%s' '{value}' ;;" for name, value in answers.items())
    curl = f'#!/bin/sh\nfor last; do :; done\nlast_but="$last"\ncase "$last" in\n{cases}\n*) echo "$@"; cat ;;\nesac\n'
    log = tmp_path / "log"
    curl = curl.replace('*) echo "$@"; cat ;;', f'*) {{ echo "$@"; cat; echo; }} >> {log} ;;')
    (tmp_path / "curl").write_text(curl)
    (tmp_path / "shutdown").write_text(f'#!/bin/sh\necho "shutdown $@" >> {log}\n')
    for name in ("curl", "shutdown"):
        (tmp_path / name).chmod(0o700)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["sh", "-c", f"{DELETE_ITSELF}\nshutdown -h now"], env=environment, check=True)
    asked, token, ended = log.read_text().splitlines()
    assert asked.endswith(
        "https://compute.googleapis.com/compute/v1/projects/test-project/zones/us-central1-a/instances/tw-1"
    )
    assert "-X DELETE" in asked and "secret-1" not in asked, "arguments are visible to others"
    assert (token, ended) == ("Authorization: Bearer secret-1", "shutdown -h now")


def test_offers_and_quota_are_those_of_the_project(stage: GcpStage) -> None:
    stage.cloud.quotas["us-central1"]["N2_CPUS"] = 20.0
    provider = stage.provider(regions=["us-central1"])
    offers = provider.offers([REGION, "gcp:europe-west4", "aws:us-east-1"])
    assert {offer.region for offer in offers} == {REGION}
    left = {offer.type: offer.left for offer in offers if not offer.spot}
    assert left == {"n2-standard-4": 5, "n2-standard-8": 2, "n2-standard-32": 0}
    assert all(offer.zones == tuple(f"us-central1-{letter}" for letter in "abcf") for offer in offers)
    quota = provider.quota(REGION)
    assert quota is not None and (quota.left, quota.used) == (5, 0)
    stage.cloud.quotas["us-central1"]["IN_USE_ADDRESSES"] = 1.0
    fewer, private = stage.provider().quota(REGION), stage.provider(public_address=False).quota(REGION)
    assert fewer is not None and private is not None and (fewer.left, private.left) == (1, 5)
    assert provider.quota("gcp:europe-west4") is None


def test_quotas_that_google_cannot_state_are_unknown_and_not_used_up(stage: GcpStage) -> None:
    stage.cloud.quotas["us-central1"].clear()
    provider = stage.provider()
    assert provider.quota(REGION) is None
    assert {offer.left for offer in provider.offers([REGION])} == {None}


def test_all_pages_of_a_list_are_read(stage: GcpStage, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = stage.provider()
    launch(provider, *(order(f"m-{number}") for number in range(5)))
    monkeypatch.setattr("testbed.clouds.gcp.server.PAGE_ITEMS_MAX", 2)
    assert len(provider.machines({FLEET_TAG: FLEET})) == 5


def test_an_unknown_project_is_one_clear_line(stage: GcpStage) -> None:
    with pytest.raises(CallRefused, match="'projects/another-project' was not found"):
        stage.provider(project="another-project").machines({})


def test_machines_at_other_providers_are_admitted_and_removed(stage: GcpStage) -> None:
    provider = stage.provider()
    assert isinstance(provider, Admitting)
    (machine,) = launch(provider)
    name = machine.id.partition("/")[2]
    provider.admit(FLEET, ["192.0.2.50", "fd00::1", "host.example"])
    assert stage.cloud.allows("192.0.2.50", name, 7443) and not stage.cloud.allows("192.0.2.50", name, 7442)
    (second,) = launch(provider, order("two"))
    assert stage.cloud.allows("192.0.2.50", second.id.partition("/")[2], 7443)
    provider.admit(FLEET, [])
    assert not stage.cloud.allows("192.0.2.50", name, 7443)
    assert stage.cloud.allows(second.addresses["public"], name, 7443)


def test_machines_at_other_providers_are_admitted_again_after_the_last_machine_was_replaced(stage: GcpStage) -> None:
    provider = stage.provider()
    assert isinstance(provider, Admitting)
    (machine,) = launch(provider)
    provider.admit(FLEET, ["192.0.2.50"])
    provider.terminate([machine.id])
    assert not stage.cloud.firewalls
    (second,) = launch(provider, order(key="key-2"))
    assert stage.cloud.allows("192.0.2.50", second.id.partition("/")[2], 7443)


def test_machines_at_other_providers_are_admitted_again_after_a_region_was_sold_out(stage: GcpStage) -> None:
    provider = stage.provider(public_address=False, home_cidr="10.9.0.1/32")
    assert isinstance(provider, Admitting)
    (machine,) = launch(provider)
    provider.admit(FLEET, ["192.0.2.50"])
    provider.terminate([machine.id])
    stage.fault("regionInstances.bulkInsert", FailOperation("ZONE_RESOURCE_POOL_EXHAUSTED", "none left"))
    assert refusal_of(provider.launch([order(key="key-2")])[0]).kind == "capacity"
    assert not stage.cloud.firewalls
    (second,) = launch(provider, order(key="key-3"))
    assert stage.cloud.allows("192.0.2.50", second.id.partition("/")[2], 7443)


def test_a_disk_that_may_be_left_is_announced(stage: GcpStage) -> None:
    assert "its disk is billed" in str(getattr(stage.provider(), "warning", None))
    assert getattr(stage.provider(service_account="a@b.iam.gserviceaccount.com"), "warning", "") is None


def test_offers_have_the_prices_that_the_user_has_refreshed(stage: GcpStage) -> None:
    """The provider that a command has made already sees the new price, too."""
    provider = stage.provider()
    before = {offer.type: offer for offer in provider.offers([REGION]) if not offer.spot}
    store_price(stage.folder / "state" / "catalog", 7.2, "n2-standard-4")
    after = {offer.type: offer for offer in provider.offers([REGION]) if not offer.spot}
    changed = after.pop("n2-standard-4")
    assert changed.usd_per_s == pytest.approx(0.002) and changed.price_source == str(REFRESHED)
    assert after == {name: offer for name, offer in before.items() if name in after}
