"""The hosts of the configuration, `[[ssh.hosts]]`, on which gateways may run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.errors import ConfigError, UsageError
from tradewind.model.records import dataclass, fields
from tradewind.model.region import Region
from tradewind.model.units import parse_rate

__all__ = ["NO_HOSTS", "SshHost", "SshHosts", "hosts_from_document", "in_region", "read_hosts"]

#: Most gateways that one host may run.
GATEWAYS_MAX = 64
PORT_MAX = 65535
#: Names that ssh accepts, without what it could take for an option.
_NAME = r"[A-Za-z0-9_.@:%\[\]][A-Za-z0-9_.@:%\[\]-]*"
_KEYS = frozenset(
    {
        "name",
        "region",
        "address",
        "port",
        "egress",
        "ingress",
        "usd_per_hour",
        "gateways",
        "inbound",
        "folder",
        "raise_tcp_buffers",
    }
)


@dataclass(frozen=True, slots=True)
class SshHost:
    """A host of the user.

    - `name`: what follows `ssh` on the user's command line: a name, an alias of the ssh configuration, or `user@host`
    - `region`: its region, such as `aws:us-east-1` or `site:lab`
    - `address`: the address at which gateways on other hosts reach it
    - `port`: its first data port; one more for each further gateway. 0: any free port
    - `egress_gbps`, `ingress_gbps`: the most that it sends and receives [Gbit/s]; None if that is not known
    - `usd_per_hour`: its price while a gateway runs there
    - `gateways`: the most gateways that it runs at once
    - `inbound`: False if gateways on other hosts cannot open connections to it
    - `folder`: folder for our files there; None: `~/.cache/tradewind`
    - `raise_tcp_buffers`: True if a split proxy may raise its kernel's maxima of TCP buffers, which needs root
    """

    name: str
    region: str
    address: str
    port: int = 0
    egress_gbps: float | None = None
    ingress_gbps: float | None = None
    usd_per_hour: float = 0.0
    gateways: int = 1
    inbound: bool = True
    folder: str | None = None
    raise_tcp_buffers: bool = False

    def document(self) -> dict[str, Any]:
        """Return the host as a JSON object, which has no secrets."""
        return {field.name: getattr(self, field.name) for field in fields(SshHost)}


@dataclass(frozen=True, slots=True)
class SshHosts:
    """All hosts, and the file of ssh's own settings; None: those that `ssh` reads by itself."""

    hosts: tuple[SshHost, ...]
    ssh_config: str | None = None

    @property
    def regions(self) -> list[str]:
        """The regions that have hosts, sorted."""
        return sorted({host.region for host in self.hosts})

    def document(self) -> dict[str, Any]:
        """Return the hosts as a JSON object."""
        return {"hosts": [host.document() for host in self.hosts], "ssh_config": self.ssh_config}


NO_HOSTS = SshHosts(())
"""No host is configured."""


def hosts_from_document(document: Mapping[str, Any]) -> SshHosts:
    """Return the hosts of `SshHosts.document`."""
    return SshHosts(tuple(SshHost(**host) for host in document["hosts"]), document.get("ssh_config"))


def read_hosts(table: Mapping[str, Any], place: str) -> SshHosts:
    """Return the hosts of the table `[ssh]` of a configuration. `place` names it in errors. Raises ConfigError."""
    if unknown := sorted(table.keys() - {"hosts", "config"}):
        raise ConfigError(f"{place}: [ssh] has no setting {unknown[0]!r}", hint="it has hosts and config")
    entries, config = table.get("hosts", []), table.get("config")
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise ConfigError(f"{place}: ssh.hosts must be tables", hint="begin each host with [[ssh.hosts]]")
    if config is not None and not isinstance(config, str):
        raise ConfigError(f"{place}: ssh.config must be the path of a file")
    hosts = tuple(_host(entry, f"{place}, [[ssh.hosts]] {number}") for number, entry in enumerate(entries, 1))
    names = [host.name for host in hosts]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{place}: two [[ssh.hosts]] are called {twice!r}")
    return SshHosts(hosts, config)


def _host(entry: Mapping[str, Any], place: str) -> SshHost:
    if unknown := sorted(entry.keys() - _KEYS):
        raise ConfigError(f"{place}: unknown setting {unknown[0]!r}", hint=f"known: {', '.join(sorted(_KEYS))}")
    name, region = _text(entry, "name", place), _text(entry, "region", place)
    if not re.fullmatch(_NAME, name):
        raise ConfigError(f"{place}: {name!r} is not a name that ssh accepts", hint="for example lab-1 or user@lab-1")
    try:
        region = str(Region.parse(region))
    except ValueError as error:
        raise ConfigError(f"{place}: region: {error}") from None
    address = _text(entry, "address", place) if "address" in entry else name.rpartition("@")[2]
    usd_per_hour = entry.get("usd_per_hour", 0)
    if not isinstance(usd_per_hour, (int, float)) or isinstance(usd_per_hour, bool) or not 0 <= usd_per_hour < 1e6:
        raise ConfigError(f"{place}: usd_per_hour must be a price, not {usd_per_hour!r}", hint="for example 0.45")
    return SshHost(
        name,
        region,
        address,
        _number(entry, "port", place, 0, PORT_MAX, default=0),
        _gbps(entry, "egress", place),
        _gbps(entry, "ingress", place),
        float(usd_per_hour),
        _number(entry, "gateways", place, 1, GATEWAYS_MAX, default=1),
        _switch(entry, "inbound", place, default=True),
        _text(entry, "folder", place) if "folder" in entry else None,
        _switch(entry, "raise_tcp_buffers", place, default=False),
    )


def _switch(entry: Mapping[str, Any], key: str, place: str, *, default: bool) -> bool:
    value = entry.get(key, default)
    if not isinstance(value, bool):
        raise ConfigError(f"{place}: {key} must be true or false, not {value!r}")
    return value


def _text(entry: Mapping[str, Any], key: str, place: str) -> str:
    text = entry.get(key)
    if not isinstance(text, str) or not text or any(ord(character) < 32 for character in text):
        raise ConfigError(f"{place}: {key} must be text", hint=f'for example {key} = "…"')
    return text


def _number(entry: Mapping[str, Any], key: str, place: str, least: int, most: int, *, default: int) -> int:
    number = entry.get(key, default)
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise ConfigError(f"{place}: {key} must be a whole number from {least} to {most}, not {number!r}")
    return number


def _gbps(entry: Mapping[str, Any], key: str, place: str) -> float | None:
    if key not in entry:
        return None
    try:
        gbps = parse_rate(_text(entry, key, place)) * 8 / 1e9
    except UsageError as error:
        raise ConfigError(f"{place}: {key}: {error}") from None
    if gbps <= 0:
        raise ConfigError(f"{place}: {key} must be above 0")
    return gbps


def in_region(hosts: Sequence[SshHost], region: str) -> list[SshHost]:
    """Return the hosts of a region, in the order of the configuration."""
    return [host for host in hosts if host.region == region]
