"""Networks of IP addresses: which are public, and which give credentials to machines."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal

from tradewind.errors import UsageError

__all__ = ["METADATA_NETWORKS", "NetworkKind", "is_public", "network_kind", "parse_address", "parse_network"]

#: IPv6 networks that lead to IPv4 addresses: NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056), Teredo (RFC 4380),
#: IPv4-translated addresses (RFC 2765), and IPv4-compatible ones.
TRANSLATED = ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::ffff:0:0:0/96", "::/96")
#: Addresses that Python takes for public: site-local ones (RFC 3879), those for segment routing (RFC 9602), those of
#: protocols (RFC 6890) with Oracle's metadata service, and Azure's service for its machines.
INTERNAL = ("fec0::/10", "5f00::/16", "192.0.0.0/24", "168.63.129.16/32")
NOT_PUBLIC = tuple(map(ip_network, TRANSLATED + INTERNAL))
#: Instance metadata: link-local addresses of all clouds, AWS over IPv6, Alibaba, Oracle, Azure's service for machines.
METADATA_NETWORKS = tuple(
    ip_network(text)
    for text in (
        *("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "fd20:ce::/32"),
        *("100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32"),
    )
)
NetworkKind = Literal["public", "private", "loopback", "special"]


def parse_address(text: str) -> IPv4Address | IPv6Address:
    """Return an IP address, without brackets and zone. An IPv4 address inside an IPv6 one counts as itself.

    Raises ValueError.
    """
    address = ip_address(text.strip("[]").partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def parse_network(text: str) -> str:
    """Return a network of the form `10.0.0.0/8`. Raises UsageError."""
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise UsageError(f"{text}: {error}", hint="for example 10.0.0.0/8") from None


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is one of the internet, to which no network of its own leads."""
    return address.is_global and not address.is_multicast and not any(address in network for network in NOT_PUBLIC)


def network_kind(address: IPv4Address | IPv6Address) -> NetworkKind:
    """Return the kind of network of an address. Those of metadata, links, groups and translations are `special`."""
    if is_public(address):
        return "public"
    if address.is_loopback:
        return "loopback"
    is_special = address.is_link_local or address.is_unspecified or address.is_multicast
    if is_special or any(address in network for network in (*METADATA_NETWORKS, *NOT_PUBLIC)):
        return "special"
    return "private"
