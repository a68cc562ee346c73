"""The fault table of Amazon EC2: what goes wrong, and what a user learns of it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from testbed.clouds.aws import KEYS, AwsCloud, aws_api
from tests.fleet.aws_stage import REGION, AwsStage, launch, order
from tests.fleet.orders import FLEET, machine_of, refusal_of
from tests.fleet.test_gcp_hostile import server
from tradewind.engine.everywhere import Everywhere, FoundMachine
from tradewind.errors import GatewayError
from tradewind.fleet.aws.api import AwsApi
from tradewind.fleet.aws.groups import FleetGroup
from tradewind.fleet.aws.refusals import LOGIN
from tradewind.fleet.aws.refusals import refusal_of as classified
from tradewind.fleet.calls import InFlight, each_of
from tradewind.fleet.ending import end_extra, end_fleet
from tradewind.fleet.fleet_records import Attempt
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import FLEET_TAG, Admitting, CallRefused
from tradewind.fleet.providers.aws import AwsProvider
from tradewind.fleet.remains import look_for_remains
from tradewind.model.aws import AwsSettings
from tradewind.model.records import replace
from tradewind.model.sites import Cloud, Sites


@pytest.fixture(scope="module")
def cloud() -> Iterator[AwsCloud]:
    with aws_api() as running, mock.patch.dict(os.environ, KEYS):
        yield running


@pytest.fixture
def stage(cloud: AwsCloud, tmp_path: Path) -> Iterator[AwsStage]:
    made = AwsStage(tmp_path, cloud)
    made.clear()  # A test that failed has left something.
    yield made
    cloud.mend()
    cloud.set(vcpus=1_000_000, hidden_s=0, stale_s=0)
    provider = made.provider()
    provider.terminate([left.id for left in provider.leftovers()])
    assert provider.leftovers() == ()


def fleet_group(stage: AwsStage) -> Any:
    """Return the fleet's group as EC2 describes it."""
    import boto3

    client = boto3.client("ec2", "us-east-1", endpoint_url=stage.cloud.endpoint)
    (group,) = client.describe_security_groups(Filters=[{"Name": f"tag:{FLEET_TAG}", "Values": [FLEET]}])[
        "SecurityGroups"
    ]
    return group


def admitted(stage: AwsStage) -> set[tuple[int, str]]:
    """Return the ports of the fleet's group, each with a range that may reach it."""
    permissions = fleet_group(stage)["IpPermissions"]
    return {(permission["FromPort"], entry["CidrIp"]) for permission in permissions for entry in permission["IpRanges"]}


