"""Endpoints of S3-compatible servers that connections of tenants may name.

The operator names each of them, because the server sends requests there from its own network. Addresses that give
credentials to machines are refused, even from the operator.
"""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from tradewind.errors import UsageError

__all__ = ["canonical_endpoint", "require_endpoint"]

#: Instance metadata: link-local addresses of all clouds, AWS over IPv6, Alibaba, Oracle, Azure's service for machines.
METADATA_NETWORKS = tuple(
    ip_network(text)
    for text in (
        *("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "fd20:ce::/32"),
        *("100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32"),
    )
)
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
        raise UsageError(f"{url}: instance metadata is no store")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + ("" if port is None else f":{port}")


def require_endpoint(url: str, allowed: tuple[str, ...]) -> str:
    """Return the canonical form of an endpoint that the operator allows. Raises UsageError for any other."""
    endpoint = canonical_endpoint(url)
    if endpoint not in allowed:
        raise UsageError(
            f"{endpoint}: the operator has not allowed this endpoint",
            hint="`tradewind serve --allow-endpoint` allows one; leave it out for the public clouds",
        )
    return endpoint


def _is_metadata(host: str) -> bool:
    if host.lower() in METADATA_HOSTS:
        return True
    with suppress(ValueError):
        address = ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in METADATA_NETWORKS)
    return False
