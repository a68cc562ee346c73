"""The table `[aws]` of the configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tradewind.errors import ConfigError
from tradewind.model.aws import AwsNetwork, AwsSettings, read_aws
from tradewind.model.table import ENTRIES_MAX

NETWORK = {
    "vpc": "vpc-0a1b2c3d",
    "subnets": ["subnet-0a1b2c3d", "subnet-1a1b2c3d"],
    "security_group": "sg-0a1b2c3d",
    "image": "ami-0a1b2c3d",
}


def test_no_setting_is_needed() -> None:
    assert read_aws({}, "c") == AwsSettings()


def test_all_settings_are_read_and_survive_a_document() -> None:
    table = {
        "regions": ["us-east-1", "eu-west-1"],
        "profile": "transfers",
        "instance_profile": "arn:aws:iam::1:instance-profile/gateways",
        "public_address": False,
        "spot": True,
        "networks": {"us-east-1": NETWORK},
        "home_cidr": "198.51.100.7/32",
        "peer_cidrs": ["192.0.2.0/24", "2001:db8::/64"],
        "endpoint": "http://127.0.0.1:8080",
    }
    settings = read_aws(table, "c")
    subnets = ("subnet-0a1b2c3d", "subnet-1a1b2c3d")
    assert settings.network("us-east-1") == AwsNetwork("vpc-0a1b2c3d", subnets, "sg-0a1b2c3d", "ami-0a1b2c3d")
    assert settings.network("eu-west-1") == AwsNetwork()
    assert AwsSettings.from_document(json.loads(json.dumps(settings.document()))) == settings


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"region": "us-east-1"}, "aws has no setting 'region'"),
        ({"regions": "us-east-1"}, "aws.regions must be a list of at most 200 entries, not 'us-east-1'"),
        ({"regions": ["us-east-1a"]}, "aws.regions must be a region of AWS, such as us-east-1, not 'us-east-1a'"),
        ({"regions": ["us-east-1"] * (ENTRIES_MAX + 1)}, "aws.regions must be a list of at most 200 entries"),
        ({"profile": "my profile"}, "aws.profile must be the name of a profile"),
        ({"spot": "yes"}, "aws.spot must be true or false, not 'yes'"),
        ({"home_cidr": "198.51.100.7/8"}, "aws.home_cidr must be a range of addresses"),
        ({"peer_cidrs": [3]}, "aws.peer_cidrs must be a range of addresses, not 3"),
        ({"endpoint": "127.0.0.1"}, "aws.endpoint must be an address"),
        ({"networks": []}, "aws.networks must be tables"),
        ({"networks": {"everywhere": {}}}, "aws.networks.everywhere must be a table named after a region"),
        ({"networks": {"us-east-1": {"subnet": "x"}}}, "aws.networks.us-east-1 has no setting 'subnet'"),
        ({"networks": {"us-east-1": {"vpc": "vpc-0a1b2c3d"}}}, "a VPC needs subnets"),
        ({"regions": ["eu-west-1"], "networks": {"us-east-1": NETWORK}}, "us-east-1 is not in aws.regions"),
    ],
)
def test_a_wrong_setting_is_named(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_aws(table, "c")
