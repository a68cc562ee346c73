"""The split proxy of one gateway: its program, and its status. Mirrors `crates/contract/src/split.rs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tradewind.model.document import Document
from tradewind.model.program import CONTRACT_VERSION
from tradewind.model.records import dataclass, field

__all__ = [
    "SplitHop",
    "SplitLimits",
    "SplitListener",
    "SplitProgram",
    "SplitRoute",
    "SplitState",
    "SplitStatus",
    "SplitTraffic",
    "SplitWay",
]

SplitWay = Literal["forward", "socks5", "connect", "sni", "transparent", "hop"]
"""The way in which a listener learns the destination; `hop` is for other proxies of the fleet."""
SplitState = Literal["running", "draining", "ended"]


@dataclass(frozen=True, slots=True)
class SplitRoute:
    """The proxies `through` which flows to some destinations go, from the next one to the exit. Empty: direct."""

    destination: str
    through: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SplitListener:
    """One listener, at `listen`: `ip:port`, where port 0 lets the kernel choose, or `data` for the gateway's data port.

    `destination` (`host:port`) is for `forward`, `port` for `sni`. `tokens` are the clients of `socks5` and `connect`:
    name, and SHA-256 of the token in hexadecimal. `clients` are networks; empty means any, if the way allows that.
    Flows are counted under `name`. `routes` come before those of the program. `callers` are the proxies that `hop`
    serves, each with patterns of the destinations of its flows; None for every proxy of the fleet.
    """

    listen: str
    way: SplitWay
    destination: str | None = None
    port: int | None = None
    tokens: Mapping[str, str] | None = None
    clients: tuple[str, ...] = ()
    proxy_protocol: bool = False
    name: str | None = None
    routes: tuple[SplitRoute, ...] = ()
    callers: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class SplitLimits:
    """Limits of a split proxy. None is the default of the gateway.

    `pool` connections are kept ready for each next proxy, until they are `pool_age_ms` old, or no flow has come for
    `pool_idle_ms`.
    """

    connections_max: int | None = None
    connections_per_client_max: int | None = None
    connections_per_proxy_max: int | None = None
    connections_per_destination_max: int | None = None
    accepts_per_second_max: int | None = None
    accepts_per_second_per_client_max: int | None = None
    accepts_per_second_per_destination_max: int | None = None
    accepts_per_second_of_strangers_max: int | None = None
    bytes_per_second_per_client_max: int | None = None
    bytes_per_second_per_destination_max: int | None = None
    request_timeout_ms: int | None = None
    dial_timeout_ms: int | None = None
    idle_timeout_ms: int | None = None
    drain_timeout_ms: int | None = None
    pool: int | None = None
    pool_age_ms: int | None = None
    pool_idle_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SplitProgram(Document):
    """Body of `PUT /v1/split`. `proxies` are names in certificates and addresses, `allow` patterns of destinations.

    `probes` are the next proxies to which it connects every few seconds, to know that they can be reached.
    """

    listeners: tuple[SplitListener, ...]
    allow: tuple[str, ...]
    proxies: Mapping[str, str] = field(default_factory=dict)
    routes: tuple[SplitRoute, ...] = ()
    limits: SplitLimits = field(default_factory=SplitLimits)
    proxy_protocol: tuple[str, ...] = ()
    congestion_control: str | None = None
    probes: tuple[str, ...] = ()
    contract: int = CONTRACT_VERSION


@dataclass(frozen=True, slots=True)
class SplitTraffic:
    """The established flows of one listener and route to one destination, and those that `failed` before that.

    `bytes_up` go to the destination, `bytes_down` to the client. `destination` and `listener` are None for the flows of
    all kinds beyond those that the gateway counts one by one; a listener without a name has None, too.
    """

    through: tuple[str, ...]
    connections: int
    bytes_up: int
    bytes_down: int
    destination: str | None = None
    listener: str | None = None
    failed: int = 0


@dataclass(frozen=True, slots=True)
class SplitHop:
    """Connections that were opened to one of the next proxies, and the time of their TCP handshakes.

    `ready` are kept for flows now, and `dead` broke before one took them. `taken` are flows that took one, `missed`
    those that opened theirs. `first_byte_ms_…` is the median time from the client's request to the first byte from the
    destination, over the latest flows. `failures` connections could not be opened since one was; `failure` says why.
    """

    dialed: int
    connect_ms_min: float
    connect_ms_last: float
    ready: int = 0
    taken: int = 0
    missed: int = 0
    dead: int = 0
    first_byte_ms_taken: float | None = None
    first_byte_ms_missed: float | None = None
    failures: int = 0
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class SplitStatus(Document):
    """Answer of `PUT`, `GET` and `DELETE /v1/split`. Counts are since the start of the proxy.

    `listening` are the bound addresses in the order of the listeners. `closed`, `reset` and `idle` are flows by the
    way in which they ended; `refused` are connections by cause. `waiting` connections are kept ready by other proxies;
    `unused` ones were, and ended without a flow. Three are settings of the kernel.
    """

    state: SplitState
    listening: tuple[str, ...]
    open: int
    accepted: int
    closed: int
    reset: int
    idle: int
    refused: Mapping[str, int]
    bytes_up: int
    bytes_down: int
    traffic: tuple[SplitTraffic, ...]
    hops: Mapping[str, SplitHop]
    congestion_control: str | None = None
    receive_buffer_bytes_max: int | None = None
    send_buffer_bytes_max: int | None = None
    waiting: int = 0
    unused: int = 0
