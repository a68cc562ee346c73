"""The fault table of Compute Engine: what goes wrong, and what a user learns of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.clouds.gcp.cloud import Cloud
from testbed.clouds.gcp.server import Answer, ComputeEngine, FailOperation, Lose
from tests.fleet.gcp_stage import REGION, GcpStage, launch, order
from tests.fleet.orders import FLEET, machine_of, refusal_of
from tradewind.errors import GatewayError
from tradewind.fleet.gcp.api import ComputeApi
from tradewind.fleet.gcp.refusals import of_operation, of_response
from tradewind.fleet.provider import FLEET_TAG, CallRefused, ListIncomplete
from tradewind.gateway.owner import Join, JoinToken
from tradewind.model.records import replace

BULK = "regionInstances.bulkInsert"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[GcpStage]:
    with ComputeEngine(Cloud()) as api:
        yield GcpStage(tmp_path, api)


def fails(code: str, words: str) -> Callable[[GcpStage], None]:
    return lambda stage: stage.fault(BULK, FailOperation(code, words))


def answers(status: int, reason: str, words: str) -> Callable[[GcpStage], None]:
    return lambda stage: stage.fault(BULK, Answer(status, reason, words))


def sold_out(stage: GcpStage) -> None:
    stage.cloud.sold_out = {f"us-central1-{letter}" for letter in "abcf"}


def no_quota(stage: GcpStage) -> None:
    stage.cloud.quotas["us-central1"]["IN_USE_ADDRESSES"] = 0.0


def wrong_image(stage: GcpStage) -> None:
    stage.settings["image"] = "projects/debian-cloud/global/images/family/debian-99"


def wrong_network(stage: GcpStage) -> None:
    stage.settings |= {"network": "nowhere", "firewall": False}


FAULTS: dict[str, tuple[Callable[[GcpStage], None], str, str, str | None]] = {
    "sold out": (sold_out, "capacity", "ZONE_RESOURCE_POOL_EXHAUSTED: The zone does not have enough resources", None),
    "no quota": (no_quota, "quota", "Quota 'IN_USE_ADDRESSES' exceeded. Limit: 0.0 in region us-central1", None),
    "wrong image": (wrong_image, "bad request", "debian-99'. The referenced image resource cannot be found", None),
    "wrong network": (
        wrong_network,
        "bad request",
        "global/networks/nowhere' was not found",
        "a project, regions, a network and an image that exist: check [gcp]",
    ),
    "permission": (
        answers(403, "forbidden", "Required 'compute.instances.create' permission for 'projects/p'"),
        "permission",
        "Required 'compute.instances.create' permission",
        "compute.instances.create",
    ),
    "expired credentials": (
        answers(401, "authError", "Invalid Credentials"),
        "permission",
        "Invalid Credentials",
        "valid credentials: `gcloud auth application-default login`",
    ),
    "API not enabled": (
        answers(403, "accessNotConfigured", "Compute Engine API has not been used in project 1 before"),
        "permission",
        "has not been used in project 1",
        "the Compute Engine API: gcloud services enable compute.googleapis.com",
    ),
    "forbidden by the organization": (
        answers(412, "conditionNotMet", "Constraint constraints/compute.vmExternalIpAccess violated"),
        "bad request",
        "constraints/compute.vmExternalIpAccess violated",
        None,
    ),
    "quota in the answer": (answers(403, "quotaExceeded", "Quota exceeded"), "quota", "Quota exceeded", None),
    "rate limit": (answers(403, "rateLimitExceeded", "Rate Limit Exceeded"), "throttled", "Rate Limit Exceeded", None),
    "rate of operations": (
        fails("RESOURCE_OPERATION_RATE_EXCEEDED", "Operation rate exceeded for resource"),
        "throttled",
        "Operation rate exceeded",
        None,
    ),
    "API down": (answers(503, "backendError", "Backend Error"), "transient", "Backend Error", None),
    "full subnet": (fails("IP_SPACE_EXHAUSTED", "IP space is exhausted"), "quota", "IP space is exhausted", None),
    "new error": (fails("NEVER_SEEN", "Something new"), "transient", "NEVER_SEEN: Something new", None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_refused_launch_is_classified_and_leaves_nothing(stage: GcpStage, fault: str) -> None:
    strike, kind, words, action = FAULTS[fault]
    strike(stage)
    provider = stage.provider()
    refusal = refusal_of(provider.launch([order()])[0])
    assert (refusal.kind, refusal.action) == (kind, action)
    assert refusal.reason.startswith(f"{REGION}: ") and words in refusal.reason
    if kind in ("throttled", "transient"):  # The order is repeated, and the machine may run.
        provider.terminate([left.id for left in provider.leftovers()])
    assert stage.cloud.billed() == []


def test_rules_of_fleets_that_never_had_a_machine_are_deleted_later(stage: GcpStage) -> None:
    provider = stage.provider()
    stage.fault(BULK, Answer(503, "backendError", "Backend Error"))
    assert refusal_of(provider.launch([order()])[0]).kind == "transient"
    (machine,) = launch(provider, order("other", fleet="fleet-2"))
    stage.cloud.forward(2 * 3600.0)
    for rule in stage.cloud.firewalls.values():
        rule["creationTimestamp"] = "2026-01-01T00:00:00.000-08:00"
    provider.terminate([machine.id])
    assert stage.cloud.billed() == []


def test_a_client_that_is_not_let_in_at_all(stage: GcpStage) -> None:
    with pytest.raises(CallRefused, match="no answer to GET aggregated/instances: ConnectionError") as caught:
        stage.provider(endpoint="http://127.0.0.1:9").launch([order()])
    assert caught.value.refusal.kind == "transient"


def test_half_the_machines_come(stage: GcpStage) -> None:
    stage.cloud.quotas["us-central1"]["N2_CPUS"] = 8.0
    results = stage.provider().launch([order(f"m-{number}") for number in range(4)])
    refusals = [result.refusal for result in results if result.refusal is not None]
    assert [refusal.kind for refusal in refusals] == ["quota", "quota"]
    assert len(stage.cloud.running()) == 2
    assert stage.provider().quota(REGION).left == 0  # type: ignore[union-attr]


def test_google_takes_a_zone_that_has_room(stage: GcpStage) -> None:
    stage.cloud.sold_out = {"us-central1-a", "us-central1-b/n2-standard-4"}
    (machine,) = launch(stage.provider())
    assert machine.zone == "us-central1-c"


def test_a_wait_that_the_api_asks_for_is_reported(stage: GcpStage) -> None:
    stage.fault(BULK, Answer(429, "rateLimitExceeded", "Too many requests", retry_after_s=7))
    refusal = refusal_of(stage.provider().launch([order()])[0])
    assert (refusal.kind, refusal.retry_after_s) == ("throttled", 7.0)


@pytest.mark.parametrize("before", [True, False], ids=["request lost", "answer lost"])
def test_a_lost_message_makes_one_machine(stage: GcpStage, before: bool) -> None:
    stage.cloud.lag_s = 3600.0  # The list does not help.
    stage.fault(BULK, Lose(before))
    provider = stage.provider()
    refusal = refusal_of(provider.launch([order()])[0])
    assert refusal.kind == "transient" and "no answer to POST" in refusal.reason
    launch(provider)
    assert len(stage.cloud.instances) == 1


def test_a_lost_poll_is_repeated(stage: GcpStage) -> None:
    stage.fault("regionOperations.get", Lose(), times=2)
    stage.fault("regionOperations.get", Answer(503, "backendError", "Backend Error"))
    launch(stage.provider())
    assert len(stage.cloud.instances) == 1


def test_a_failed_operation_is_not_taken_for_the_next_attempt(stage: GcpStage) -> None:
    """The same request id would return the failed operation for an hour."""
    sold_out(stage)
    provider = stage.provider()
    assert refusal_of(provider.launch([order()])[0]).kind == "capacity"
    stage.cloud.sold_out.clear()
    launch(provider)


def test_another_process_finds_the_machine_that_a_list_does_not_show_yet(stage: GcpStage) -> None:
    stage.cloud.lag_s = 3600.0
    (first,) = launch(stage.provider())
    stage.fault(BULK, FailOperation("RESOURCE_ALREADY_EXISTS", "The resource 'instances/tw' already exists"))
    (again,) = launch(stage.provider())
    assert again.id == first.id


def test_a_name_that_is_taken(stage: GcpStage) -> None:
    provider = stage.provider()
    launch(provider)
    refused, other = provider.launch([replace(order(), key="another-key"), order("two")])
    refusal = refusal_of(refused)
    assert (refusal.kind, refusal.reason) == ("bad request", f"fleet {FLEET} has another machine one")
    assert machine_of(other).name == "two"


def test_a_machine_that_is_not_listed_yet_is_ended_all_the_same(stage: GcpStage) -> None:
    provider = stage.provider()
    stage.cloud.lag_s = 3600.0
    (machine,) = launch(provider)
    assert provider.machines({FLEET_TAG: FLEET}) == ()
    (ended,) = provider.terminate([machine.id])
    assert ended.refusal is None and stage.cloud.billed() == []


def test_clocks_an_hour_apart_change_nothing(stage: GcpStage) -> None:
    stage.cloud.forward(3600.0)
    (machine,) = launch(stage.provider())
    assert not machine.ended and launch(stage.provider()) == [machine]
    assert machine.launched_unix_s == pytest.approx(stage.cloud.now(), abs=60.0), "times are Google's"


def test_user_data_that_is_too_long(stage: GcpStage) -> None:
    url = "http://198.51.100.9/" + "x" * 20_000
    provider = stage.provider(programs=[{"processor": "x86_64", "url": url, "sha256": "0" * 64}])
    with pytest.raises(GatewayError, match="user data of a machine has"):
        provider.launch([order()])
    assert stage.cloud.billed() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"home_cidr": None}, "set home_cidr in [fleet]"),
        ({"public_address": False, "home_cidr": None}, "home_cidr of [gcp] must be one address"),
        ({"public_address": False, "home_cidr": "198.51.100.0/24"}, "home_cidr of [gcp] must be one address"),
        ({"programs": []}, "program_url of [fleet] is not set"),
        ({"regions": ["europe-west4"]}, "gcp:us-central1 is not among the regions of [gcp]"),
    ],
)
def test_settings_that_cannot_work_are_named(stage: GcpStage, changes: dict[str, object], words: str) -> None:
    refusal = refusal_of(stage.provider(**changes).launch([order()])[0])
    assert refusal.kind == "bad request" and words in refusal.reason
    assert not stage.cloud.instances and not stage.cloud.firewalls


def test_a_machine_without_identity_is_refused(stage: GcpStage) -> None:
    refusal = refusal_of(stage.provider().launch([replace(order(), join=None)])[0])
    assert refusal.kind == "bad request" and "plain hops are not possible" in refusal.reason


def test_a_zone_that_may_not_be_used(stage: GcpStage) -> None:
    provider = stage.provider(zones=["us-central1-a"])
    refusal = refusal_of(provider.launch([replace(order(), zone="us-central1-b")])[0])
    assert refusal.kind == "bad request" and "no zone us-central1-b" in refusal.reason


def test_a_deletion_that_takes_long_is_repeated(stage: GcpStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.fleet.providers.gcp.DELETE_S", 0.0)
    provider = stage.provider()
    (machine,) = launch(provider)
    stage.cloud.operation_s = 0.5
    (ended,) = provider.terminate([machine.id])
    assert ended.refusal is not None and ended.refusal.kind == "transient"
    assert "still being deleted" in ended.refusal.reason


def test_a_permission_to_end_is_named(stage: GcpStage) -> None:
    provider = stage.provider()
    (machine,) = launch(provider)
    stage.fault("instances.delete", Answer(403, "forbidden", "Required 'compute.instances.delete' permission for 'x'"))
    (ended,) = provider.terminate([machine.id])
    assert ended.refusal is not None and ended.refusal.action == "compute.instances.delete"
    assert provider.terminate([machine.id])[0].refusal is None


def test_missing_credentials_are_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))
    with pytest.raises(CallRefused) as caught:
        ComputeApi("test-project").get("regions/us-central1")
    assert caught.value.refusal.kind == "permission"
    assert caught.value.hint == "this needs valid credentials: `gcloud auth application-default login`"
    assert str(caught.value).startswith("no usable credentials for Google Cloud: ") and "\n" not in str(caught.value)


def test_a_missing_package_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(GatewayError, match="the gcp provider needs google-auth and requests") as caught:
        ComputeApi("test-project").get("regions/us-central1")
    assert caught.value.hint == "pip install 'tradewind[gcp]'"


@pytest.mark.parametrize(
    ("status", "answer", "kind"),
    [
        (500, {}, "transient"),
        (429, {}, "throttled"),
        (403, {"error": {"message": "no"}}, "permission"),
        (400, {"error": "odd"}, "bad request"),
        (418, {"error": {"errors": [{"reason": "teapot"}]}}, "transient"),
        (
            403,
            {"error": {"details": [{"reason": "SERVICE_DISABLED"}], "errors": [{"reason": "forbidden"}]}},
            "permission",
        ),
    ],
)
def test_unknown_answers_are_classified_by_their_status(status: int, answer: dict[str, object], kind: str) -> None:
    assert of_response(status, answer).kind == kind


def test_the_exact_error_of_an_operation_counts() -> None:
    refusal = of_operation(
        [{"code": "VM_MIN_COUNT_NOT_REACHED"}, {"code": "QUOTA_EXCEEDED", "message": "Quota 'CPUS'"}]
    )
    assert (refusal.kind, refusal.reason) == ("quota", "QUOTA_EXCEEDED: Quota 'CPUS'")
    assert of_operation([]).kind == "transient"


def test_an_emulator_gets_no_credentials(stage: GcpStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    launch(stage.provider())
    assert {call.credentials for call in stage.api.calls} == {None}


def test_secrets_are_not_in_the_document(stage: GcpStage) -> None:
    token = JoinToken("cd" * 32, 2_000_000_000)
    join = Join(FLEET, "one", token, "-----BEGIN CERTIFICATE-----", "192.0.2.1:7444")
    provider = stage.provider()
    launch(provider, replace(order(), join=join))
    assert token.hex not in repr(provider.document())
    (instance,) = stage.cloud.instances.values()
    assert token.hex not in repr(instance.labels)


def test_a_type_that_is_sold_out_is_not_ordered_in_each_zone(stage: GcpStage) -> None:
    """The launcher tries the zones of a region, which Google has just done. Another type is tried at once."""
    provider = stage.provider()
    stage.cloud.sold_out = {f"us-central1-{letter}/n2-standard-4" for letter in "abcf"}
    first = replace(order(), type="n2-standard-4")
    assert refusal_of(provider.launch([first])[0]).kind == "capacity"
    calls = stage.methods().count(BULK)
    refusal = refusal_of(provider.launch([replace(first, zone="us-central1-b")])[0])
    assert refusal.kind == "capacity" and refusal.reason.startswith(f"{REGION}: in all zones: ")
    assert stage.methods().count(BULK) == calls
    (machine,) = launch(provider, replace(first, type="n2-standard-8"))
    assert machine.type == "n2-standard-8"


def test_a_machine_in_a_zone_that_does_not_answer_is_not_gone(stage: GcpStage) -> None:
    provider = stage.provider()
    machine, other = launch(provider, order("one"), order("two", region="gcp:europe-west4"))
    stage.cloud.unreachable = {str(machine.zone)}
    for look in (lambda: provider.machines({FLEET_TAG: FLEET}), provider.leftovers):
        with pytest.raises(CallRefused, match="a list is incomplete: UNREACHABLE") as caught:
            look()
        assert caught.value.refusal.kind == "transient"
        if isinstance(caught.value, ListIncomplete):
            assert caught.value.found == (other,), "it can be ended"
    stage.cloud.unreachable = set()
    assert provider.machines({FLEET_TAG: FLEET}) == (machine, other)


def test_home_must_have_an_ipv4_address(stage: GcpStage) -> None:
    refusal = refusal_of(stage.provider(home_cidr="2001:db8::7/128").launch([order()])[0])
    assert (refusal.kind, refusal.reason) == (
        "bad request",
        "VMs have IPv4 addresses, and home_cidr is 2001:db8::7/128",
    )
    assert "firewalls.insert" not in stage.methods()
