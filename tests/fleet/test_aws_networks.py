"""Instances in a user's own VPC, subnets and security group, with an image and an identity of the user's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from testbed.clouds.aws import KEYS, AwsCloud, aws_api
from tests.fleet.aws_stage import AwsStage, launch, order
from tests.fleet.orders import FLEET, refusal_of
from tradewind.fleet.provider import FLEET_TAG

PROFILE = "machines"


@dataclass(frozen=True)
class Network:
    """A user's own VPC, with a subnet in each of two zones, and a group of the user's."""

    client: Any
    vpc: str
    subnets: dict[str, str]
    group: str
    image: str

    def settings(self, **changes: Any) -> dict[str, Any]:
        """Return the table of the region, as a document has it."""
        return {"networks": {"us-east-1": {"vpc": self.vpc, "subnets": list(self.subnets.values()), **changes}}}

    def groups(self) -> dict[str, dict[str, Any]]:
        """Return the groups of the VPC by id."""
        found = self.client.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [self.vpc]}])
        return {group["GroupId"]: group for group in found["SecurityGroups"]}

    def instance(self, machine_id: str) -> dict[str, Any]:
        """Return an instance as EC2 describes it."""
        (reservation,) = self.client.describe_instances(InstanceIds=[machine_id.partition("/")[2]])["Reservations"]
        (instance,) = reservation["Instances"]
        found: dict[str, Any] = instance
        return found

    def groups_of(self, machine_id: str) -> list[str]:
        """Return the groups of an instance's interface: moto shows them there only, if it is in a subnet."""
        (interface,) = self.instance(machine_id)["NetworkInterfaces"]
        return [group["GroupId"] for group in interface["Groups"]]


@pytest.fixture(scope="module")
def cloud() -> Iterator[AwsCloud]:
    with aws_api() as running, mock.patch.dict(os.environ, KEYS):
        yield running


@pytest.fixture(scope="module")
def network(cloud: AwsCloud) -> Network:
    import boto3

    client = boto3.client("ec2", "us-east-1", endpoint_url=cloud.endpoint)
    vpc = client.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnets = {
        zone: client.create_subnet(VpcId=vpc, CidrBlock=f"10.9.{number}.0/24", AvailabilityZone=zone)["Subnet"][
            "SubnetId"
        ]
        for number, zone in enumerate(("us-east-1a", "us-east-1b"))
    }
    group = client.create_security_group(GroupName="mine", Description="of the user", VpcId=vpc)["GroupId"]
    image = client.describe_images(Owners=["amazon"])["Images"][-1]["ImageId"]
    iam = boto3.client("iam", "us-east-1", endpoint_url=cloud.endpoint)
    iam.create_instance_profile(InstanceProfileName=PROFILE)
    return Network(client, vpc, subnets, group, image)


@pytest.fixture
def stage(cloud: AwsCloud, tmp_path: Path) -> AwsStage:
    made = AwsStage(tmp_path, cloud)
    made.clear()
    return made


def test_machines_start_in_the_subnet_of_their_zone_with_a_group_of_the_same_vpc(
    stage: AwsStage, network: Network
) -> None:
    provider, before = stage.provider(**network.settings()), network.groups()
    machines = launch(provider, order("any"), order("second", zone="us-east-1b"))
    first, second = (network.instance(machine.id) for machine in machines)
    assert (first["VpcId"], second["VpcId"]) == (network.vpc, network.vpc)
    assert first["SubnetId"] in network.subnets.values() and second["SubnetId"] == network.subnets["us-east-1b"]
    assert [machine.zone for machine in machines][1] == "us-east-1b"
    (added,) = network.groups().keys() - before.keys()
    assert {tag["Key"]: tag["Value"] for tag in network.groups()[added]["Tags"]}[FLEET_TAG] == FLEET
    assert all(network.groups_of(machine.id) == [added] for machine in machines)
    provider.terminate([machine.id for machine in machines])
    provider.terminate([left.id for left in provider.leftovers()])
    assert network.groups() == before


def test_a_zone_without_a_subnet_is_a_lack_of_capacity(stage: AwsStage, network: Network) -> None:
    """So another zone is tried."""
    (result,) = stage.provider(**network.settings()).launch([order(zone="us-east-1c")])
    refusal = refusal_of(result)
    assert refusal.kind == "capacity" and "[aws.networks.us-east-1] has no subnet in us-east-1c" in refusal.reason
    assert stage.living() == []


def test_a_group_of_the_user_is_used_as_it_is_and_kept(stage: AwsStage, network: Network) -> None:
    provider = stage.provider(**network.settings(security_group=network.group))
    before = network.groups()
    (machine,) = launch(provider)
    assert network.groups_of(machine.id) == [network.group]
    assert all(network.group not in left.id for left in provider.leftovers())
    provider.terminate([machine.id])
    assert network.groups() == before and provider.leftovers() == ()


def test_machines_have_the_image_and_the_identity_of_the_user(stage: AwsStage, network: Network) -> None:
    provider = stage.provider(**network.settings(image=network.image), instance_profile=PROFILE)
    (machine,) = launch(provider)
    instance = network.instance(machine.id)
    assert instance["ImageId"] == network.image
    assert instance["IamInstanceProfile"]["Arn"].endswith(f"/{PROFILE}")
    provider.terminate([machine.id])
