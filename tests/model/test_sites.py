"""Where gateways may run: the tables of the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.cli.config import SITE_TABLES
from tradewind.errors import ConfigError
from tradewind.model import sites
from tradewind.model.document import Codec
from tradewind.model.sites import NO_SITES, TABLES, Cloud, FleetTable, Sites, read_sites

HOSTS = {"hosts": [{"name": "lab-1", "region": "site:lab"}]}


def test_the_command_line_knows_the_names_of_all_tables() -> None:
    """It repeats them, because most commands must start without reading this module."""
    assert SITE_TABLES == TABLES


def test_nothing_configured_is_false_and_the_fleet_table_alone_is_no_place() -> None:
    assert not NO_SITES and not read_sites({"fleet": {"home_cidr": "203.0.113.7"}}, "c")
    assert read_sites({"ssh": HOSTS}, "c")


def test_the_fleet_table_is_read() -> None:
    url = "https://example.com/{region}/{sha256}/{processor}"
    table = {
        "program_url": url,
        "programs": "~/programs",
        "home_cidr": "203.0.113.9/30",
        "home_rate": "300Mbit/s",
        "confirm_above_usd": 5,
    }
    read = read_sites({"fleet": table}, "c").fleet
    assert read == FleetTable(url, "~/programs", "203.0.113.8/30", 0.3, 5.0)
    assert read_sites({"fleet": {"home_cidr": "2001:db8::1"}}, "c").fleet.home_cidr == "2001:db8::1/128"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"colour": "red"}, "has no setting 'colour'"),
        ({"program_url": "ftp://example.com"}, "program_url must be an http or https URL"),
        ({"program_url": "https://example.com/{arch}"}, "unknown placeholder {arch}"),
        ({"program_url": ""}, "program_url must be text"),
        ({"home_cidr": "home"}, "home_cidr must be an address or a network"),
        ({"home_rate": "fast"}, "home_rate"),
        ({"home_rate": 3}, "home_rate must be text"),
        ({"confirm_above_usd": -1}, "confirm_above_usd must be an amount"),
        ({"confirm_above_usd": True}, "confirm_above_usd must be an amount"),
    ],
)
def test_a_wrong_fleet_table_is_refused_with_its_place(table: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_sites({"fleet": table}, "config.toml")
    assert words in str(refused.value) and str(refused.value).startswith("config.toml, [fleet]")


def test_a_value_instead_of_a_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="fleet must be a table"):
        read_sites({"fleet": 5}, "c")


def test_a_region_is_there_if_a_host_or_a_cloud_has_it() -> None:
    some, all_of = Cloud("aws", ("aws:us-east-1",), {}), Cloud("gcp", (), {})
    places = Sites(read_sites({"ssh": HOSTS}, "c").hosts, (some, all_of))
    there = {region: places.has(region) for region in ("site:lab", "aws:us-east-1", "aws:eu-west-1", "gcp:x", "site:x")}
    assert there == {"site:lab": True, "aws:us-east-1": True, "aws:eu-west-1": False, "gcp:x": True, "site:x": False}
    assert places.describe() == "hosts in site:lab; aws in aws:us-east-1; gcp in all regions"


def test_sites_are_kept_with_a_proposal() -> None:
    places = Sites(read_sites({"ssh": HOSTS}, "c").hosts, (Cloud("aws", ("aws:a",), {"role": {"x": [1]}}),))
    codec = Codec()
    assert codec.decode(Sites, codec.encode(Sites, places)) == places


@pytest.mark.parametrize("kind", sorted(sites.CLOUDS))
def test_each_cloud_has_a_reader_that_refuses_unknown_settings(kind: str) -> None:
    with pytest.raises(ConfigError):
        read_sites({kind: {"no_such_setting": 1}}, "c")
