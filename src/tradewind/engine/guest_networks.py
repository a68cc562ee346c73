"""The addresses that a guest's gateway dials. The service names them, and must not look into networks of this host.

The owner of a run may be at a public address, or in the same kind of network as the service itself, as this host has
reached it: a service in the internet names nothing in a private network. One at a loopback address is on this host, or
this user has made a tunnel to it, so it may name private addresses, too. The user may allow further networks. Names are
refused, because they may mean another address a moment later; so are addresses of instance metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

from tradewind.errors import GatewayError
from tradewind.model.networks import network_kind, parse_address
from tradewind.model.units import format_count

__all__ = ["require_known_hosts", "require_reachable"]

#: Kinds of networks that an owner may be in besides public ones, by the kind of that of the service.
BESIDE = {"private": ("private",), "loopback": ("private", "loopback")}


def require_reachable(owner: str, service: str | None, allowed: Sequence[str] = ()) -> None:
    """Raise GatewayError for an owner, `HOST:PORT`, that this host does not dial.

    `service` is the IP address at which the service was reached; None if a proxy hides it. `allowed` are the networks
    that the user allows besides.
    """
    host = owner.rpartition(":")[0]
    try:
        address = parse_address(host)
    except ValueError:
        raise GatewayError(f"the service asks this host to connect to {host}, which is not an IP address") from None
    own = None if service is None else parse_address(service)
    near = () if own is None else BESIDE.get(network_kind(own), ())
    if address == own or network_kind(address) in ("public", *near):
        return
    if any(address in ip_network(network) for network in allowed):
        return
    raise GatewayError(
        f"the service asks this host to connect to {host}, which is in another network than the service itself",
        hint=f"nothing was sent there; if its gateways are there, add --allow-network {address}",
    )


def require_known_hosts(dialled: Sequence[str], owner: str, routes_max: int) -> None:
    """Raise GatewayError for connections to other hosts than the owner's, beyond one for each further route.

    The owner is one that `require_reachable` has accepted. None may be in a private network that the owner is not in.
    """
    host = owner.rpartition(":")[0]
    others = {address.rpartition(":")[0] for address in dialled} - {host}
    if len(others) >= routes_max:
        many = "another host" if routes_max == 1 else f"more than {format_count(routes_max, 'host')}"
        raise GatewayError(f"the service proposes a connection to {many}", hint="nothing was sent there")
    for other in others:
        if _network_of(other) not in ("public", _network_of(host)):
            raise GatewayError(f"the service proposes a connection into another network, to {other}")


def _network_of(host: str) -> str:
    """Return the kind of network of an IP address, as it stands before a port; its text for one like no other."""
    try:
        address = parse_address(host)
    except ValueError:
        return f"name {host}"
    kind = network_kind(address)
    return f"address {address}" if kind == "special" else kind
