"""The policy that `tradewind init` prints suffices, and each missing action is named."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from testbed.clouds.aws import KEYS, AwsCloud, aws_api
from tests.fleet.aws_stage import REGION, AwsStage, order
from tests.fleet.orders import FLEET, OWNER
from tests.fleet.worlds import wait_until
from tradewind.fleet.aws.api import AwsApi
from tradewind.fleet.aws.groups import FleetGroup
from tradewind.fleet.aws.policy import policy
from tradewind.fleet.provider import FLEET_TAG, CallRefused, Provider, Refusal
from tradewind.model.aws import AwsSettings

#: moto checks the action of a request alone, and neither Service Quotas nor the public parameters of images. No test
#: leaves a disk behind.
UNCHECKED = {"ec2:CreateTags", "ec2:DeleteVolume", "servicequotas:GetServiceQuota", "ssm:GetParameter"}
SETTINGS = AwsSettings(("us-east-1",))


def actions() -> list[str]:
    statements = json.loads(policy(SETTINGS))["Statement"]
    given = [one["Action"] for one in statements]
    return sorted({action for one in given for action in ([one] if isinstance(one, str) else one)})


class Account:
    """An account with one user, who has a policy."""

    def __init__(self, cloud: AwsCloud) -> None:
        import boto3

        self.cloud = cloud
        self._iam = boto3.client("iam", "us-east-1", endpoint_url=cloud.endpoint)
        self._iam.create_user(UserName="user")
        key = self._iam.create_access_key(UserName="user")["AccessKey"]
        self.keys = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}

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
    """Without the conditions, because moto ignores statements that have some."""
    account.allow(allowing(actions()))
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
    account.allow(allowing([one for one in actions() if one != action]))
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
