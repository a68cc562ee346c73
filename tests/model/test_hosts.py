"""Hosts of the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.errors import ConfigError
from tradewind.model.hosts import SshHost, hosts_from_document, read_hosts

LAB = {"name": "lab-1", "region": "site:lab"}


def test_a_host_has_what_it_says_and_defaults() -> None:
    full = {
        "name": "me@far",
        "region": "aws:us-east-1",
        "address": "198.51.100.7",
        "port": 7443,
        "egress": "10Gbit/s",
        "ingress": "1Gbit/s",
        "usd_per_hour": 0.5,
        "gateways": 2,
        "inbound": False,
        "raise_tcp_buffers": True,
        "folder": "~/tw",
    }
    hosts = read_hosts({"config": "/etc/ssh_config", "hosts": [LAB, full]}, "config.toml")
    assert hosts.hosts == (
        SshHost("lab-1", "site:lab", "lab-1"),
        SshHost("me@far", "aws:us-east-1", "198.51.100.7", 7443, 10.0, 1.0, 0.5, 2, False, "~/tw", True),
    )
    assert hosts.regions == ["aws:us-east-1", "site:lab"]
    assert hosts_from_document(hosts.document()) == hosts


def test_the_address_is_by_default_the_name_without_the_user() -> None:
    (host,) = read_hosts({"hosts": [{**LAB, "name": "me@lab.example"}]}, "c").hosts
    assert host.address == "lab.example"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"region": "site:lab"}, "name must be text"),
        ({"name": "a"}, "region must be text"),
        ({**LAB, "name": "-oProxyCommand=sh"}, "not a name that ssh accepts"),
        ({**LAB, "name": "a b"}, "not a name that ssh accepts"),
        ({**LAB, "name": "a\nb"}, "name must be text"),
        ({**LAB, "region": "nowhere"}, "region"),
        ({**LAB, "port": 70000}, "port must be a whole number from 0 to 65535"),
        ({**LAB, "gateways": 0}, "gateways must be a whole number from 1"),
        ({**LAB, "gateways": True}, "gateways must be a whole number"),
        ({**LAB, "egress": "fast"}, "egress"),
        ({**LAB, "egress": 10}, "egress must be text"),
        ({**LAB, "usd_per_hour": -1}, "usd_per_hour must be a price"),
        ({**LAB, "inbound": "no"}, "inbound must be true or false"),
        ({**LAB, "raise_tcp_buffers": 1}, "raise_tcp_buffers must be true or false"),
        ({**LAB, "colour": "red"}, "unknown setting 'colour'"),
    ],
)
def test_a_wrong_host_is_refused_with_its_place(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_hosts({"hosts": [entry]}, "config.toml")
    assert words in str(refused.value) and "config.toml, [[ssh.hosts]] 1" in str(refused.value)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"hosts": "lab-1"}, "ssh.hosts must be tables"),
        ({"host": []}, "has no setting 'host'"),
        ({"hosts": [LAB, LAB]}, "two [[ssh.hosts]] are called 'lab-1'"),
        ({"config": 5}, "ssh.config must be the path"),
    ],
)
def test_a_wrong_table_is_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_hosts(table, "config.toml")
    assert words in str(refused.value)
