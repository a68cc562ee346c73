"""Requests to receivers of webhooks, whose URLs tenants choose.

The host is resolved once, every address must be allowed, and the connection goes to the first one. Redirects are not
followed, and proxies are not used. Without permission of the operator only public addresses are allowed, by HTTPS.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from ipaddress import IPv4Address, IPv6Address, ip_network
from urllib.parse import urlsplit

from tradewind.errors import UsageError
from tradewind.model.networks import is_public, parse_address
from tradewind.service.limits import DELIVERY_TIMEOUT_S
from tradewind.service.socket_deadline import SocketDeadline

__all__ = ["ReceiverError", "is_allowed", "post", "require_webhook_url"]


class ReceiverError(Exception):
    """A delivery has failed. The message is for the tenant, and names no address."""


def is_allowed(text: str, networks: Sequence[str]) -> bool:
    """Return whether an address is public, or in one of the operator's networks."""
    address = parse_address(text)
    return _is_in(address, networks) or is_public(address)


def _is_in(address: IPv4Address | IPv6Address, networks: Sequence[str]) -> bool:
    return any(address in ip_network(network) for network in networks)


def require_webhook_url(url: str, networks: Sequence[str]) -> None:
    """Raise UsageError unless a URL is HTTPS, or HTTP where the operator allows networks, without a user name."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UsageError(f"{url}: not a URL") from None
    if parts.scheme not in (("https", "http") if networks else ("https",)):
        hint = "`tradewind serve --allow-webhook-network` allows http:// to networks of the operator"
        raise UsageError(f"{url}: not an https:// URL", hint=hint)
    if not parts.hostname or parts.username is not None or parts.fragment or port == 0 or not url.isascii():
        raise UsageError(f"{url}: the URL needs a host, and no user name or fragment")
    with suppress(ValueError):
        if not is_allowed(parts.hostname, networks):
            raise UsageError(f"{url}: not a public address")


def post(url: str, body: bytes, headers: Mapping[str, str], networks: Sequence[str]) -> None:
    """Send a body. Raises ReceiverError unless the answer is 200 to 299."""
    parts = urlsplit(url)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    address = _resolved(host, port, networks, is_tls=is_tls)
    connection = HTTPConnection(host, port, timeout=DELIVERY_TIMEOUT_S)
    try:
        with SocketDeadline(DELIVERY_TIMEOUT_S) as deadline:
            plain = socket.create_connection((address, port), timeout=DELIVERY_TIMEOUT_S)
            with closing(plain):
                deadline.watch(plain)
                tls = ssl.create_default_context() if is_tls else None
                connection.sock = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
                path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                connection.request("POST", path, body, dict(headers))
                status = connection.getresponse().status
    except ssl.SSLError:
        raise ReceiverError("TLS failed") from None
    except TimeoutError:
        raise ReceiverError("no answer in time") from None
    except (OSError, HTTPException, ValueError):
        raise ReceiverError("no answer") from None
    finally:
        connection.close()
    if not 200 <= status <= 299:
        raise ReceiverError(f"answered {status}")


def _resolved(host: str, port: int, networks: Sequence[str], *, is_tls: bool) -> str:
    """Return the first address of a host. Raises ReceiverError if any is not allowed, so that none is tried by luck."""
    try:
        found = [str(one[4][0]) for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        raise ReceiverError("the host has no address") from None
    if not all(is_allowed(address, networks) for address in found):
        raise ReceiverError("the address is not allowed")
    if not is_tls and not all(_is_in(parse_address(address), networks) for address in found):
        raise ReceiverError("plain HTTP is not allowed to this address")
    return found[0]