FAULTS = {
    "sold out": ("InsufficientInstanceCapacity", "We currently do not have sufficient capacity", "capacity", None),
    "not in this zone": ("Unsupported", "Your requested instance type is not supported", "capacity", None),
    "spot sold out": ("SpotMaxPriceTooLow", "Your Spot request price is lower", "capacity", None),
    "quota of vCPUs": ("VcpuLimitExceeded", "You have requested more vCPU capacity", "quota", None),
    "quota of spot": ("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded", "quota", None),
    "permission": (
        "UnauthorizedOperation",
        "You are not authorized to perform this operation. Encoded authorization failure message: kF7…",
        "permission",
        "ec2:RunInstances",
    ),
    "permission by name": (
        "UnauthorizedOperation",
        "User: arn:aws:iam::1:user/u is not authorized to perform: iam:PassRole on resource: role/r",
        "permission",
        "iam:PassRole",
    ),
    "account not verified": (
        "OptInRequired",
        "You are not subscribed to this service",
        "permission",
        "an account that is signed up for EC2, and a region that it has enabled",
    ),
    "expired session": ("ExpiredToken", "The security token included in the request is expired", "permission", LOGIN),
    "wrong clock, or an expired session": (
        "RequestExpired",
        "Request has expired.",
        "permission",
        f"{LOGIN}; and the right time on this machine",
    ),
    "region not enabled": (
        "AuthFailure",
        "AWS was not able to validate the provided access credentials",
        "permission",
        f"{LOGIN}; and a region that the account has enabled",
    ),
    "first spot instance": (
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.",
        "permission",
        "iam:CreateServiceLinkedRole",
    ),
    "account being verified": ("PendingVerification", "Your account is currently being verified", "permission", None),
    "group not known yet": ("InvalidGroup.NotFound", "The security group 'sg-1' does not exist", "transient", None),
    "no room for the disk": (
        "InsufficientVolumeCapacity",
        "There is not enough capacity to fulfill your EBS volume provision request",
        "capacity",
        None,
    ),
    "no default network": ("VPCResourceNotSpecified", "The resource can be used only in a VPC", "bad request", None),
    "tag policy": ("TagPolicyViolation", "The tag policy does not allow the specified value", "bad request", None),
    "throttled": ("RequestLimitExceeded", "Request limit exceeded.", "throttled", None),
    "wrong image": ("InvalidAMIID.NotFound", "The image id '[ami-1]' does not exist", "bad request", None),
    "wrong profile": ("InvalidParameterValue", "Value (x) for iamInstanceProfile is invalid", "bad request", None),
    "new error": ("NeverSeen", "Something new", "transient", None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_refused_launch_is_classified_and_leaves_no_machine(stage: AwsStage, fault: str) -> None:
    code, message, kind, action = FAULTS[fault]
    stage.cloud.fault("RunInstances", code, message, times=10)
    refusal = refusal_of(stage.provider().launch([order()])[0])
    assert (refusal.kind, refusal.action) == (kind, action)
    assert refusal.reason.startswith(f"{REGION}: {code}: ") and "Encoded" not in refusal.reason
    assert stage.living() == []


def test_a_list_without_end_is_refused(stage: AwsStage, monkeypatch: pytest.MonkeyPatch) -> None:
    api = AwsApi(AwsSettings.from_document(stage.document()))
    monkeypatch.setattr(api, "ec2", lambda *_, **__: {"Instances": [{}], "NextToken": "again"})
    monkeypatch.setattr("tradewind.fleet.aws.api.PAGES_MAX", 3)
    with pytest.raises(CallRefused, match="describe_instances has more than 3 pages"):
        list(api.pages("us-east-1", "describe_instances", "Instances"))


def test_the_page_of_a_proxy_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.fleet.aws.api.ATTEMPTS", 1)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    with server(500, b"<!doctype html>\n<title>Error") as (endpoint, _):
        api = AwsApi(AwsSettings(endpoint=endpoint))
        with pytest.raises(CallRefused) as caught:
            api.ec2("us-east-1", "describe_regions")
    assert str(caught.value) == "ec2 in us-east-1 sent an answer that AWS's API does not have"


def test_an_unknown_error_is_never_capacity() -> None:
    assert classified("Whatever", "words", "ec2:RunInstances").kind == "transient"


def test_an_api_that_is_down_is_transient(stage: AwsStage) -> None:
    stage.cloud.fault("*", "InternalError", "An internal error has occurred", status=503, times=100)
    with pytest.raises(CallRefused) as caught:
        stage.provider().launch([order()])
    assert caught.value.refusal.kind == "transient"


def test_half_the_machines_come(stage: AwsStage) -> None:
    stage.cloud.set(vcpus=8)
    results = stage.provider().launch([order(f"m{number}") for number in range(4)])
    refusals = [result.refusal for result in results if result.refusal is not None]
    assert len(stage.living()) == 2 and [refusal.kind for refusal in refusals] == ["quota", "quota"]
    assert "current vCPU limit of 8" in refusals[0].reason


def test_the_quota_counts_the_machines_of_others(stage: AwsStage) -> None:
    provider = stage.provider()
    stage.cloud.set(vcpus=32)
    launch(provider, order("one"), order("two", fleet="another"))
    quota = provider.quota(REGION)
    assert quota is not None and (quota.used, quota.left) == (2, 6)


def test_a_quota_that_may_not_be_read_is_unknown(stage: AwsStage) -> None:
    stage.cloud.fault("GetServiceQuota", "AccessDeniedException", "not authorized", times=10)
    assert stage.provider().quota(REGION) is None


def test_a_lost_answer_starts_one_machine(stage: AwsStage) -> None:
    """boto3 asks again with the same client token."""
    stage.cloud.fault("RunInstances", lose=True)
    (machine,) = launch(stage.provider())
    assert stage.living() == [machine.id.rpartition("/")[2]]


def test_a_machine_that_is_not_listed_yet_is_not_started_again(
    stage: AwsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.fleet.providers.aws.ADDRESS_S", 0.1)
    stage.cloud.set(hidden_s=60)
    provider = stage.provider()
    first = machine_of(provider.launch([order()])[0])
    assert provider.machines({FLEET_TAG: FLEET}) == ()
    again = machine_of(stage.provider().launch([order()])[0])
    assert again.id == first.id and len(stage.living()) == 1
    stage.cloud.set(hidden_s=0)


def test_a_machine_that_is_not_listed_yet_is_ended_all_the_same(
    stage: AwsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would run until the end of its lease, and nobody would know of it."""
    monkeypatch.setattr("tradewind.fleet.providers.aws.ADDRESS_S", 0.1)
    stage.cloud.set(hidden_s=60)
    provider = stage.provider()
    machine = machine_of(provider.launch([order()])[0])
    assert provider.machines({FLEET_TAG: FLEET}) == ()
    (ended,) = provider.terminate([machine.id])
    assert ended.refusal is None and ended.ended_unix_s is not None and stage.living() == []
    stage.cloud.set(hidden_s=0)


def test_a_machine_that_vanishes_from_lists_is_ended_all_the_same(stage: AwsStage) -> None:
    """Lists may show it again later. The process that ends it did not launch it."""
    (launched,) = launch(stage.provider())
    provider = stage.provider()
    assert launched.id in {one.id for one in provider.machines({FLEET_TAG: FLEET})}
    stage.cloud.set(hidden_s=60)
    assert launched.id not in {one.id for one in provider.machines({FLEET_TAG: FLEET})}
    (ended,) = provider.terminate([launched.id])
    assert ended.refusal is None and ended.ended_unix_s is not None and stage.living() == []
    stage.cloud.set(hidden_s=0)


def test_a_machine_that_no_list_has_shown_for_long_is_ended_all_the_same(
    stage: AwsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list may be as late as it likes. EC2 itself says whether it knows the instance."""
    provider = stage.provider()
    one, two = launch(provider, order("one"), order("two"))
    monkeypatch.setattr("tradewind.fleet.providers.aws.FRESH_S", 0.0)
    stage.cloud.set(hidden_s=60)
    stage.cloud.fault("TerminateInstances", "InvalidInstanceID.NotFound", "it does not exist", times=2)
    assert [ended.refusal for ended in provider.terminate([one.id])] == [None], "EC2 has forgotten it"
    stage.cloud.mend()
    assert [ended.refusal for ended in provider.terminate([one.id, two.id])] == [None, None]
    assert stage.living() == []


def test_a_machine_has_ended_although_the_answer_was_lost_and_the_next_call_is_refused(stage: AwsStage) -> None:
    """The stand-in refuses to end an instance again, because its network interface is gone."""
    provider = stage.provider()
    (machine,) = launch(provider)
    stage.cloud.fault("TerminateInstances", lose=True)
    assert [ended.refusal for ended in provider.terminate([machine.id])] == [None]
    assert stage.living() == []


def test_known_machines_are_ended_although_the_permission_to_list_them_is_gone(stage: AwsStage) -> None:
    provider = stage.provider()
    (machine,) = launch(provider)
    stage.cloud.fault("DescribeInstances", "UnauthorizedOperation", "You are not authorized", times=1000)
    ended, stranger = provider.terminate([machine.id]), stage.provider().terminate([machine.id])
    assert [one.refusal for one in ended] == [None] and stage.living() == []
    assert [one.refusal and one.refusal.action for one in stranger] == ["ec2:DescribeInstances"], "it may be another's"


def test_an_order_that_is_repeated_with_another_lease_finds_its_machine(stage: AwsStage) -> None:
    """Its answer was lost, and the fleet was planned anew before a list showed the machine."""
    stage.cloud.set(hidden_s=60)
    stage.cloud.fault("RunInstances", lose=True, times=10)
    assert refusal_of(stage.provider().launch([order()])[0]).kind == "transient"
    stage.cloud.fault("none")
    again = replace(order(), generation=2, lease=replace(order().lease, seconds=60))
    provider = stage.provider()
    assert refusal_of(provider.launch([again])[0]).kind == "transient"
    stage.cloud.set(hidden_s=0)
    assert machine_of(provider.launch([again])[0]).id.rpartition("/")[2] in stage.living()
    assert len(stage.living()) == 1


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_machine_that_no_list_shows_yet_is_ended_in_place_of_its_killed_client(
    stage: AwsStage, monkeypatch: pytest.MonkeyPatch, is_warm: bool
) -> None:
    """EC2 has acknowledged it, so it runs, and is billed until its lease expires. A warm fleet stays."""
    monkeypatch.setattr("tradewind.fleet.providers.aws.ADDRESS_S", 0.1)
    monkeypatch.setattr(AwsProvider, "settles_s", 0.1)
    provider, journal, fleet = stage.provider(), FleetJournal(stage.folder / "state"), f"unlisted-{is_warm}"
    journal.open(fleet, "a test", provider.document(), {"one": REGION})
    for attempt in range(2):
        journal.launched(fleet, "one", REGION, 900)
        (machine,) = launch(provider, order("one", fleet, key=f"{fleet}-{attempt}"))
        journal.record_attempt(fleet, Attempt(time.time(), "one", REGION, "launched"))
        if attempt == 0:  # The second machine has the name of one that has ended.
            provider.terminate([machine.id])
            journal.ended(fleet, ["one"])
            stage.cloud.set(hidden_s=3)
    journal.give_back(fleet)
    (record,) = journal.records()
    if is_warm:
        assert end_extra(record, {}, journal, "unused") == 1
    else:
        assert end_fleet(record, journal, "unused").machines == 1
    assert stage.living() == [] and len(list(journal.records())) == is_warm


@pytest.mark.parametrize("comes", [True, False])
def test_an_order_that_ec2_carries_out_after_the_death_of_its_client_is_waited_for(
    stage: AwsStage, monkeypatch: pytest.MonkeyPatch, comes: bool
) -> None:
    """Nobody has read the answer. If EC2 never had the order, nothing comes. An earlier one has ended."""
    monkeypatch.setattr("tradewind.fleet.providers.aws.ADDRESS_S", 0.1)
    monkeypatch.setattr(AwsProvider, "settles_s", 0.1)
    if not comes:
        monkeypatch.setattr("tradewind.fleet.ending.LATE_ORDER_S", 1.0)
    provider, journal, fleet = stage.provider(), FleetJournal(stage.folder / "state"), f"late-{comes}"
    journal.open(fleet, "a test", provider.document(), {"one": REGION})
    if comes:
        journal.launched(fleet, "one", REGION, 900)
        (first,) = launch(provider, order("one", fleet, key=f"{fleet}-0"))
        provider.terminate([first.id])
        journal.ended(fleet, ["one"])
        stage.cloud.set(hidden_s=20)
    journal.launched(fleet, "one", REGION, 900)
    if comes:
        launch(provider, order("one", fleet, key=f"{fleet}-1"))
    journal.give_back(fleet)
    (record,) = journal.records()
    ended = end_fleet(record, journal, "unused")
    assert (ended.machines, ended.unlaunched) == ((1, frozenset()) if comes else (0, {"one"}))
    assert stage.living() == [] and list(journal.records()) == []


def test_a_machine_that_cannot_be_ended_keeps_no_other_alive(stage: AwsStage) -> None:
    """Amazon refuses a request as a whole if one of its instances is protected."""
    import boto3

    provider = stage.provider()
    machines = sorted(launch(provider, order("one"), order("two"), order("three")), key=lambda machine: machine.id)
    first = machines[0].id.rpartition("/")[2]
    client = boto3.client("ec2", "us-east-1", endpoint_url=stage.cloud.endpoint)
    client.modify_instance_attribute(InstanceId=first, DisableApiTermination={"Value": True})
    try:
        answers = {ended.id: ended for ended in provider.terminate([machine.id for machine in machines])}
    finally:
        client.modify_instance_attribute(InstanceId=first, DisableApiTermination={"Value": False})
    assert stage.living() == [first]
    for machine in machines:
        refusal = answers[machine.id].refusal
        assert (refusal is not None) == (machine is machines[0])
        assert refusal is None or "OperationNotPermitted" in refusal.reason


def test_an_order_whose_instance_has_ended_is_refused_once(stage: AwsStage) -> None:
    """EC2 answers a client token of an instance that has ended with that instance."""
    provider = stage.provider()
    machine, other = launch(provider, order(), order("other"))
    provider.terminate([machine.id])
    assert "has ended" in refusal_of(provider.launch([order()])[0]).reason
    assert stage.living() == [other.id.rpartition("/")[2]]
    launch(provider)
    assert len(stage.living()) == 2


def test_the_stand_in_refuses_what_amazon_refuses(stage: AwsStage) -> None:
    """Otherwise no other test shows that our requests are right."""
    import boto3
    from botocore.exceptions import ClientError

    launch(stage.provider())
    client = boto3.client("ec2", "us-east-1", endpoint_url=stage.cloud.endpoint)
    image = client.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    group = fleet_group(stage)["GroupId"]
    run = {"ImageId": image, "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1}
    first = client.run_instances(**run, ClientToken="one")["Instances"][0]["InstanceId"]
    client.terminate_instances(InstanceIds=[first])
    again = client.run_instances(**run, ClientToken="one")["Instances"][0]
    assert (again["InstanceId"], again["State"]["Name"]) == (first, "terminated")
    other = {"IpProtocol": "tcp", "FromPort": 7443, "ToPort": 7443, "IpRanges": [{"CidrIp": "192.0.2.1/32"}]}
    known = {**other, "IpRanges": [{"CidrIp": "198.51.100.7/32"}]}
    for code, call, arguments in (
        ("IdempotentParameterMismatch", client.run_instances, {**run, "ClientToken": "one", "UserData": "another"}),
        ("InvalidParameterValue", client.run_instances, {**run, "UserData": "x" * (16 * 1024 + 1)}),
        ("InvalidAMIID.NotFound", client.run_instances, {**run, "ImageId": "ami-00000000"}),
        ("InvalidInstanceType.NotFound", client.run_instances, {**run, "InstanceType": "m5.tiny"}),
        ("DependencyViolation", client.delete_security_group, {"GroupId": group}),
        (
            "InvalidPermission.Duplicate",
            client.authorize_security_group_ingress,
            {"GroupId": group, "IpPermissions": [other, known]},
        ),
    ):
        with pytest.raises(ClientError) as error:
            call(**arguments)
        assert error.value.response["Error"]["Code"] == code
    assert (7443, "192.0.2.1/32") not in admitted(stage), "Amazon does all of a request or nothing"


def test_a_name_that_is_taken_is_refused(stage: AwsStage) -> None:
    provider = stage.provider()
    launch(provider)
    refusal = refusal_of(provider.launch([order(key="another")])[0])
    assert refusal.kind == "bad request" and "another machine one" in refusal.reason


def test_a_machine_is_replaced_under_its_name_although_a_list_still_shows_it(stage: AwsStage) -> None:
    stage.cloud.set(stale_s=60)
    provider, fleet = stage.provider(), "replaced"
    (first,) = launch(provider, order("one", fleet, key="key-1"))
    provider.terminate([first.id])
    assert [one.ended for one in provider.machines({FLEET_TAG: fleet})] == [True]
    assert [one.ended for one in stage.provider().machines({FLEET_TAG: fleet})] == [False], "the list is old"
    (second,) = launch(provider, order("one", fleet, key="key-2"))
    assert stage.living() == [second.id.rpartition("/")[2]]


def test_a_machine_is_replaced_with_a_new_key(stage: AwsStage) -> None:
    provider = stage.provider()
    (first,) = launch(provider)
    provider.terminate([first.id])
    (second,) = launch(provider, order(key="key-2"))
    assert second.id != first.id and stage.living() == [second.id.rpartition("/")[2]]


def test_an_instance_of_others_is_never_terminated(stage: AwsStage) -> None:
    import boto3

    client = boto3.client("ec2", "us-east-1", endpoint_url=stage.cloud.endpoint)
    image = client.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    answer = client.run_instances(ImageId=image, InstanceType="m5.large", MinCount=1, MaxCount=1)
    other = answer["Instances"][0]["InstanceId"]
    assert stage.provider().terminate([f"us-east-1/{other}"])[0].refusal is None
    assert other in stage.living()
    client.terminate_instances(InstanceIds=[other])


def test_a_group_in_use_is_deleted_by_a_later_call(stage: AwsStage) -> None:
    """A terminated instance keeps its network interface for a while."""
    provider = stage.provider()
    (machine,) = launch(provider)
    stage.cloud.fault("DeleteSecurityGroup", "DependencyViolation", "resource has a dependent object", times=3)
    assert provider.terminate([machine.id])[0].refusal is None
    assert provider.leftovers() == ()


@pytest.mark.slow
def test_a_group_that_cannot_be_deleted_is_reported(stage: AwsStage) -> None:
    provider = stage.provider()
    (machine,) = launch(provider)
    stage.cloud.fault("DeleteSecurityGroup", "UnauthorizedOperation", "no", times=10)
    provider.terminate([machine.id])
    (left,) = stage.provider().leftovers()
    assert left.kind == "security group" and left.tags[FLEET_TAG] == FLEET
    for asking in (provider, stage.provider()):
        remains = look_for_remains(asking, FLEET, InFlight())
        assert remains is not None and remains.left == (
            f"security group {left.id} (the missing permission is ec2:DeleteSecurityGroup)",
        )
        other = look_for_remains(asking, "another-fleet", InFlight())
        assert other is not None and other.is_nothing
    refusal = stage.provider().terminate([left.id])[0].refusal
    assert refusal is not None and refusal.action == "ec2:DeleteSecurityGroup"
    stage.cloud.mend()
    remains = look_for_remains(provider, FLEET, InFlight())
    assert remains is not None and remains.is_nothing, "the next look has removed it"


def test_the_group_of_machines_that_have_ended_by_themselves_is_deleted(stage: AwsStage) -> None:
    """Their leases have expired, or Amazon has taken them back."""
    provider = stage.provider()
    (machine,) = launch(provider)
    stage.cloud.end(machine.id.rpartition("/")[2])
    (listed,) = (one for one in provider.machines({FLEET_TAG: FLEET}) if one.id == machine.id)
    assert listed.ended and [left.kind for left in provider.leftovers()] == ["security group"]
    assert provider.terminate([machine.id])[0].refusal is None
    assert provider.leftovers() == ()


def test_the_group_of_a_region_is_deleted_later_if_its_last_machine_has_just_ended_by_itself(stage: AwsStage) -> None:
    """Its network interface remains for a while, and its replacement must not wait for that."""
    stage.settings |= {"regions": ["us-east-1", "us-west-2"]}
    provider = stage.provider()
    here, there = launch(provider, order("one"), order("two", region="aws:us-west-2"))
    stage.cloud.end(there.id.rpartition("/")[2])
    stage.cloud.fault("DeleteSecurityGroup", "DependencyViolation", "resource has a dependent object", times=1)
    provider.terminate([there.id])
    assert [left.region for left in provider.leftovers() if left.kind == "security group"] == [
        "aws:us-east-1",
        "aws:us-west-2",
    ]
    provider.terminate([here.id])
    assert provider.leftovers() == ()


def test_a_launch_that_cannot_succeed_leaves_no_group(stage: AwsStage) -> None:
    stage.cloud.fault("RunInstances", "InsufficientInstanceCapacity", "none left", times=10)
    provider = stage.provider()
    assert refusal_of(provider.launch([order()])[0]).kind == "capacity"
    assert provider.leftovers() == ()
    stage.cloud.mend()
    launch(provider)


def test_a_group_that_lists_show_after_its_deletion_is_tried_once_only(
    stage: AwsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moto does not look whether the groups of a request exist."""
    provider = stage.provider()
    gone = "sg-0123456789abcdef0"
    shown = [{"GroupId": gone}]
    found = FleetGroup._found
    monkeypatch.setattr(FleetGroup, "_found", lambda group: shown.pop() if shown else found(group))
    stage.cloud.fault("RunInstances", "InvalidGroup.NotFound", f"The security group '{gone}' does not exist", times=1)
    assert refusal_of(provider.launch([order()])[0]).kind == "transient"
    launch(provider)
    (group,) = (left.id for left in provider.leftovers() if left.kind == "security group")
    assert not shown and group.rpartition("/")[2] != gone


def test_the_group_admits_home_and_the_machines_of_the_fleet_only(stage: AwsStage) -> None:
    provider = stage.provider()
    machines = launch(provider, order("one"), order("two"))
    for number, machine in enumerate(machines):
        stage.cloud.ran(machine.id.rpartition("/")[2], f"192.0.2.{number + 1}")
    provider.machines({FLEET_TAG: FLEET})
    home = "198.51.100.7/32"
    assert admitted(stage) == {(7442, home), (7443, home), (7443, "192.0.2.1/32"), (7443, "192.0.2.2/32")}


def test_a_rule_is_spent_on_one_address_of_each_machine(stage: AwsStage) -> None:
    """A group has 60 rules for incoming connections, and a machine is dialled at one address, the public one."""
    provider = stage.provider()
    assert isinstance(provider, AwsProvider)
    (machine,) = launch(provider)
    both = [
        replace(machine, addresses={"public": f"198.51.100.{number}", "private": f"172.31.0.{number}"})
        for number in range(100, 140)
    ]
    provider._admit(FLEET, both)
    ranges = {cidr for port, cidr in admitted(stage) if port == 7443}
    assert ranges == {"198.51.100.7/32", *(f"198.51.100.{number}/32" for number in range(100, 140))}


def test_the_quota_counts_only_instances_of_its_own_families(stage: AwsStage) -> None:
    """GPU instances of the account have a quota of their own (Amazon EC2 instance type quotas)."""
    import boto3

    client = boto3.client("ec2", "us-east-1", endpoint_url=stage.cloud.endpoint)
    image = client.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    others = []
    for name in ("g4dn.xlarge", "x1e.xlarge"):
        answer = client.run_instances(ImageId=image, InstanceType=name, MinCount=1, MaxCount=1)
        others.append(answer["Instances"][0]["InstanceId"])
    try:
        stage.cloud.set(vcpus=32)
        quota = stage.provider().quota(REGION)
        assert quota is not None and quota.used == 0
        own = client.run_instances(ImageId=image, InstanceType="m5.xlarge", MinCount=1, MaxCount=1)
        others.append(own["Instances"][0]["InstanceId"])
        quota = stage.provider().quota(REGION)
        assert quota is not None and quota.used > 0
    finally:
        client.terminate_instances(InstanceIds=others)


def test_a_quota_without_a_value_of_the_account_is_unknown(stage: AwsStage) -> None:
    stage.cloud.fault(
        "GetServiceQuota", "NoSuchResourceException", "The request failed because the resource does not exist"
    )
    assert stage.provider().quota(REGION) is None


def test_the_console_of_a_running_instance_is_its_latest(stage: AwsStage) -> None:
    """Without that wish Amazon shows what it kept after the start, long before the program was downloaded."""
    provider = stage.provider()
    (machine,) = launch(provider)
    instance = machine.id.rpartition("/")[2]
    stage.cloud.ran(instance, console="tradewind: the program cannot be downloaded")
    host = provider.host(machine)
    assert host is not None and host.log_tail(100) == "tradewind: the program cannot be downloaded"
    stage.cloud.fault("GetConsoleOutput", "UnsupportedOperation", "This instance type does not support the latest")
    assert "tradewind" not in host.log_tail(100), "an instance without Nitro shows what was kept"
    stage.cloud.end(instance)
    assert host.log_tail(100) == "tradewind: the program cannot be downloaded"


def test_all_addresses_are_admitted_when_another_call_changes_the_group_meanwhile(stage: AwsStage) -> None:
    """Amazon refuses a whole change if one of its rules exists already, or does not exist any more."""
    settings = AwsSettings(endpoint=stage.cloud.endpoint)
    place = (AwsApi(settings), "us-east-1", FLEET, "owner-1", None)
    other = FleetGroup(*place)

    class Late(FleetGroup):
        looks = 0

        def _known_group(self) -> dict[str, Any] | None:
            found = super()._known_group()
            self.looks += 1
            if self.looks in (1, 4):
                other.admit(None, ["192.0.2.1"])
            return found

    group = Late(*place)
    group.admit(None, ["192.0.2.1", "192.0.2.2"])
    assert admitted(stage) == {(7443, "192.0.2.1/32"), (7443, "192.0.2.2/32")}
    group.admit(None, ["192.0.2.3"])
    assert admitted(stage) == {(7443, "192.0.2.3/32")}


def test_a_group_is_changed_by_one_thread_at_a_time(stage: AwsStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one of them might revoke what another has just admitted, and nobody would notice."""
    provider = stage.provider()
    launch(provider)
    assert isinstance(provider, Admitting)
    changing, overlaps = threading.Lock(), list[str]()

    def admit(group: FleetGroup, home: str | None, addresses: Collection[str]) -> None:
        if not changing.acquire(blocking=False):
            overlaps.append("overlap")
            return
        time.sleep(0.2)
        changing.release()

    monkeypatch.setattr(FleetGroup, "admit", admit)
    each_of(range(4), lambda number: provider.admit(FLEET, [f"192.0.2.{number}"]))
    assert not overlaps


def test_orders_that_can_never_succeed_make_no_request(stage: AwsStage) -> None:
    provider = stage.provider(regions=["us-east-1"], home_cidr=None, public_address=True, programs=[])
    before = len(stage.cloud.calls())
    elsewhere, without_program = provider.launch([order(region="aws:eu-west-1"), order("two")])
    assert "aws:eu-west-1 is not among the regions of [aws]" in refusal_of(elsewhere).reason
    assert "program_url of [fleet] is not set" in refusal_of(without_program).reason
    provider = stage.provider(home_cidr=None, public_address=True)
    plain, without_home = provider.launch([replace(order(), join=None), order("two")])
    assert "plain hops are not possible there" in refusal_of(plain).reason
    assert "set home_cidr in [fleet]" in refusal_of(without_home).reason
    for home in (None, "10.0.0.0/16"):
        (unreachable,) = stage.provider(home_cidr=home, public_address=False).launch([order()])
        assert "home_cidr of [fleet] must be one address" in refusal_of(unreachable).reason
    (by_ipv6,) = stage.provider(home_cidr="2001:db8::7/128", public_address=True).launch([order()])
    assert "machines in EC2 have IPv4 addresses, and home_cidr is 2001:db8::7/128" in refusal_of(by_ipv6).reason
    assert "RunInstances" not in stage.cloud.calls()[before:]


def test_machines_without_public_addresses_call_home(stage: AwsStage) -> None:
    provider = stage.provider(home_cidr="10.1.2.3/32", public_address=False)
    (machine,) = launch(provider)
    assert provider.home(REGION).address == "10.1.2.3"
    stage.cloud.ran(machine.id.rpartition("/")[2])
    (listed,) = (one for one in provider.machines({FLEET_TAG: FLEET}) if one.id == machine.id)
    assert (listed.control, listed.inbound, list(listed.addresses)) == (None, False, ["private"])


def test_spot_machines_are_ordered_and_watch_for_their_notice(stage: AwsStage) -> None:
    launch(stage.provider(), order(type="m5.xlarge", spot=True))
    (instance,) = [one for one in stage.cloud.instances() if one["state"] == "pending"]
    assert "spot/instance-action" in instance["user_data"]
    assert instance["metadata_tokens"] == "required" and instance["shutdown"] == "terminate"


def test_a_missing_package_is_named(stage: AwsStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(GatewayError, match="the aws provider needs boto3") as caught:
        stage.provider().offers([REGION])
    assert caught.value.hint == "pip install 'tradewind[aws]'"


def test_missing_credentials_are_a_permission(stage: AwsStage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(stage.folder / "none"))
    with pytest.raises(CallRefused) as caught:
        stage.provider().offers([REGION])
    assert caught.value.refusal.kind == "permission" and "credentials" in caught.value.refusal.reason
    assert str(caught.value.hint).startswith("this needs valid credentials: `aws sso login`")


def test_a_repeated_order_in_one_region_and_a_new_one_in_another_are_both_listed(stage: AwsStage) -> None:
    both = {"regions": ["us-east-1", "us-west-2"]}
    launch(stage.provider(**both), order("one"))
    again = stage.provider(**both)
    launch(again, order("one"), order("two", region="aws:us-west-2"))
    stage.settings |= both
    living = [machine.name for machine in again.machines({FLEET_TAG: FLEET}) if not machine.ended]
    assert living == ["one", "two"]


@pytest.mark.parametrize("is_known", [True, False])
def test_machines_in_regions_that_answer_are_ended_although_another_one_does_not(
    stage: AwsStage, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """For example because the account has disabled it since. Those machines are billed until their leases expire."""
    monkeypatch.setattr(AwsProvider, "settles_s", 0.1)
    stage.settings["regions"] = ["us-east-1", "us-west-2"]
    provider, journal = stage.provider(), FleetJournal(stage.folder / "state")
    journal.open(FLEET, "a test", provider.document(), {"one": REGION, "two": "aws:us-west-2"})
    one, _ = launch(provider, order("one"), order("two", region="aws:us-west-2"))
    journal.give_back(FLEET)
    (record,) = journal.records()
    stage.cloud.fault("DescribeInstances", "AuthFailure", "not enabled", times=1000, region="us-east-1")
    if is_known:
        with pytest.raises(CallRefused, match="AuthFailure"):
            end_fleet(record, journal, "unused")
    else:
        clouds = (Cloud("aws", (REGION, "aws:us-west-2"), stage.document()),)
        place = Everywhere(Sites(clouds=clouds), FleetJournal(stage.folder / "empty"), "gateway")
        found, failed = place.found()
        assert isinstance(found, FoundMachine) and not isinstance(failed, FoundMachine) and failed[0] == "aws"
        done = list(place.sweep([found], everything=True))
        assert done[0].what == f"aws: ended two of {FLEET}" and done[-1].error is not None
    assert stage.living() == [one.id.rpartition("/")[2]]
    assert [each.id for each in journal.records()] == [FLEET], "the other one may run"
    stage.cloud.mend()
    assert end_fleet(record, journal, "unused").machines == 1
    assert stage.living() == [] and list(journal.records()) == []


def test_a_fleet_that_no_record_knows_is_ended_with_a_machine_that_lists_show_late(
    stage: AwsStage, tmp_path: Path
) -> None:
    """As `tradewind fleet down ID` does on an empty state folder, moments after the launch."""
    stage.cloud.set(hidden_s=3)
    provider = stage.provider()
    launch(provider)
    clouds = (Cloud("aws", (REGION,), stage.document()),)
    place = Everywhere(Sites(clouds=clouds), FleetJournal(tmp_path / "empty"), "gateway")
    found = [one for one in place.found() if isinstance(one, FoundMachine)]
    assert place.known([FLEET]) == {FLEET}
    done = list(place.end(found, [FLEET]))
    assert [(one.what, one.error) for one in done] == [(f"aws: ended one of {FLEET}", None)]
    assert stage.living() == [] and provider.leftovers() == ()
