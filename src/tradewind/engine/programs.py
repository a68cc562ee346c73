"""Facts for machines in a cloud: where they download the gateway program, and from where home reaches them."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Iterator
from hashlib import sha256
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from tradewind.errors import UsageError
from tradewind.model.sites import FleetTable

__all__ = ["PROCESSORS", "home_network", "program_documents"]

#: Processors that machines may have, as `uname -m` names them, with other names for the same.
PROCESSORS = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
PROGRAM = "tradewind-gateway"
READ_BYTES = 1 << 20
#: Address beyond the local network, for which the kernel chooses the address of this machine. Nothing is sent there.
FAR_ADDRESS = "192.0.2.1"
#: Service that answers with the address from which it is asked. AWS runs it.
ADDRESS_SERVICE = "https://checkip.amazonaws.com"
ADDRESS_S = 5.0
"""Timeout of the address service."""
ADDRESS_BYTES_MAX = 100
"""Maximum length of its answer."""


def program_documents(fleet: FleetTable, gateway: str) -> list[dict[str, Any]]:
    """Return URL and SHA-256 of the gateway program for each processor, as the clouds' providers take them.

    Without a folder of programs in the settings it is this machine's program, for its own processor.
    Raises UsageError.
    """
    if fleet.program_url is None:
        raise UsageError(
            "machines in a cloud download the gateway program, and the configuration does not say from where",
            hint="upload it, and set program_url in [fleet] (docs/guides/fleet.md)",
        )
    found = dict(_programs(fleet, gateway))
    if len(found) > 1 and "{processor}" not in fleet.program_url and "{sha256}" not in fleet.program_url:
        raise UsageError(
            f"{fleet.programs} has programs for {' and '.join(found)}, and program_url is the same for all",
            hint="write {processor} where the URL differs",
        )
    return [
        {"processor": processor, "url": _url(fleet.program_url, processor, digest), "sha256": digest}
        for processor, digest in found.items()
    ]


def _url(pattern: str, processor: str, digest: str) -> str:
    return pattern.replace("{processor}", processor).replace("{sha256}", digest)


def _programs(fleet: FleetTable, gateway: str) -> Iterator[tuple[str, str]]:
    """Yield processor and SHA-256 of each program. Raises UsageError if there is none."""
    if fleet.programs is None:
        machine = platform.machine().lower()
        if machine not in PROCESSORS:
            raise UsageError(
                f"no cloud has machines with this machine's processor, {machine}",
                hint="set programs in [fleet] to a folder with the programs for x86_64 and aarch64",
            )
        yield PROCESSORS[machine], _digest(Path(gateway))
        return
    folder = Path(os.path.expanduser(fleet.programs))
    paths = {name: folder / f"{PROGRAM}-{name}" for name in sorted(set(PROCESSORS.values()))}
    there = {name: path for name, path in paths.items() if path.is_file()}
    if not there:
        raise UsageError(
            f"{folder} has no gateway program",
            hint=f"it should have {' or '.join(path.name for path in paths.values())}",
        )
    for name, path in there.items():
        yield name, _digest(path)


def _digest(path: Path) -> str:
    digest = sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(READ_BYTES):
                digest.update(block)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="the gateway program must be readable") from None
    return digest.hexdigest()


def home_network(fleet: FleetTable, service: str = ADDRESS_SERVICE) -> str:
    """Return the addresses from which this machine opens connections, as CIDR, for the clouds' firewalls.

    That is the setting, else this machine's own IPv4 address if it is public, else what the address service sees. It
    is never the whole internet. Machines in clouds have no IPv6 addresses, so none reaches them. Raises UsageError if
    no public address is found.
    """
    if fleet.home_cidr is not None:
        return fleet.home_cidr
    own = _own_address()
    if own is not None and own.is_global:
        return f"{own}/32"
    seen = _seen_address(service)
    if seen is None or not seen.is_global:
        raise UsageError(
            "the public address of this machine, which the cloud's firewall must admit, cannot be determined",
            hint='set home_cidr in [fleet], for example home_cidr = "203.0.113.7/32"',
        )
    return f"{seen}/32"


def _own_address() -> IPv4Address | None:
    """Return this machine's address on the route to a far one; None without a route."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.connect((FAR_ADDRESS, 9))
            return IPv4Address(asked.getsockname()[0])
    except (OSError, ValueError):
        return None


def _seen_address(service: str) -> IPv4Address | None:
    """Return the IPv4 address that a service sees; None if it does not answer with one."""
    from urllib.request import urlopen

    try:
        with urlopen(service, timeout=ADDRESS_S) as answer:
            return IPv4Address(answer.read(ADDRESS_BYTES_MAX).decode("ascii").strip())
    except (OSError, ValueError):
        return None
