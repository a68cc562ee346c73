"""Settings of machines rented from Google Compute Engine: the table `[gcp]` of the configuration."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Literal

from tradewind.errors import ConfigError
from tradewind.model.records import dataclass, fields
from tradewind.model.table import TableReader

__all__ = ["DEBIAN", "GCP_HOURS_MAX", "GcpSettings", "NetworkTier", "read_gcp"]

#: Family of the default image: small, public, and with curl.
DEBIAN = "projects/debian-cloud/global/images/family/debian-12"
#: Longest run of a machine that the API accepts is 120 days.
GCP_HOURS_MAX = 120 * 24

NetworkTier = Literal["PREMIUM", "STANDARD"]
Control = Literal["public", "private", "calls home", "none"]

#: Networks whose addresses are not reached over the internet: RFC 1918, and RFC 6598 for carriers.
PRIVATE = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))

_PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_REGION = re.compile(r"(gcp:)?[a-z]+(-[a-z]+)+\d+")
_URL = re.compile(r"https?://[^\s/]+/?")
_ZONE = re.compile(r"[a-z]+(-[a-z]+)+\d+-[a-z]")
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_PATH = re.compile(r"projects/[a-z0-9.:-]+(/[A-Za-z0-9_-]+)+")
_PLACE = (re.compile(f"{_NAME.pattern}|{_PATH.pattern}"), "a name, or a path that begins with projects/")
_ACCOUNT = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+|default")


@dataclass(frozen=True, slots=True)
class GcpSettings:
    """How machines are rented. It has no secrets: credentials are Google's Application Default Credentials.

    - `project`: id of the project that pays
    - `regions`, `zones`: where machines may run, as Google names them (`us-central1`); empty: everywhere
    - `network`: name of a VPC network, or its path `projects/P/global/networks/N`
    - `subnet`: name of a subnet of each region, or its path; None: the network chooses (auto mode)
    - `image`: path of an image or image family, with `sh`, `sha256sum`, and `curl` or `wget`
    - `service_account`: e-mail of the identity of the machines; None: they have none
    - `public_address`: False for machines without a public address; see `control`
    - `spot`: rent spot machines where a plan does not choose
    - `network_tier`: Google's network tier of public addresses
    - `firewall`: False if rules of the network admit the gateways' ports already
    - `hours_max`: a machine is deleted by Google after this time, whatever happens
    - `home_cidr`: addresses from which the owner dials the machines, such as `198.51.100.7/32`
    - `peer_cidrs`: other addresses that may open data connections
    - `proxy`: URL of an HTTP proxy that machines use
    - `endpoint`: address of an emulator of the API. It gets no credentials
    """

    project: str
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    network: str = "default"
    subnet: str | None = None
    image: str = DEBIAN
    service_account: str | None = None
    public_address: bool = True
    spot: bool = False
    network_tier: NetworkTier = "PREMIUM"
    firewall: bool = True
    hours_max: int = 24
    home_cidr: str | None = None
    peer_cidrs: tuple[str, ...] = ()
    proxy: str | None = None
    endpoint: str | None = None

    @property
    def control(self) -> Control:
        """How the owner and gateways reach each other.

        Without public addresses, the owner dials private ones if it has a private address itself: it is in the same
        network, or joined to it. Otherwise gateways call home, if `home_cidr` is one address.
        """
        if self.public_address:
            return "public"
        home = None if self.home_cidr is None else ipaddress.ip_network(self.home_cidr)
        if isinstance(home, ipaddress.IPv4Network) and any(home.subnet_of(network) for network in PRIVATE):
            return "private"
        return "calls home" if home is not None and home.num_addresses == 1 else "none"

    def document(self) -> dict[str, Any]:
        """Return the settings as a JSON object."""
        found = {field.name: getattr(self, field.name) for field in fields(GcpSettings)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> GcpSettings:
        """Return the settings of `document`. Other keys are ignored."""
        names = {field.name for field in fields(cls)} & document.keys()
        given: dict[str, Any] = {name: document[name] for name in names}
        for name, value in given.items():
            given[name] = tuple(value) if isinstance(value, list) else value
        return cls(**given)


_KEYS = tuple(field.name for field in fields(GcpSettings))


def read_gcp(table: Mapping[str, Any], place: str) -> GcpSettings:
    """Return the settings of the table `[gcp]` of a configuration. `place` names it in errors. Raises ConfigError."""
    if unknown := sorted(table.keys() - set(_KEYS)):
        raise ConfigError(f"{place}: [gcp] has no setting {unknown[0]!r}", hint=f"known: {', '.join(_KEYS)}")
    if "project" not in table:
        raise ConfigError(f"{place}: [gcp] needs a project", hint='for example project = "my-project"')
    read = TableReader(table, f"{place}: gcp")
    settings = GcpSettings(
        project=read.text("project", _PROJECT, "the id of a project, such as my-project-1") or "",
        regions=tuple(
            region.removeprefix("gcp:")
            for region in read.texts("regions", _REGION, "a region of Google, such as us-central1")
        ),
        zones=read.texts("zones", _ZONE, "a zone of Google, such as us-central1-a"),
        network=read.text("network", *_PLACE) or "default",
        subnet=read.text("subnet", *_PLACE),
        image=read.text("image", _PATH, f"the path of an image or family, such as {DEBIAN}") or DEBIAN,
        service_account=read.text("service_account", _ACCOUNT, "the e-mail of a service account"),
        public_address=read.flag("public_address", True),
        spot=read.flag("spot", False),
        network_tier=_tier(table, place),
        firewall=read.flag("firewall", True),
        hours_max=read.whole("hours_max", 24, GCP_HOURS_MAX),
        home_cidr=read.cidr("home_cidr"),
        peer_cidrs=read.cidrs("peer_cidrs"),
        proxy=read.text("proxy", _URL, "an address such as http://proxy.example:3128"),
        endpoint=read.text("endpoint", _URL, "an address such as http://127.0.0.1:8080"),
    )
    for cidr in settings.peer_cidrs:
        if ":" in cidr:
            # A firewall rule of Google has ranges of one version, and machines have addresses of IPv4.
            raise ConfigError(f"{place}: gcp.peer_cidrs: {cidr} is an IPv6 network, and machines have IPv4 addresses")
    for zone in settings.zones:
        if settings.regions and zone.rpartition("-")[0] not in settings.regions:
            raise ConfigError(f"{place}: gcp.zones: {zone} is in none of gcp.regions")
    return settings


def _tier(table: Mapping[str, Any], place: str) -> NetworkTier:
    value = table.get("network_tier", "premium")
    if value == "premium":
        return "PREMIUM"
    if value == "standard":
        return "STANDARD"
    raise ConfigError(f'{place}: gcp.network_tier must be "premium" or "standard", not {value!r}')
