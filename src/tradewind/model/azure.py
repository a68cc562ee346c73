"""Settings of machines in Azure: the table `[azure]` of the configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import Any, Literal

from tradewind.errors import ConfigError
from tradewind.model.records import dataclass, field, fields

__all__ = ["DEFAULT_IMAGE", "AzureSettings", "Routing", "azure_from_document", "read_azure"]

Routing = Literal["microsoft", "internet"]
Control = Literal["public", "private", "calls home", "none"]

#: Debian's small image of the second generation. It runs without trusted launch, and has cloud-init.
DEFAULT_IMAGE = "Debian:debian-12:12-gen2:latest"
#: The public cloud. Azure China and Azure Government have other endpoints.
PUBLIC_CLOUD = "https://management.azure.com"
#: Time until lists show every change. Resource Manager answers lists from caches of its regions.
SETTLES_S = 5.0

_REGION = re.compile(r"(?:azure:)?([a-z0-9]+)")
_SUBSCRIPTION = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_GROUP = re.compile(r"[\w.()-]{1,90}(?<!\.)")
_URN = re.compile(r"[^:/\s]+:[^:/\s]+:[^:/\s]+:[^:/\s]+")
_ID = r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers"
_SUBNET = re.compile(_ID + r"/Microsoft\.Network/virtualNetworks/[^/]+/subnets/[^/]+", re.I)
_IDENTITY = re.compile(_ID + r"/Microsoft\.ManagedIdentity/userAssignedIdentities/[^/]+", re.I)
_IMAGE = re.compile(_ID + r"/Microsoft\.Compute/.+", re.I)


@dataclass(frozen=True, slots=True)
class AzureSettings:
    """Where and how machines run in Azure.

    - `subscription`: id of the subscription
    - `resource_group`: name of the resource group of all our resources. It is never created
    - `regions`: regions in which machines may run, such as `westeurope`
    - `machine_type`: size of machines whose plan names none; None: the cheapest of the catalog
    - `image`: `publisher:offer:sku:version`, or the id of an image of the user's own
    - `subnets`: by region, the id of a subnet of the user. Other regions get a network of ours for each fleet
    - `identity`: id of a user-assigned identity with which a machine deletes itself when its lease expires
    - `public_address`: False if machines get no public address; see `control`
    - `joined`: True if the user has joined the networks of all regions: private machines reach each other
    - `spot`: True if spot machines may be rented
    - `routing`: the network over which traffic leaves Azure: Microsoft's, or the nearest exit to the internet
    - `boot_diagnostics`: True if the console of machines is recorded
    - `auto_shutdown`: True if a machine gets a schedule that stops it once a day
    - `home_cidr`: addresses from which the owner dials the gateways
    - `proxy`: URL of an HTTP proxy that machines use
    - `programs`: where machines download the gateway program, as `ProgramSource.document`
    - `endpoint`: URL of Resource Manager
    - `settles_s`: time until lists show every change [s]
    """

    subscription: str
    resource_group: str
    regions: tuple[str, ...]
    machine_type: str | None = None
    image: str = DEFAULT_IMAGE
    subnets: Mapping[str, str] = field(default_factory=dict)
    identity: str | None = None
    public_address: bool = True
    joined: bool = False
    spot: bool = False
    routing: Routing = "microsoft"
    boot_diagnostics: bool = False
    auto_shutdown: bool = True
    home_cidr: str = "0.0.0.0/0"
    proxy: str | None = None
    programs: tuple[Mapping[str, Any], ...] = ()
    endpoint: str = PUBLIC_CLOUD
    settles_s: float = SETTLES_S

    @property
    def control(self) -> Control:
        """How the owner and gateways reach each other.

        Without public addresses, the owner dials private ones if it has a private address itself: it is in the same
        network, or joined to it. Otherwise gateways call home, if `home_cidr` is one address.
        """
        home = IPv4Network(self.home_cidr)
        if self.public_address:
            return "public"
        if home.is_private:
            return "private"
        return "calls home" if home.num_addresses == 1 else "none"

    def document(self) -> dict[str, Any]:
        """Return the settings as a JSON object, which has no secrets."""
        found = {each.name: getattr(self, each.name) for each in fields(AzureSettings)}
        lists = {"regions": list(self.regions), "programs": [dict(one) for one in self.programs]}
        return {**found, **lists, "subnets": dict(self.subnets)}


def azure_from_document(document: Mapping[str, Any]) -> AzureSettings:
    """Return the settings of `AzureSettings.document`; other keys are ignored.

    Raises ConfigError for addresses of home that Azure's firewall cannot admit.
    """
    known = {each.name for each in fields(AzureSettings)}
    found = {name: value for name, value in document.items() if name in known}
    found["regions"] = tuple(found["regions"])
    found["programs"] = tuple(found.get("programs", ()))
    if ":" in found.get("home_cidr", ""):
        raise ConfigError(
            f"machines in Azure have IPv4 addresses, and home_cidr is {found['home_cidr']}",
            hint="set home_cidr in [fleet] to the IPv4 address of this machine",
        )
    return AzureSettings(**found)


#: Settings of the configuration's table. The others are added from other tables, or fixed.
_TEXTS = {
    "subscription": (_SUBSCRIPTION, "the id of a subscription: `az account show --query id`"),
    "resource_group": (_GROUP, "the name of a resource group"),
    "machine_type": (re.compile(r"\w+"), "a machine size, such as Standard_D8_v5"),
    "image": (re.compile(f"{_URN.pattern}|{_IMAGE.pattern}", re.I), "publisher:offer:sku:version, or an image's id"),
    "identity": (_IDENTITY, "the id of a user-assigned identity: `az identity show --query id`"),
    "proxy": (re.compile(r"https?://[^\s/]+"), "the URL of an HTTP proxy, such as http://10.0.0.4:3128"),
    "endpoint": (re.compile(r"https://[^\s/]+"), f"a URL, such as {PUBLIC_CLOUD}"),
}
_SWITCHES = ("public_address", "joined", "spot", "boot_diagnostics", "auto_shutdown")
_KEYS = frozenset({*_TEXTS, *_SWITCHES, "regions", "subnets", "routing"})


def read_azure(table: Mapping[str, Any], place: str) -> AzureSettings:
    """Return the settings of the table `[azure]`. `place` names the file in errors. Raises ConfigError."""
    place = f"{place}, [azure]"
    if unknown := sorted(table.keys() - _KEYS):
        raise ConfigError(f"{place}: unknown setting {unknown[0]!r}", hint=f"known: {', '.join(sorted(_KEYS))}")
    found: dict[str, Any] = {name: _text(table, name, place) for name in _TEXTS if name in table}
    for name in ("subscription", "resource_group"):
        if name not in found:
            raise ConfigError(f"{place}: {name} is missing", hint=f"it is {_TEXTS[name][1]}")
    for name in _SWITCHES:
        if name in table:
            if not isinstance(table[name], bool):
                raise ConfigError(f"{place}: {name} must be true or false, not {table[name]!r}")
            found[name] = table[name]
    if "routing" in table:
        if table["routing"] not in ("microsoft", "internet"):
            raise ConfigError(f'{place}: routing must be "microsoft" or "internet", not {table["routing"]!r}')
        found["routing"] = table["routing"]
    return AzureSettings(**found, regions=_regions(table, place), subnets=_subnets(table, place))


def _text(table: Mapping[str, Any], name: str, place: str) -> str:
    pattern, meaning = _TEXTS[name]
    text = table[name]
    if not isinstance(text, str) or not pattern.fullmatch(text):
        raise ConfigError(f"{place}: {name} is not valid: {text!r}", hint=f"it is {meaning}")
    return text


def _regions(table: Mapping[str, Any], place: str) -> tuple[str, ...]:
    names = table.get("regions")
    if not isinstance(names, list) or not names:
        raise ConfigError(f"{place}: regions must be a list of regions", hint='for example regions = ["westeurope"]')
    return tuple(_region(name, place) for name in names)


def _region(name: object, place: str) -> str:
    found = _REGION.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise ConfigError(f"{place}: {name!r} is not a region of Azure", hint="for example westeurope")
    return found.group(1)


def _subnets(table: Mapping[str, Any], place: str) -> dict[str, str]:
    given = table.get("subnets", {})
    if not isinstance(given, Mapping):
        raise ConfigError(f"{place}: subnets must be a table", hint='[azure.subnets] with lines like westeurope = "ID"')
    found = {_region(region, place): subnet for region, subnet in given.items()}
    for region, subnet in found.items():
        if not isinstance(subnet, str) or not _SUBNET.fullmatch(subnet):
            raise ConfigError(f"{place}: the subnet of {region} is not the id of a subnet: {subnet!r}")
    return found
