"""Pairs of regions whose gateways cannot connect, by the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.errors import ConfigError
from tradewind.model.reach import unconnected
from tradewind.model.region import Region
from tradewind.model.sites import read_sites

EAST, WEST = Region("aws", "us-east-1"), Region("aws", "us-west-2")
LAB, PLANT = Region("site", "lab"), Region("site", "plant")
LAB_HOST = {"name": "lab-1", "region": "site:lab", "inbound": False}


def closed(tables: dict[str, Any], *regions: Region) -> dict[tuple[Region, Region], str]:
    return unconnected(read_sites(tables, "config.toml"), regions)


def test_two_regions_without_public_addresses_connect_only_if_their_networks_are_joined() -> None:
    private = {"public_address": False, "home_cidr": "198.51.100.7/32"}
    found = closed({"aws": private}, EAST, WEST)
    why = "[aws] has `public_address = false` and not `joined = true`"
    assert found == {(EAST, WEST): why, (WEST, EAST): why}
    assert closed({"aws": {**private, "joined": True}}, EAST, WEST) == {}
    assert closed({"aws": {}}, EAST, WEST) == {}


def test_regions_of_google_cloud_share_a_network() -> None:
    regions = Region("gcp", "us-central1"), Region("gcp", "europe-west4")
    assert closed({"gcp": {"project": "p-123456", "public_address": False}}, *regions) == {}


def test_a_private_cloud_and_a_host_that_only_dials_out_do_not_connect() -> None:
    tables = {"aws": {"public_address": False, "joined": True}, "ssh": {"hosts": [LAB_HOST]}}
    found = closed(tables, EAST, WEST, LAB)
    assert set(found) == {(EAST, LAB), (LAB, EAST), (WEST, LAB), (LAB, WEST)}
    assert found[EAST, LAB] == "[aws] has `public_address = false`, host lab-1 has `inbound = false`"


def test_one_end_that_accepts_connections_is_enough() -> None:
    hosts = [LAB_HOST, {"name": "plant-1", "region": "site:plant"}]
    assert closed({"ssh": {"hosts": hosts}}, LAB, PLANT) == {}


def test_clusters_that_only_dial_out_do_not_connect() -> None:
    clusters = [
        {"context": name, "region": f"site:{name}", "image": "tradewind", "network": "out"} for name in ("lab", "plant")
    ]
    found = closed({"kubernetes": {"clusters": clusters, "home": "198.51.100.7"}}, LAB, PLANT)
    assert found[LAB, PLANT] == 'cluster lab has `network = "out"`, cluster plant has `network = "out"`'


def test_the_configuration_can_name_pairs_that_do_not_connect() -> None:
    found = closed({"fleet": {"unconnected": [["site:lab", "site:plant"]]}}, LAB, PLANT, EAST)
    assert set(found) == {(LAB, PLANT), (PLANT, LAB)}


@pytest.mark.parametrize("wrong", ["site:lab", [["site:lab"]], [["site:lab", 3]], [["site:lab", "nowhere"]]])
def test_other_values_are_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="unconnected"):
        closed({"fleet": {"unconnected": wrong}})
