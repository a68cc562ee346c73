"""The destinations whose connections go through a proxy: their names, addresses and ports."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from tradewind.errors import UsageError
from tradewind.model.records import dataclass

__all__ = ["ALL_PATTERNS", "Destination", "names_of", "read_destinations"]

#: Most destinations of one command; more are refused.
DESTINATIONS_MAX = 256
PORT_MAX = 65_535
#: Patterns of the gateway program for every address. They leave out those of this machine and link.
ALL_PATTERNS = ("0.0.0.0/0:*", "[::/0]:*")


@dataclass(frozen=True, slots=True)
class Destination:
    """A host with one port, or with all."""

    host: str
    """A name or an address."""
    port: int | None
    """None: every port."""
    addresses: tuple[IPv4Address | IPv6Address, ...]
    """Its addresses when the command began."""

    def patterns(self) -> list[str]:
        """Return the patterns of the gateway program that match its name and its addresses."""
        port = "*" if self.port is None else self.port
        return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in self._hosts()]

    def _hosts(self) -> list[str]:
        return list(dict.fromkeys([self.host, *map(str, self.addresses)]))


def read_destinations(words: Sequence[str], *, resolve: bool) -> tuple[Destination, ...]:
    """Return the destinations of `HOST` or `HOST:PORT` words; IPv6 addresses with a port are in brackets.

    With `resolve`, each name must have an address. Raises UsageError.
    """
    if len(words) > DESTINATIONS_MAX:
        raise UsageError(f"--to: more than {DESTINATIONS_MAX} destinations")
    return tuple(_destination(word, resolve=resolve) for word in words)


def names_of(destinations: Iterable[Destination]) -> Mapping[str, str]:
    """Return the name of each address that has one, by `ADDRESS`, or `ADDRESS:PORT` of a destination with a port.

    An address and port of several destinations has the first one's, because nothing says which is meant.
    """
    first: dict[str, Destination] = {}
    for destination in destinations:
        for address in destination.addresses:
            first.setdefault(_at(address, destination.port), destination)
    return {at: one.host for at, one in first.items() if one.addresses[0].compressed != one.host}


def _at(address: IPv4Address | IPv6Address, port: int | None) -> str:
    if port is None:
        return str(address)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def _destination(word: str, *, resolve: bool) -> Destination:
    host, port = _split(word)
    address = _address(host)
    if address is not None:
        return Destination(str(address), port, (address,))
    return Destination(host.lower().removesuffix("."), port, _resolved(host, word, needed=resolve))


def _split(word: str) -> tuple[str, int | None]:
    if word.startswith("[") and "]" in word:
        host, _, rest = word[1:].partition("]")
        colon, text = rest[:1], rest[1:]
    elif _address(word) is not None:
        return word, None
    else:
        host, colon, text = word.partition(":")
    valid = text.isascii() and text.isdecimal() and 0 < int(text) <= PORT_MAX if colon == ":" else not colon
    if not host or not valid:
        raise UsageError(
            f"--to {word} is not a destination", hint="write HOST or HOST:PORT, such as data.example.org:443"
        )
    return host, int(text) if colon else None


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _resolved(host: str, word: str, *, needed: bool) -> tuple[IPv4Address | IPv6Address, ...]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        if not needed:
            return ()
        reason = getattr(error, "strerror", None) or "not a name"
        raise UsageError(
            f"--to {word}: {reason}", hint="only connections to known addresses can be redirected"
        ) from None
    # A link-local address of IPv6 has its interface after a percent sign.
    return tuple(dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in found))
