"""Where a user may run gateways: hosts, clouds and clusters of the configuration, and settings common to all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from tradewind.errors import ConfigError, UsageError
from tradewind.model.hosts import NO_HOSTS, SshHosts, read_hosts
from tradewind.model.records import dataclass, field
from tradewind.model.units import parse_rate_gbps, parse_usd

if TYPE_CHECKING:
    from tradewind.model.network_tier import NetworkTier, NetworkTierChoice
    from tradewind.model.region import Region

__all__ = [
    "CLOUDS",
    "CONFIRM_ABOVE_USD",
    "FLEET",
    "NO_SITES",
    "SSH",
    "TABLES",
    "Cloud",
    "CloudKind",
    "CloudSettings",
    "FleetTable",
    "Sites",
    "read_sites",
]

#: Tables of the configuration for the user's own hosts, and for settings common to all providers.
SSH, FLEET = "ssh", "fleet"
#: Cost [USD] above which a plan without a ceiling needs a confirmation, unless the configuration sets another.
CONFIRM_ABOVE_USD = 1.0
#: Largest cost that `confirm_above_usd` accepts [USD].
CONFIRM_ABOVE_USD_MAX = 1e6
#: Most pairs of regions in `unconnected`.
PAIRS_MAX = 1024
_PLACEHOLDER = r"\{([^{}]*)\}"
PLACEHOLDERS = ("processor", "sha256", "region")
"""Words in braces that `program_url` may have."""


class CloudSettings(Protocol):
    """Settings of one cloud, as its module in `tradewind.model` reads them from its table."""

    @property
    def regions(self) -> Sequence[str]:
        """Regions in which gateways may run: `us-east-1` or `aws:us-east-1`; empty for all that the catalog knows."""
        ...

    def document(self) -> dict[str, Any]:
        """Return the settings as a JSON object for the provider's document. It has no secrets."""
        ...


@dataclass(frozen=True, slots=True)
class CloudKind:
    """How a provider's table is read, and what its machines need.

    - `module`: where its settings are
    - `reader`: the function there that reads the table, `reader(table, place)`; it raises ConfigError
    - `from_document`: the function there that returns the settings of `CloudSettings.document`
    - `policy`: `module:function` that returns the smallest policy or role for settings, as text or JSON; None without
    - `downloads`: its machines download the gateway program, so the configuration must say where it is
    - `dialled_from_home`: home opens connections to its machines, so its firewall must know home's address
    - `standard_tier`: the setting that puts machines in the standard network tier, and its value; None without a choice
    """

    module: str
    reader: str
    from_document: str
    policy: str | None = None
    downloads: bool = True
    dialled_from_home: bool = True
    standard_tier: tuple[str, str] | None = None

    def read(self, table: Mapping[str, Any], place: str) -> CloudSettings:
        """Return the settings of a table. Raises ConfigError."""
        settings: CloudSettings = getattr(import_module(self.module), self.reader)(table, place)
        return settings

    def settings(self, document: Mapping[str, Any]) -> CloudSettings:
        """Return the settings of a document."""
        settings: CloudSettings = attrgetter(self.from_document)(import_module(self.module))(document)
        return settings


#: The clouds and clusters that a configuration may have, by the name of table and provider. One line adds one. A region
#: of several belongs to the first.
CLOUDS: Mapping[str, CloudKind] = {
    "aws": CloudKind(
        "tradewind.model.aws", "read_aws", "AwsSettings.from_document", "tradewind.fleet.aws.policy:policy"
    ),
    "kubernetes": CloudKind(
        "tradewind.model.kubernetes",
        "read_kubernetes",
        "kubernetes_from_document",
        "tradewind.fleet.kubernetes.policy:policies",
        downloads=False,
        dialled_from_home=False,
    ),
    "azure": CloudKind(
        "tradewind.model.azure",
        "read_azure",
        "azure_from_document",
        "tradewind.fleet.azure.policy:policy",
        standard_tier=("routing", "internet"),
    ),
    "gcp": CloudKind(
        "tradewind.model.gcp",
        "read_gcp",
        "GcpSettings.from_document",
        "tradewind.fleet.gcp.role:policy",
        standard_tier=("network_tier", "STANDARD"),
    ),
}
#: All tables that say where gateways may run.
TABLES = (SSH, FLEET, *CLOUDS)


