"""The table `[gcp]` of the configuration."""

from __future__ import annotations

import json

import pytest

from tradewind.errors import ConfigError
from tradewind.model.gcp import DEBIAN, GcpSettings, read_gcp
from tradewind.model.sites import CLOUDS, read_sites


def test_all_settings_are_read_and_kept_in_the_document() -> None:
    table = {
        "project": "my-project-1",
        "regions": ["us-central1", "gcp:europe-west4"],
        "zones": ["us-central1-a"],
        "network": "projects/host-project/global/networks/shared",
        "subnet": "gateways",
        "image": "projects/ours/global/images/gateway-1",
        "service_account": "gateway@my-project-1.iam.gserviceaccount.com",
        "public_address": False,
        "spot": True,
        "network_tier": "standard",
        "firewall": False,
        "hours_max": 48,
        "home_cidr": "198.51.100.7/32",
        "peer_cidrs": ["192.0.2.0/24"],
        "proxy": "http://proxy.example:3128",
        "endpoint": "http://127.0.0.1:8080",
    }
    settings = read_gcp(table, "config.toml")
    assert settings.regions == ("us-central1", "europe-west4") and settings.network_tier == "STANDARD"
    document = json.loads(json.dumps({"kind": "gcp", "programs": [], **settings.document()}))
    assert GcpSettings.from_document(document) == settings
    assert CLOUDS["gcp"].settings(document) == settings


def test_a_project_suffices() -> None:
    settings = read_gcp({"project": "my-project"}, "config.toml")
    assert (settings.image, settings.network, settings.network_tier) == (DEBIAN, "default", "PREMIUM")
    assert settings.public_address and settings.firewall and not settings.spot and settings.hours_max == 24
    (cloud,) = read_sites({"gcp": {"project": "my-project", "regions": ["us-central1"]}}, "config.toml").clouds
    assert cloud.has("gcp:us-central1") and not cloud.has("gcp:us-east1")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"projekt": "x"}, r"\[gcp\] has no setting 'projekt'"),
        ({"project": "UPPER"}, "gcp.project must be the id of a project"),
        ({"project": 3}, "gcp.project must be the id of a project"),
        ({"regions": "us-central1"}, "gcp.regions must be a list"),
        ({"regions": ["us-central1-a"]}, "gcp.regions must be a region of Google"),
        ({"zones": ["us-central1"]}, "gcp.zones must be a zone of Google"),
        ({"regions": ["us-east1"], "zones": ["us-central1-a"]}, "us-central1-a is in none of gcp.regions"),
        ({"network": "Not A Name"}, "gcp.network must be a name, or a path"),
        ({"subnet": ""}, "gcp.subnet must be a name, or a path"),
        ({"image": "debian-12"}, "gcp.image must be the path of an image"),
        ({"service_account": "me"}, "gcp.service_account must be the e-mail"),
        ({"public_address": "no"}, "gcp.public_address must be true or false, not 'no'"),
        ({"spot": 1}, "gcp.spot must be true or false, not 1"),
        ({"network_tier": "PREMIUM"}, 'gcp.network_tier must be "premium" or "standard"'),
        ({"hours_max": 0}, "gcp.hours_max must be a whole number from 1 to 2880"),
        ({"hours_max": True}, "gcp.hours_max must be a whole number"),
        ({"home_cidr": "198.51.100.7/8"}, "gcp.home_cidr must be a range of addresses"),
        ({"peer_cidrs": [3]}, "gcp.peer_cidrs must be a range of addresses"),
        ({"peer_cidrs": ["192.0.2.0/24", "2001:db8::/64"]}, "gcp.peer_cidrs: 2001:db8::/64 is an IPv6 network"),
        ({"peer_cidrs": "192.0.2.0/24"}, "gcp.peer_cidrs must be a list"),
        ({"endpoint": "127.0.0.1"}, "gcp.endpoint must be an address"),
        ({"proxy": "proxy"}, "gcp.proxy must be an address"),
    ],
)
def test_a_wrong_setting_is_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_gcp({"project": "my-project", **change}, "config.toml")


def test_the_project_is_required() -> None:
    with pytest.raises(ConfigError, match=r"config.toml: \[gcp\] needs a project"):
        read_gcp({}, "config.toml")
