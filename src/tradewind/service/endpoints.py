"""Endpoints of servers other than the public clouds that connections of tenants may name.

The operator names each of them, because the server sends requests there from its own network. Addresses that give
credentials to machines are refused, even from the operator.
"""

from __future__ import annotations

from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from socket import inet_aton
from urllib.parse import urlsplit

from tradewind.errors import UsageError
from tradewind.model.networks import METADATA_NETWORKS
from tradewind.model.url import parse_url

__all__ = ["canonical_endpoint", "require_endpoint"]

#: Addresses whose last 32 bits are one of IPv4: compatible, mapped, and NAT64.
IPV4_INSIDE = tuple(ip_network(text) for text in ("::/96", "::ffff:0:0/96", "64:ff9b::/96"))
METADATA_HOSTS = (
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
)


def canonical_endpoint(url: str) -> str:
    """Return an endpoint as `scheme://host[:port]`. Raises UsageError for anything else, and for instance metadata."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(f"{url}: not a URL") from None
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or port == 0:
        raise UsageError(f"{url}: not an endpoint", hint="for example https://s3.example.org")
    if parts.username is not None or parts.path.strip("/") or parts.query or parts.fragment:
        raise UsageError("the endpoint has more than a scheme, a host and a port")
    if _is_metadata(host):
        raise UsageError(f"{url}: instance metadata is not a store")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + ("" if port is None else f":{port}")


def require_endpoint(url: str, allowed: tuple[str, ...], place: str) -> str:
    """Return the canonical form of an endpoint that the operator allows. Raises UsageError for any other.

    That of an Azure place may end with the account, as emulators have it; the operator allows it without.
    """
    account = parse_url(place, cwd="/").root.split("/")[2] if place.startswith("az://") else ""
    server = url.rstrip("/").removesuffix(f"/{account}") if account else url
    endpoint = canonical_endpoint(server)
    if endpoint not in allowed:
        raise UsageError(
            f"{endpoint}: the operator has not allowed this endpoint",
            hint="`tradewind serve --allow-endpoint` allows one; leave it out for the public clouds",
        )
    return endpoint if server == url.rstrip("/") else f"{endpoint}/{account}"


def _is_metadata(host: str) -> bool:
    if host.lower() in METADATA_HOSTS:
        return True
    address = _address(host)
    return address is not None and any(address in network for network in METADATA_NETWORKS)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that resolvers read from a host without asking anybody; None for a name.

    Resolvers also read `2852039166`, `0xa9fea9fe` and `169.254.43518`. IPv6 has forms that lead to IPv4.
    """
    with suppress(OSError):
        return IPv4Address(inet_aton(host))
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        inside = IPv4Address(int(address) & 0xFFFFFFFF) if any(address in one for one in IPV4_INSIDE) else None
        return address.sixtofour or inside or address
    return address