@dataclass(frozen=True, slots=True)
class Cloud:
    """One cloud of the configuration. `settings` are what its provider's document has; `regions` as CloudSettings."""

    kind: str
    regions: tuple[str, ...]
    settings: Mapping[str, Any]

    def has(self, region: str) -> bool:
        """Return whether gateways may run in a region."""
        return region in self.regions if self.regions else region.startswith(f"{self.kind}:")

    def network_tier(self, wanted: NetworkTierChoice | None) -> NetworkTier | None:
        """Return the only network tier that its machines may have; None if a plan may choose one as `wanted`.

        Without `wanted` it is the configured one. Machines without public addresses send in the premium tier.
        """
        setting = CLOUDS[self.kind].standard_tier
        if setting is None:
            return None
        if not self.settings.get("public_address", True):
            return "premium"
        if wanted is not None:
            return None
        name, standard = setting
        return "standard" if self.settings.get(name) == standard else "premium"


@dataclass(frozen=True, slots=True)
class FleetTable:
    """Settings common to all providers, the table `[fleet]`.

    - `program_url`: URL of the gateway program, with `{processor}`, `{sha256}` and `{region}` where it depends on these
    - `programs`: folder with the programs `tradewind-gateway-x86_64` and `-aarch64`; None: this machine's program
    - `home_cidr`: addresses from which this machine reaches others, as CIDR; None: it is looked up
    - `home_gbps`: rate of this machine between two stores, the setting `home_rate`; None: it is learned
    - `confirm_above_usd`: a plan that costs more needs a confirmation, unless it has a ceiling
    - `unconnected`: pairs of regions whose gateways cannot open connections to each other
    """

    program_url: str | None = None
    programs: str | None = None
    home_cidr: str | None = None
    home_gbps: float | None = None
    confirm_above_usd: float = CONFIRM_ABOVE_USD
    unconnected: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Sites:
    """All places of a configuration where gateways may run. It is false if there are none."""

    hosts: SshHosts = NO_HOSTS
    clouds: tuple[Cloud, ...] = ()
    fleet: FleetTable = field(default_factory=FleetTable)

    def __bool__(self) -> bool:
        return bool(self.hosts.hosts or self.clouds)

    def has(self, region: str) -> bool:
        """Return whether gateways may run in a region."""
        return region in self.hosts.regions or any(cloud.has(region) for cloud in self.clouds)

    def network_tier(self, region: Region, wanted: NetworkTierChoice | None) -> NetworkTier | None:
        """Return the only network tier that machines in a region may have; None if a plan may choose one as `wanted`.

        Nothing changes the tier of the user's own hosts, nor that of pods in a cloud's region: the premium tier is
        assumed.
        """
        if str(region) in self.hosts.regions:
            return "premium"
        cloud = next((cloud for cloud in self.clouds if cloud.has(str(region))), None)
        if cloud is None:
            return None
        return cloud.network_tier(wanted) if cloud.kind == region.provider else "premium"

    def describe(self) -> str:
        """Return the places in words: `hosts in site:lab; aws in all regions`."""
        parts = [f"hosts in {', '.join(self.hosts.regions)}"] if self.hosts.hosts else []
        for cloud in self.clouds:
            parts.append(f"{cloud.kind} in {', '.join(cloud.regions) or 'all regions'}")
        return "; ".join(parts)


NO_SITES = Sites()
"""Nothing is configured."""


