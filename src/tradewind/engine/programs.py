"""Facts for machines in a cloud: where they download the gateway program, and from where home reaches them."""

from __future__ import annotations

import ipaddress
import os
import platform
import socket
from typing import Any

from tradewind.errors import UsageError
from tradewind.gateway.binary import BINARY, PROCESSORS, GatewayProgram, gateway_program, portable_gateways
from tradewind.model.sites import FleetTable

__all__ = ["home_network", "program_documents"]

#: Names that systems have for the processors of PROCESSORS.
KNOWN_AS = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
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
    Raises UsageError, GatewayError if a program cannot be read.
    """
    if fleet.program_url is None:
        raise UsageError(
            "machines in a cloud cannot download the gateway program: program_url of [fleet] is not set",
            hint="upload the program, and set program_url to its URL (docs/guides/fleet.md)",
        )
    found = _programs(fleet, gateway)
    if len(found) > 1 and "{processor}" not in fleet.program_url and "{sha256}" not in fleet.program_url:
        processors = " and ".join(one.processor for one in found)
        raise UsageError(
            f"{fleet.programs} has programs for {processors}, and program_url is the same for all",
            hint="put {processor} or {sha256} into program_url",
        )
    return [{"processor": one.processor, "url": _url(fleet.program_url, one), "sha256": one.sha256} for one in found]


def _url(pattern: str, program: GatewayProgram) -> str:
    return pattern.replace("{processor}", program.processor).replace("{sha256}", program.sha256)


def _programs(fleet: FleetTable, gateway: str) -> list[GatewayProgram]:
    """Return the program for each processor. Raises UsageError if there is none, GatewayError if one is unreadable."""
    if fleet.programs is None:
        machine = platform.machine().lower()
        if machine not in KNOWN_AS:
            raise UsageError(
                f"no cloud has machines with this machine's processor, {machine}",
                hint="set programs in [fleet] to a folder with the programs for x86_64 and aarch64",
            )
        return [gateway_program(KNOWN_AS[machine], gateway)]
    folder = os.path.expanduser(fleet.programs)
    found = portable_gateways(folder)
    if not found:
        raise UsageError(
            f"{folder} has no gateway program",
            hint=f"it should have {' or '.join(f'{BINARY}-{name}' for name in PROCESSORS)}",
        )
    return sorted(found.values(), key=lambda program: program.processor)


def home_network(fleet: FleetTable, service: str = ADDRESS_SERVICE) -> str:
    """Return the addresses from which this machine opens connections, as CIDR, for the clouds' firewalls.

    That is the setting, else this machine's own address if it is public, else what the address service sees. It is
    never the whole internet, and never IPv6: the machines of clouds are dialled at their IPv4 addresses. Raises
    UsageError if no public address is found.
    """
    if fleet.home_cidr is not None:
        return fleet.home_cidr
    own = _own_address()
    if own is not None and own.is_global:
        return f"{own}/{own.max_prefixlen}"
    seen = _seen_address(service)
    if seen is None or not seen.is_global:
        raise UsageError(
            "the public address of this machine, which the cloud's firewall must admit, cannot be determined",
            hint='set home_cidr in [fleet], for example home_cidr = "203.0.113.7/32"',
        )
    return f"{seen}/{seen.max_prefixlen}"


def _own_address() -> ipaddress.IPv4Address | None:
    """Return this machine's address on the route to a far one; None without a route."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            asked.connect((FAR_ADDRESS, 9))
            return ipaddress.IPv4Address(asked.getsockname()[0])
    except (OSError, ValueError):
        return None


def _seen_address(service: str) -> ipaddress.IPv4Address | None:
    """Return the address that a service sees; None if it does not answer with one."""
    from urllib.request import urlopen

    try:
        with urlopen(service, timeout=ADDRESS_S) as answer:
            return ipaddress.IPv4Address(answer.read(ADDRESS_BYTES_MAX).decode("ascii").strip())
    except (OSError, ValueError):
        return None
