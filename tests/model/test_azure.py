"""The table `[azure]` of the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.errors import ConfigError
from tradewind.model.azure import AzureSettings, azure_from_document, read_azure

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
LEAST: dict[str, Any] = {"subscription": SUBSCRIPTION, "resource_group": "transfers", "regions": ["westeurope"]}
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/transfers/providers"
SUBNET = f"{GROUP}/Microsoft.Network/virtualNetworks/ours/subnets/gateways"
IDENTITY = f"{GROUP}/Microsoft.ManagedIdentity/userAssignedIdentities/gateways"


def test_three_settings_are_enough() -> None:
    assert read_azure(LEAST, "here") == AzureSettings(SUBSCRIPTION, "transfers", ("westeurope",))


def test_an_ipv6_address_of_home_is_refused_before_anything_is_rented() -> None:
    document = {**AzureSettings(SUBSCRIPTION, "transfers", ("westeurope",)).document(), "home_cidr": "2001:db8::1/128"}
    with pytest.raises(ConfigError, match="IPv4 addresses, and home_cidr is 2001:db8::1/128"):
        azure_from_document(document)


def test_all_settings_are_read_and_survive_a_document() -> None:
    table = {
        **LEAST,
        "regions": ["azure:westeurope", "eastus"],
        "machine_type": "Standard_D8_v5",
        "image": "Canonical:ubuntu-24_04-lts:minimal:latest",
        "subnets": {"westeurope": SUBNET},
        "identity": IDENTITY,
        "public_address": False,
        "proxy": "http://10.0.0.4:3128",
        "spot": True,
        "routing": "internet",
        "boot_diagnostics": True,
        "auto_shutdown": False,
        "endpoint": "https://management.usgovcloudapi.net",
    }
    settings = read_azure(table, "here")
    assert settings.regions == ("westeurope", "eastus")
    assert {name: settings.document()[name] for name in table} == {**table, "regions": ["westeurope", "eastus"]}
    assert azure_from_document({"kind": "azure", **settings.document()}) == settings


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown name": ({"region": "westeurope"}, "unknown setting 'region'"),
    "no subscription": ({"subscription": None}, "subscription is not valid"),
    "a name for a subscription": ({"subscription": "mine"}, "subscription is not valid: 'mine'"),
    "no regions": ({"regions": []}, "regions must be a list"),
    "a region of another cloud": ({"regions": ["aws:us-east-1"]}, "'aws:us-east-1' is not a region of Azure"),
    "an image": ({"image": "debian"}, "image is not valid"),
    "an identity": ({"identity": "gateways"}, "identity is not valid"),
    "a subnet": ({"subnets": {"westeurope": "gateways"}}, "the subnet of westeurope is not the id of a subnet"),
    "a switch": ({"spot": "yes"}, "spot must be true or false"),
    "routing": ({"routing": "fast"}, 'routing must be "microsoft" or "internet"'),
    "an endpoint without encryption": ({"endpoint": "http://127.0.0.1:1"}, "endpoint is not valid"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_named(name: str) -> None:
    changes, words = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        read_azure({**LEAST, **changes}, "config.toml")
    assert str(caught.value).startswith("config.toml, [azure]: ") and words in str(caught.value)


@pytest.mark.parametrize("name", ["subscription", "resource_group"])
def test_a_missing_setting_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is missing"):
        read_azure({key: value for key, value in LEAST.items() if key != name}, "config.toml")
