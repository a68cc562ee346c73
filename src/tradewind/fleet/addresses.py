"""Addresses of machines, as firewalls of clouds take them."""

from __future__ import annotations

import ipaddress
import socket

__all__ = ["addresses_of_name", "is_address", "is_ipv4"]


def is_address(text: str) -> bool:
    """Return whether a text is an IP address, and not a name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_ipv4(text: str) -> bool:
    """Return whether a text is an IPv4 address."""
    return is_address(text) and ":" not in text


def addresses_of_name(name: str) -> frozenset[str]:
    """Return the addresses of a host's name; none if it has none. Blocks until the resolver answers."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(str(address[0]) for *_, address in found)
