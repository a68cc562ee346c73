"""The program of one gateway. Mirrors `crates/contract/src/program.rs`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tradewind.model.document import known_fields
from tradewind.model.job import JobSpec
from tradewind.model.store import StoreSpec

#: Version of the contract; a gateway of another major version is refused.
CONTRACT_VERSION = 1
#: Most TCP connections of one hop.
CONNECTIONS_MAX = 64


@dataclass(frozen=True, slots=True)
class GatewayLimits:
    """Named limits of a gateway; see docs/reference/limits.md for what happens at each."""

    memory_bytes: int = 256 << 20
    store_requests_max: int = 64
    store_tries_max: int = 10
    store_retry_s: int = 120
    store_reach_s: int = 45
    store_idle_s: int = 30
    store_work_s: int = 3600
    peer_silence_s: int = 15
    request_s: int = 7_200


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """One route through the overlay. `nodes`: lead, source, relays…, sink; `share` in (0, 1]."""

    id: int
    nodes: tuple[str, ...]
    share: float
    usd_per_gb: float = 0.0


@dataclass(frozen=True, slots=True)
class HopSpec:
    """One outgoing bundle of `connections` TCP connections to gateway `to` at `address` (`ip:port`)."""

    to: str
    address: str
    connections: int


@dataclass(frozen=True, slots=True)
class Routes:
    """Body of `PUT /v1/routes`: all routes and hops of a running gateway from now on; the rest is for the lead."""

    routes: tuple[RouteSpec, ...]
    hops: tuple[HopSpec, ...] = ()
    ceiling_usd_per_gb: float | None = None
    rate_limit_bytes_per_s: int | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Routes:
        """From the contract's JSON."""
        known = known_fields(cls, document)
        known["routes"] = tuple(RouteSpec(**{**route, "nodes": tuple(route["nodes"])}) for route in document["routes"])
        known["hops"] = tuple(HopSpec(**hop) for hop in document.get("hops", ()))
        return cls(**known)


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


def _key_scope(document: Mapping[str, Any]) -> KeyScope:
    if document["kind"] == "object":
        return ObjectScope(document["key"])
    return PrefixScope(document["prefix"])


@dataclass(frozen=True, slots=True)
class Program:
    """Body of `PUT /v1/program`: the whole work of one gateway for one job.

    `reads`, `writes` (one scope for each of `sinks`) and `copies` say which keys a source or sink may touch; the lead
    takes them from its job. `seal_key_hex` is the one secret; it is kept out of the representation and of every file.
    """

    job_id: str
    node: str
    routes: tuple[RouteSpec, ...]
    hops: tuple[HopSpec, ...] = ()
    lead: JobSpec | None = None
    source: StoreSpec | None = None
    sinks: tuple[StoreSpec, ...] = ()
    reads: KeyScope | None = None
    writes: tuple[KeyScope, ...] = ()
    copies: CopyScope | None = None
    seal_key_hex: str | None = field(default=None, repr=False)
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    contract: int = CONTRACT_VERSION

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Program:
        """From the contract's JSON."""
        known = known_fields(cls, document)
        known["routes"] = tuple(RouteSpec(**{**route, "nodes": tuple(route["nodes"])}) for route in document["routes"])
        known["hops"] = tuple(HopSpec(**hop) for hop in document.get("hops", ()))
        known["sinks"] = tuple(StoreSpec.from_document(sink) for sink in document.get("sinks", ()))
        known["writes"] = tuple(_key_scope(scope) for scope in document.get("writes", ()))
        if document.get("reads") is not None:
            known["reads"] = _key_scope(document["reads"])
        if document.get("copies") is not None:
            copies = document["copies"]
            known["copies"] = CopyScope(copies["bucket"], _key_scope(copies["keys"]))
        known["limits"] = GatewayLimits(**document.get("limits", {}))
        if document.get("lead") is not None:
            known["lead"] = JobSpec.from_document(document["lead"])
        if document.get("source") is not None:
            known["source"] = StoreSpec.from_document(document["source"])
        return cls(**known)
