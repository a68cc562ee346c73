"""The program of one gateway. Mirrors `crates/contract/src/program.rs`."""

from __future__ import annotations

from typing import ClassVar

from tradewind.model.document import Document
from tradewind.model.job import JobSpec
from tradewind.model.records import dataclass, field
from tradewind.model.store import StoreSpec

#: Version of the contract; a gateway of another major version is refused.
CONTRACT_VERSION = 2
#: Maximum TCP connections of one hop.
CONNECTIONS_MAX = 64
#: Memory that a program may give to a gateway.
MEMORY_BYTES_MIN, MEMORY_BYTES_MAX = 8 << 20, 1 << 40
#: Bytes that a program may let a sink keep for deduplication.
DEDUP_WINDOW_BYTES_MIN, DEDUP_WINDOW_BYTES_MAX = 1 << 20, 64 << 30
STORE_REQUESTS_MAX = 1024
STORE_TRIES_MAX = 100
#: Maximum of each time limit of a program.
TIMEOUT_S_MAX = 86_400


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Named limits of a gateway; docs/reference/limits.md describes their effects."""

    memory_bytes: int = 256 << 20
    dedup_window_bytes: int = 256 << 20
    store_requests_max: int = 64
    read_requests_start: int = 16
    write_requests_start: int = 16
    store_tries_max: int = 10
    store_retry_s: int = 120
    store_reach_s: int = 45
    store_idle_s: int = 30
    store_work_s: int = 3600
    peer_silence_s: int = 15
    request_s: int = 7_200

    @classmethod
    def bounds(cls, name: str) -> tuple[int, int]:
        """Return the smallest and largest value that a gateway accepts for a limit."""
        least, most = {
            "memory_bytes": (MEMORY_BYTES_MIN, MEMORY_BYTES_MAX),
            "dedup_window_bytes": (DEDUP_WINDOW_BYTES_MIN, DEDUP_WINDOW_BYTES_MAX),
            "store_requests_max": (1, STORE_REQUESTS_MAX),
            "read_requests_start": (1, STORE_REQUESTS_MAX),
            "write_requests_start": (1, STORE_REQUESTS_MAX),
            "store_tries_max": (1, STORE_TRIES_MAX),
        }.get(name, (1, TIMEOUT_S_MAX))
        return least, most


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """One route through the overlay. `nodes`: lead, source, relays…, sink; `share` in (0, 1]."""

    id: int
    nodes: tuple[str, ...]
    share: float
    usd_per_gb: float = 0.0


@dataclass(frozen=True, slots=True)
class HopSpec:
    """One outgoing bundle of `connections` TCP connections to gateway `to`.

    `address` is the data port of `to` (`ip:port`); None if `to` opens the connections to our data port.
    """

    to: str
    connections: int
    address: str | None = None


@dataclass(frozen=True, slots=True)
class DialSpec:
    """One incoming bundle of `connections` TCP connections that this gateway opens.

    `upstream` is the gateway at the other end, `address` its data port (`ip:port`).
    """

    upstream: str
    address: str
    connections: int


@dataclass(frozen=True, slots=True)
class Routes(Document):
    """Body of `PUT /v1/routes`: new routes, hops and dials of a running gateway; the other fields are for the lead."""

    routes: tuple[RouteSpec, ...]
    hops: tuple[HopSpec, ...] = ()
    dials: tuple[DialSpec, ...] = ()
    ceiling_usd_per_gb: float | None = None
    rate_limit_bytes_per_s: int | None = None


@dataclass(frozen=True, slots=True)
class ObjectScope:
    """One key of a store."""

    TAG: ClassVar[tuple[str, str]] = ("kind", "object")
    key: str


@dataclass(frozen=True, slots=True)
class PrefixScope:
    """The keys of a store that begin with `prefix`."""

    TAG: ClassVar[tuple[str, str]] = ("kind", "prefix")
    prefix: str


#: Keys that a gateway may touch for its job.
KeyScope = ObjectScope | PrefixScope


@dataclass(frozen=True, slots=True)
class CopyScope:
    """Objects that may be copied inside a store: these keys of this bucket."""

    bucket: str
    keys: KeyScope


@dataclass(frozen=True, slots=True)
class StoreUse:
    """A store of a gateway's program, with the keys that the gateway reads, writes, and may ask the store to copy."""

    store: StoreSpec
    reads: tuple[KeyScope, ...] = ()
    writes: tuple[KeyScope, ...] = ()
    copies: CopyScope | None = None


@dataclass(frozen=True, slots=True)
class Program(Document):
    """Body of `PUT /v1/program`: the whole work of one gateway for one job.

    `reads`, `writes` (one scope for each of `sinks`) and `copies` say which keys a source or sink may access; the lead
    gets them from its job. `seal_key_hex` is the only secret; it never appears in the representation or in a file.
    """

    job_id: str
    node: str
    routes: tuple[RouteSpec, ...]
    hops: tuple[HopSpec, ...] = ()
    dials: tuple[DialSpec, ...] = ()
    lead: JobSpec | None = None
    source: StoreSpec | None = None
    sinks: tuple[StoreSpec, ...] = ()
    reads: KeyScope | None = None
    writes: tuple[KeyScope, ...] = ()
    copies: CopyScope | None = None
    seal_key_hex: str | None = field(default=None, repr=False)
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    contract: int = CONTRACT_VERSION
