"""Addresses of transfer services: which are used, and requests to them without redirects."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tradewind.errors import UsageError

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import OpenerDirector, Request

__all__ = ["direct_opener", "service_address"]


def service_address(url: str, why_encrypted: str) -> str:
    """Return the address of a service without a slash at its end.

    Raises UsageError, also for http to another host than this one: `why_encrypted` says what that would allow.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url}: not an address of a service", hint="for example https://transfers.example.org")
    try:
        host = urlsplit(url).hostname or ""
    except ValueError as error:
        raise UsageError(f"{url}: {error}", hint="for example https://transfers.example.org") from None
    if url.startswith("http://") and not _is_loopback(host):
        raise UsageError(f"{url}: {why_encrypted}", hint="use an address with https://")
    return url.rstrip("/")


def direct_opener(on_connected: Callable[[str | None], None] = lambda _: None) -> OpenerDirector:
    """Return an opener that refuses redirects, which lead to an address that was not checked, as an HTTPError.

    Plain HTTP is only to this host, so it uses no proxy, which would read the token. `on_connected` gets the IP address
    of each connection, and None for one through a proxy.
    """
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, ProxyHandler, build_opener, getproxies

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            """Return no request: the redirect becomes an HTTPError."""

    class Seen(HTTPConnection):
        has_proxy = False

        def set_tunnel(self, *words: Any, **named: Any) -> None:
            self.has_proxy = True
            super().set_tunnel(*words, **named)

        def connect(self) -> None:
            super().connect()
            on_connected(None if self.has_proxy else self.sock.getpeername()[0])

    class SeenTls(Seen, HTTPSConnection):
        pass

    class Plain(HTTPHandler):
        def http_open(self, request: Request) -> HTTPResponse:
            return self.do_open(Seen, request)

    class Tls(HTTPSHandler):
        def https_open(self, request: Request) -> HTTPResponse:
            return self.do_open(SeenTls, request)

    proxies = {kind: address for kind, address in getproxies().items() if kind == "https"}
    return build_opener(NoRedirect, Plain, Tls, ProxyHandler(proxies))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