def read_sites(tables: Mapping[str, Any], place: str) -> Sites:
    """Return the sites of a configuration from its tables, by name. `place` names it in errors. Raises ConfigError."""
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            hint = "begin each host with [[ssh.hosts]]" if name == SSH else f"begin it with [{name}]"
            raise ConfigError(f"{place}: {name} must be a table", hint=hint)
    hosts = read_hosts(tables[SSH], place) if SSH in tables else NO_HOSTS
    clouds = []
    for kind, how in CLOUDS.items():
        if kind in tables:
            settings = how.read(tables[kind], place)
            regions = tuple(name if ":" in name else f"{kind}:{name}" for name in settings.regions)
            clouds.append(Cloud(kind, regions, settings.document()))
    return Sites(hosts, tuple(clouds), _fleet(tables.get(FLEET, {}), f"{place}, [{FLEET}]"))


def _fleet(table: Mapping[str, Any], place: str) -> FleetTable:
    known = {"program_url", "programs", "home_cidr", "home_rate", "confirm_above_usd", "unconnected"}
    if unknown := sorted(table.keys() - known):
        raise ConfigError(f"{place} has no setting {unknown[0]!r}", hint=f"it has {', '.join(sorted(known))}")
    texts = {name: _text(table, name, place) for name in sorted(known - {"confirm_above_usd", "unconnected"})}
    if texts["program_url"] is not None:
        _check_url(texts["program_url"], place)
    return FleetTable(
        texts["program_url"],
        texts["programs"],
        None if texts["home_cidr"] is None else _cidr(texts["home_cidr"], place),
        None if texts["home_rate"] is None else _gbps(texts["home_rate"], place),
        _usd(table.get("confirm_above_usd", CONFIRM_ABOVE_USD), place),
        _pairs(table.get("unconnected", []), place),
    )


def _pairs(entries: object, place: str) -> tuple[tuple[str, str], ...]:
    from tradewind.model.region import Region

    wrong = ConfigError(
        f"{place}: unconnected must be pairs of regions, not {entries!r}",
        hint='for example unconnected = [["site:lab", "site:plant"]]',
    )
    if not isinstance(entries, list) or len(entries) > PAIRS_MAX:
        raise wrong
    found = []
    for pair in entries:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise wrong
        try:
            found.append((str(Region.parse(pair[0])), str(Region.parse(pair[1]))))
        except ValueError as error:
            raise ConfigError(f"{place}: unconnected: {error}") from None
    return tuple(found)


def _text(table: Mapping[str, Any], name: str, place: str) -> str | None:
    text = table.get(name)
    if text is not None and (not isinstance(text, str) or not text or not text.isprintable()):
        raise ConfigError(f"{place}: {name} must be text", hint=f'for example {name} = "…"')
    return text


def _check_url(url: str, place: str) -> None:
    if not url.startswith(("https://", "http://")) or any(character.isspace() for character in url):
        raise ConfigError(f"{place}: program_url must be an http or https URL, not {url!r}")
    if unknown := next((name for name in re.findall(_PLACEHOLDER, url) if name not in PLACEHOLDERS), None):
        raise ConfigError(
            f"{place}: program_url has the unknown placeholder {{{unknown}}}",
            hint="it may have {processor}, {sha256} and {region}",
        )


def _cidr(text: str, place: str) -> str:
    import ipaddress  # Loads slowly, and few configurations need it.

    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(
            f"{place}: home_cidr must be an address or a network, not {text!r}", hint="for example 203.0.113.7/32"
        ) from None
    return str(network)


def _usd(value: object, place: str) -> float:
    if isinstance(value, str):
        try:
            return parse_usd(value)
        except UsageError as error:
            raise ConfigError(f"{place}: confirm_above_usd: {error}", hint=error.hint) from None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= CONFIRM_ABOVE_USD_MAX:
        raise ConfigError(f"{place}: confirm_above_usd must be an amount in USD, not {value!r}", hint="for example 5")
    return float(value)


def _gbps(text: str, place: str) -> float:
    try:
        gbps = parse_rate_gbps(text)
    except UsageError as error:
        raise ConfigError(f"{place}: home_rate: {error}", hint=error.hint) from None
    if not gbps > 0:
        raise ConfigError(f"{place}: home_rate must be more than 0")
    return gbps
