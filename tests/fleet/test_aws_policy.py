"""The policy that `tradewind init` prints suffices, and each missing action is named."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from testbed.clouds.aws import KEYS, AwsCloud, aws_api
from tests.fleet.aws_stage import REGION, AwsStage, launch, order
from tests.fleet.orders import FLEET, OWNER
from tests.fleet.worlds import wait_until
from tradewind.fleet.aws.api import AwsApi
from tradewind.fleet.aws.groups import FleetGroup
from tradewind.fleet.aws.policy import policy, policy_actions
from tradewind.fleet.provider import FLEET_TAG, CallRefused, Checking, PermissionAnswer, Provider, Refusal
from tradewind.model.aws import AwsSettings

#: No test leaves a disk behind, and a fleet does without its quota.
UNCHECKED = {"ec2:DeleteVolume", "servicequotas:GetServiceQuota"}
SETTINGS = AwsSettings(("us-east-1",))


OF_INSTANCES = {"ec2:GetConsoleOutput", "ec2:TerminateInstances"}
#: Something of ours must exist before these can be checked.
CHANGES = {
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:DeleteSecurityGroup",
    "ec2:DeleteVolume",
    "ec2:RevokeSecurityGroupIngress",
    *OF_INSTANCES,
}


def actions() -> list[str]:
    return policy_actions(SETTINGS)


def without(action: str, settings: AwsSettings = SETTINGS) -> dict[str, Any]:
    """Return the policy without an action."""
    document: dict[str, Any] = json.loads(policy(settings))
    for statement in document["Statement"]:
        given = statement["Action"]
        statement["Action"] = [one for one in ([given] if isinstance(given, str) else given) if one != action]
    document["Statement"] = [statement for statement in document["Statement"] if statement["Action"]]
    return document


class Account:
    """An account with one user, who has a policy."""

    def __init__(self, cloud: AwsCloud) -> None:
        import boto3

        self.cloud = cloud
        self._iam = boto3.client("iam", "us-east-1", endpoint_url=cloud.endpoint)
        self._iam.create_user(UserName="user")
        key = self._iam.create_access_key(UserName="user")["AccessKey"]
        self.keys = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}

    def make_profile(self, name: str) -> None:
        """Make an instance profile, if there is none. Policies are not checked then."""
        self.cloud.enforce_policies(float("inf"))
        with suppress(self._iam.exceptions.EntityAlreadyExistsException):
            self._iam.create_instance_profile(InstanceProfileName=name)

    def allow(self, document: dict[str, Any]) -> None:
        self.cloud.enforce_policies(float("inf"))
        self.cloud.mend()
        self._iam.put_user_policy(UserName="user", PolicyName="p", PolicyDocument=json.dumps(document))
        self.cloud.enforce_policies()


@pytest.fixture(scope="module")
def shared_account() -> Iterator[Account]:
    with aws_api() as cloud, mock.patch.dict(os.environ, KEYS):
        made = Account(cloud)
        with mock.patch.dict(os.environ, made.keys):
            yield made


@pytest.fixture
def account(shared_account: Account, tmp_path: Path) -> Account:
    """The account, without what an earlier test left because it might not delete it."""
    shared_account.allow(allowing(["*"]))
    stage = AwsStage(tmp_path, shared_account.cloud)

    def is_empty() -> bool:
        stage.clear()
        return stage.provider().leftovers() == ()

    wait_until(is_empty)
    return shared_account


def refusals(provider: Provider) -> Iterator[Refusal]:
    """Use all calls of a provider, and yield the refusals."""
    ids = []
    for call in (lambda: provider.offers([REGION]), provider.leftovers, lambda: provider.machines({})):
        try:
            call()
        except CallRefused as error:
            yield error.refusal
    try:
        (result,) = provider.launch([order()])
        if result.refusal is not None:
            yield result.refusal
        if result.machine is not None:
            ids.append(result.machine.id)
            access = provider.host(result.machine)
            assert access is not None
            access.log_tail(100)
        provider.machines({FLEET_TAG: FLEET})
    except CallRefused as error:
        yield error.refusal
    yield from (ended.refusal for ended in provider.terminate(ids) if ended.refusal is not None)
    try:
        groups = [left.id for left in provider.leftovers() if left.kind == "security group"]
    except CallRefused as error:
        yield error.refusal
        return
    yield from (ended.refusal for ended in provider.terminate(groups) if ended.refusal is not None)


def allowing(wanted: list[str]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": wanted, "Resource": "*"}]}


def test_the_policy_suffices(account: Account, tmp_path: Path) -> None:
    account.allow(json.loads(policy(SETTINGS)))
    stage = AwsStage(tmp_path, account.cloud)
    assert list(refusals(stage.provider())) == []
    assert "us-east-1" in AwsApi(AwsSettings.from_document(stage.document())).regions()
    assert [*refusals_of_revocation(stage)] == []


#: The refusal ends a fleet, which is tried for a while.
LONG = "ec2:TerminateInstances"


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(action, marks=[pytest.mark.slow] if action == LONG else [])
        for action in actions()
        if action not in UNCHECKED
    ],
)
def test_a_missing_action_is_named(account: Account, tmp_path: Path, action: str) -> None:
    account.allow(without(action))
    stage = AwsStage(tmp_path, account.cloud)
    settings: dict[str, Any] = {"regions": []} if action == "ec2:DescribeRegions" else {}
    if action == "ec2:DescribeSubnets":
        settings["networks"] = {"us-east-1": {"subnets": ["subnet-0a1b2c3d"]}}
        found = list(refusals_of_zone(stage.provider(**settings)))
    elif action == "ec2:RevokeSecurityGroupIngress":
        found = list(refusals_of_revocation(stage))
    else:
        found = list(refusals(stage.provider(**settings)))
    assert action in [refusal.action for refusal in found if refusal.kind == "permission"]


def lacking(provider: Provider) -> list[PermissionAnswer]:
    """Return the answers for the permissions that a login has not."""
    assert isinstance(provider, Checking)
    answers = provider.permissions()
    assert [one for one in answers if one.is_error] == []
    return [one for one in answers if one.granted is False]


def test_missing_permissions_are_known_before_anything_is_made(account: Account, tmp_path: Path) -> None:
    """Those to change what is ours are unknown as long as nothing of ours exists."""
    stage = AwsStage(tmp_path, account.cloud)
    provider = stage.provider()
    assert isinstance(provider, Checking)
    account.allow(json.loads(policy(SETTINGS)))
    assert lacking(provider) == []
    answers = provider.permissions()
    assert [one.action for one in answers] == actions()
    unknown = {one.action for one in answers if one.granted is None}
    assert CHANGES - unknown <= OF_INSTANCES and unknown <= CHANGES, "ended instances of other tests may be there"
    for action in set(actions()) - CHANGES:
        account.allow(without(action))
        assert [one.action for one in lacking(provider)] == [action]
    assert stage.living() == []


def test_permissions_for_what_is_ours_are_known_where_there_is_a_machine(account: Account, tmp_path: Path) -> None:
    stage = AwsStage(tmp_path, account.cloud)
    provider = stage.provider()
    account.allow(json.loads(policy(SETTINGS)))
    (machine,) = launch(provider)
    for action in CHANGES:
        account.allow(without(action))
        assert [one.action for one in lacking(provider)] == [action]
    account.allow(json.loads(policy(SETTINGS)))
    assert lacking(provider) == [] and len(stage.living()) == 1
    assert provider.terminate([machine.id])[0].refusal is None


def test_an_api_that_carries_out_dry_runs_of_changes_is_asked_for_none(account: Account, tmp_path: Path) -> None:
    account.allow(allowing(["*"]))
    stage = AwsStage(tmp_path, account.cloud)
    provider = stage.provider()
    (machine,) = launch(provider)
    account.cloud.enforce_policies(float("inf"))  # The stand-in changes requests, so their signatures are wrong.
    before = names_of_groups(account.cloud)
    account.cloud.set(reads_heed_alone=1)
    try:
        assert isinstance(provider, Checking)
        answers = provider.permissions()
    finally:
        account.cloud.set(reads_heed_alone=0)
    assert {one.granted for one in answers} == {None}
    assert stage.living() == [machine.id.rpartition("/")[2]] and names_of_groups(account.cloud) == before
    assert provider.terminate([machine.id])[0].refusal is None


def names_of_groups(cloud: AwsCloud) -> list[str]:
    (region,) = SETTINGS.regions
    api = AwsApi(AwsSettings((region,), endpoint=cloud.endpoint))
    found = api.ec2(region, "describe_security_groups")["SecurityGroups"]
    return sorted(group["GroupName"] for group in found)


def test_an_identity_needs_a_permission_of_its_own(account: Account, tmp_path: Path) -> None:
    account.allow(allowing(["*"]))
    account.make_profile("gateways")
    settings = AwsSettings(("us-east-1",), instance_profile="gateways")
    provider = AwsStage(tmp_path, account.cloud).provider(instance_profile="gateways")
    account.allow(json.loads(policy(settings)))
    assert lacking(provider) == []
    account.allow(without("iam:PassRole", settings))
    assert [one.action for one in lacking(provider)] == ["iam:PassRole"]


def test_a_login_that_is_not_valid_is_no_missing_permission(account: Account, tmp_path: Path) -> None:
    account.allow(json.loads(policy(SETTINGS)))
    with mock.patch.dict(os.environ, {"AWS_SECRET_ACCESS_KEY": "wrong"}):
        provider = AwsStage(tmp_path, account.cloud).provider()
        with pytest.raises(CallRefused, match="AuthFailure"):
            lacking(provider)


def refusals_of_zone(provider: Provider) -> Iterator[Refusal]:
    (result,) = provider.launch([order(zone="us-east-1a")])
    if result.refusal is not None:
        yield result.refusal


def refusals_of_revocation(stage: AwsStage) -> Iterator[Refusal]:
    """A machine that has left is no longer admitted."""
    api = AwsApi(AwsSettings.from_document(stage.document()))
    group = FleetGroup(api, "us-east-1", FLEET, OWNER, None)
    group.admit("198.51.100.7/32", ["192.0.2.1"])
    try:
        group.admit("198.51.100.7/32", [])
    except CallRefused as error:
        yield error.refusal
