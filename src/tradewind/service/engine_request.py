"""The engine's request for a job of the service."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.engine.proposal import Request
from tradewind.engine.request import Options
from tradewind.errors import UsageError
from tradewind.model.codec import AUTO, OFF
from tradewind.model.guest import Guest
from tradewind.model.job import DEFAULT_CHUNK_BYTES, lowest_limit
from tradewind.model.records import replace
from tradewind.model.store import Access
from tradewind.service.connections import ConnectionUse
from tradewind.service.machines import HERE_ONLY, MachineRules, placed_request

__all__ = ["bytes_per_s", "engine_request", "granted_bytes_per_s", "guest_of", "limited", "with_rate_limit"]

ADDRESS_HINT = "the operator can restart all servers with --guest-address"


def engine_request(
    document: Mapping[str, Any],
    use: ConnectionUse | None = None,
    rules: MachineRules = HERE_ONLY,
    guest: Guest | None = None,
) -> Request:
    """Return the engine's request for a job's document, with its connections, machines and guest. Raises UsageError."""
    verb, compression = document["verb"], document.get("compression", OFF)
    options = Options(
        recursive=document["recursive"] or verb == "sync",
        compare="auto" if verb == "sync" else None,
        delete=document["delete"],
        delete_source=verb == "mv",
        verify=document["verify"],
        limit_bytes_per_s=document["limit_bytes_per_s"],
        stall_s=document["stall_s"],
        max_bytes=document.get("max_bytes"),
        chunk_bytes=document.get("chunk_bytes") or DEFAULT_CHUNK_BYTES,
        read_requests_start=document.get("read_requests_start"),
        write_requests_start=document.get("write_requests_start"),
        compress=compression != OFF,
        codec=AUTO if compression == OFF else compression,
        deduplicate=document.get("deduplication", False),
    )
    if use is not None:
        ends = use.destinations
        options = replace(options, source=use.source, destination=ends[0] if len(ends) == 1 else ends)
    options = _with_resolved_roots(options)
    if guest is not None:
        options = _with_guest(options, guest.side, has_own_keys=use is None)
    request = Request(
        document["source"],
        tuple(document["destination"]),
        options,
        verb,
        guest=guest,
    )
    return placed_request(request, document, rules, None if use is None else use.credentials)


def guest_of(document: Mapping[str, Any], addresses: Sequence[str]) -> Guest | None:
    """Return the guest of a job's document, which reaches this server at `addresses`; None if the job has none.

    The job uses as many of them as it asks for routes. Another server may have accepted it, at its own addresses.
    Raises UsageError without an address.
    """
    found = document.get("guest")
    if found is None:
        return None
    if not addresses:
        raise UsageError("hosts of users cannot reach the server of this job", hint=ADDRESS_HINT)
    first, *others = addresses[: document.get("routes") or 1]
    return replace(Guest.from_document(found), address=first, others=tuple(others))


def _with_resolved_roots(options: Options) -> Options:
    """Return the options of a job whose local paths were resolved when they were allowed.

    A tenant may be able to replace a folder by a link afterwards, also while the job runs.
    """
    ends = options.destination
    return replace(
        options,
        source=replace(options.source, resolved_root=True),
        destination=replace(ends, resolved_root=True)
        if isinstance(ends, Access)
        else tuple(replace(end, resolved_root=True) for end in ends),
    )


def _with_guest(options: Options, side: str, *, has_own_keys: bool) -> Options:
    """Return the options of a job whose places on one side are those of a guest.

    With the service's own keys, the guest reads no words of the store: they may name the account.
    """
    options, end = replace(options, server_side_copy=False), options.destination
    assert isinstance(end, Access)
    if side == "source":
        source, end = replace(options.source, has_guest=True), replace(end, hides_words=has_own_keys)
        return replace(options, source=source, destination=end)
    return replace(options, destination=replace(end, has_guest=True))


def limited(document: Mapping[str, Any], granted: str | None) -> Mapping[str, Any]:
    """Return a job's document with what it was granted: the requests that it begins with, and any limited rate."""
    grant = {} if granted is None else json.loads(granted)
    requests = grant.get("requests")
    if requests is not None:
        starts = {"read_requests_start": requests["read"], "write_requests_start": requests["write"]}
        document = {**document, **starts}
    limit = lowest_limit(document["limit_bytes_per_s"], granted_bytes_per_s(granted))
    return {**document, "limit_bytes_per_s": limit}


def granted_bytes_per_s(granted: str | None) -> int | None:
    """Return the maximum rate of the run that was granted [bytes/s]; None if nothing on its routes limits it."""
    grant = {} if granted is None else json.loads(granted)
    return bytes_per_s(grant["rate_gbps"]) if grant.get("is_limited") else None


def bytes_per_s(gbps: float) -> int:
    """Return a maximum rate in bytes/s."""
    return max(1, round(gbps * 1e9 / 8))


def with_rate_limit(request: Request, limit_bytes_per_s: int) -> Request:
    """Return a request with a maximum rate beside its own."""
    limit = lowest_limit(request.options.limit_bytes_per_s, limit_bytes_per_s)
    return replace(request, options=replace(request.options, limit_bytes_per_s=limit))
