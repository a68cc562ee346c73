"""The requests of `/v1/jobs`: what a job may say, and its places as the service resolves them."""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tradewind.errors import UsageError
from tradewind.model.codec import AUTO, COMPRESSIONS, OFF, ZSTD_LEVEL_MAX
from tradewind.model.guest import Guest
from tradewind.model.job import MIN_CHUNK_BYTES
from tradewind.model.plan import ROUTES_ASKED_MAX
from tradewind.model.url import is_guest, parse_url
from tradewind.service.auth import Sender
from tradewind.service.connections import ResolvedPlace, is_of_connection, require_one_secret
from tradewind.service.limits import CHUNK_BYTES_MAX, MACHINES_MAX, PRIORITY_MAX
from tradewind.service.links import transfer_links
from tradewind.service.machines import JobVia
from tradewind.service.places import allowed_place, owned_places
from tradewind.service.problems import ApiProblem
from tradewind.service.quotes import quote_of
from tradewind.service.stores import real_place, store_and_path

if TYPE_CHECKING:
    from tradewind.service.app import Service

__all__ = ["ACTIVITY", "QUOTE_ID", "JobRequest", "job_of", "request_digest", "resolved_request"]

COMPRESSION = rf"^({OFF}|{AUTO}|lz4|zstd(:[1-{ZSTD_LEVEL_MAX}])?)$"
ACTIVITY = r"^[a-z0-9][a-z0-9-]{0,62}$"
QUOTE_ID = r"^q-[0-9a-f]{16}$"
Place = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+$")]
#: Fields that earlier versions did not have, with their defaults.
LATER_FIELDS: dict[str, Any] = {
    "quote": None,
    "chunk_bytes": None,
    "priority": 0,
    "activity": "default",
    "via": None,
    "max_cost_usd": None,
    "max_vms": None,
    "routes": None,
    "compression": OFF,
    "source_bytes": None,
    "deduplication": False,
    "deadline_s": None,
    "min_throughput_gbps": None,
}
#: Longest deadline [s], and largest rate that a job may ask for [Gbit/s].
DEADLINE_S_MAX, RATE_GBPS_MAX = 10**7, 10_000


class JobRequest(BaseModel):
    """A transfer: places, what to copy, and how; or a quote, and nothing else."""

    model_config = ConfigDict(extra="forbid")

    source: Place | None = Field(
        None, description="URL, absolute path, connection:NAME/PATH, or guest://NAME of a host that joins the job"
    )
    destination: Place | Annotated[list[Place], Field(min_length=1, max_length=16)] | None = Field(
        None, description="URL, absolute path, connection:NAME/PATH or guest://NAME, or up to 16 of the first three"
    )
    quote: Annotated[str, Field(pattern=QUOTE_ID)] | None = Field(None, description="id of a quote")
    verb: Literal["cp", "sync", "mv"] = "cp"
    recursive: bool = Field(False, description="everything below the source; sync always does")
    delete: bool = Field(False, description="sync: delete objects that the source does not have")
    verify: Literal["auto", "read"] = "auto"
    limit_bytes_per_s: Annotated[int, Field(ge=1, le=10**12)] | None = Field(None, description="maximum rate [bytes/s]")
    chunk_bytes: Annotated[int, Field(ge=MIN_CHUNK_BYTES, le=CHUNK_BYTES_MAX)] | None = Field(
        None, description="size of chunks and parts (default: chosen by the engine)"
    )
    stall_s: Annotated[int, Field(ge=1, le=3600)] = Field(
        60, description="time without progress before an attempt ends"
    )

    priority: Annotated[int, Field(ge=-PRIORITY_MAX, le=PRIORITY_MAX)] = Field(
        0, description="the tenant's jobs with a higher priority start first; one step is worth an hour of waiting"
    )
    activity: Annotated[str, Field(pattern=ACTIVITY)] = Field("default", description="kind of work, which has a weight")

    via: JobVia | None = Field(
        None, description="auto: on machines if that is faster; fleet: on machines; here: on the server's own machine"
    )
    max_cost_usd: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = Field(
        None, description="the most that all runs of a job on machines may cost together [USD]"
    )
    deadline_s: Annotated[float, Field(ge=1, le=DEADLINE_S_MAX, allow_inf_nan=False)] | None = Field(
        None, description="goal: the cheapest machines that end within this time after they were ordered [s]"
    )
    min_throughput_gbps: Annotated[float, Field(gt=0, le=RATE_GBPS_MAX, allow_inf_nan=False)] | None = Field(
        None, description="goal: the cheapest machines at this rate or more [Gbit/s]; default: the fastest for the cost"
    )
    max_vms: Annotated[int, Field(ge=1, le=MACHINES_MAX)] | None = Field(
        None, description="the most machines in each region"
    )
    routes: Annotated[int, Field(ge=1, le=ROUTES_ASKED_MAX)] | None = Field(
        None, description="the most routes between machines (default: as many as help)"
    )
    compression: Annotated[str, Field(pattern=COMPRESSION)] = Field(
        OFF, description=f"compression between machines: {COMPRESSIONS}; auto decides for each chunk by a sample"
    )
    deduplication: bool = Field(
        False, description="between machines: do not send bytes that the receiving machine still has from this job"
    )
    source_bytes: Annotated[int, Field(ge=0, le=1 << 62)] | None = Field(
        None, description="size of a source that is a guest's, which only the guest can count; a quote needs it"
    )

    @model_validator(mode="after")
    def _has_places_or_quote(self) -> JobRequest:
        if self.quote is not None and self.model_fields_set != {"quote"}:
            raise ValueError("a quote already has the request: leave out the other fields")
        if self.quote is None and (self.source is None or self.destination is None):
            raise ValueError("source and destination, or a quote, are required")
        if self.deadline_s is not None and self.min_throughput_gbps is not None:
            raise ValueError("deadline_s and min_throughput_gbps: one goal at a time")
        return self


def request_digest(body: JobRequest) -> str:
    """Return the SHA-256 of a request as it was sent.

    Fields of later versions count only if they are set: a request that is sent again after an update is the same.
    """
    given = {
        name: value
        for name, value in body.model_dump().items()
        if name not in LATER_FIELDS or value != LATER_FIELDS[name]
    }
    return sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()


def job_of(
    body: JobRequest, request: Request, sender: Sender
) -> tuple[dict[str, Any], list[str], list[tuple[str, str]], int | None]:
    """Return what `resolved_request` does, for a quote its own request; and the size, if it is known.

    Raises ApiProblem.
    """
    if body.quote is None:
        document, owned, links = resolved_request(body, request, sender)
        return document, owned, links, document.get("source_bytes") or _file_bytes(document["source"])
    with request.app.state.service.database.read() as connection:
        row = quote_of(connection, body.quote, sender.tenant)
    return json.loads(row["request"]), json.loads(row["owned"]), [], json.loads(row["view"]).get("volume_bytes")


def _file_bytes(source: str) -> int | None:
    """Return the size of a local file; None for a folder, or an object of a store."""
    if not source.startswith("/"):
        return None
    try:
        status = os.stat(source)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def resolved_request(
    body: JobRequest, request: Request, sender: Sender
) -> tuple[dict[str, Any], list[str], list[tuple[str, str]]]:
    """Return the request with resolved places, what it will own, and its pairs of regions.

    Raises UsageError, ApiProblem.
    """
    assert body.source is not None and body.destination is not None
    given = [body.destination] if isinstance(body.destination, str) else body.destination
    service = request.app.state.service
    sides = [("source", body.source), *(("destination", place) for place in given)]
    resolved = [_resolved(service, sender.tenant, field, place) for field, place in sides]
    named = _connections(resolved)
    if body.delete and body.verb != "sync":
        raise ApiProblem(422, "delete needs the verb sync", field="body.delete")
    recursive = body.recursive or body.verb == "sync"
    owned = _owned(resolved, recursive=recursive, with_sources=body.verb == "mv" or body.delete)
    source, *ends = [place.url for place in resolved]
    given_fields = body.model_dump(exclude={"quote"})
    document = {**given_fields, "source": source, "destination": ends, **named}
    if body.source_bytes is None:
        del document["source_bytes"]
    elif not is_guest(source):
        raise ApiProblem(422, "source_bytes: the service counts this source itself", field="body.source_bytes")
    document |= _guest_of(body, source, ends, service)
    service.settings.machines.via_of(document)
    return document, owned, transfer_links(source, ends)


def _guest_of(body: JobRequest, source: str, ends: Sequence[str], service: Service) -> dict[str, Any]:
    """Return the guest of a job, named for the process that runs it; nothing if it has none. Raises ApiProblem."""
    texts: dict[Literal["source", "destination"], Sequence[str]] = {"source": [source], "destination": ends}
    sides = [side for side, places in texts.items() if any(map(is_guest, places))]
    if not sides:
        return {}
    field = f"body.{sides[0]}"
    if service.settings.guest_address is None:
        raise ApiProblem(
            422,
            "this service takes no data from hosts of users, and sends none there",
            hint="`tradewind serve --guest-address` allows it; `--shared` names a path that the service can read",
            field=field,
        )
    if len(sides) > 1 or len(ends) > 1 or body.verb != "cp":
        raise ApiProblem(422, "a guest is one side of a cp with one destination", field=field)
    if (body.routes or 1) > 1 and len(service.settings.guest_addresses) == 1:
        raise ApiProblem(
            422,
            "a single route joins this host to the service, which has one address for hosts of users",
            hint="leave out `routes`; the operator can add a route with a further --guest-address",
            field="body.routes",
        )
    guest = Guest(f"g-{secrets.token_hex(8)}", sides[0], service.settings.guest_address)
    return {"guest": guest.document()}


def _owned(places: Sequence[ResolvedPlace], *, recursive: bool, with_sources: bool) -> list[str]:
    """Return the names of the places that a job writes: the source is the first of `places`."""
    source, *ends = places
    owned = set()
    for end in ends:
        if is_guest(end.url):
            continue  # No other job writes there.
        written = owned_places([source.url], [end.url], recursive=recursive, with_sources=False)
        owned |= {real_place(text, end.endpoint, is_connected=end.is_connected) for text in written}
    if with_sources:
        emptied = owned_places([source.url], [], recursive=recursive, with_sources=True)
        owned |= {real_place(text, source.endpoint, is_connected=source.is_connected) for text in emptied}
    return sorted(owned)


def _connections(places: Sequence[ResolvedPlace]) -> dict[str, Any]:
    """Return the connections of the places, with the endpoints that they have now, and the names of all stores.

    Returns nothing if there are no connections. Raises UsageError, ApiProblem.
    """
    endpoints = {place.connection: place.endpoint for place in places if place.connection is not None}
    if not endpoints:
        return {}
    for place in places:
        if place.connection is None and not place.url.startswith("/") and not is_guest(place.url):
            raise ApiProblem(
                422,
                f"{place.url}: a job with a connection cannot also use the server's credentials",
                hint="make a connection for this store, too",
            )
    require_one_secret({one.connection: parse_url(one.url).kind for one in places if one.connection is not None})
    (source, *ends), real = [place.connection for place in places], [_real_store(place) for place in places]
    return {"connections": {"source": source, "destination": ends, "endpoints": endpoints, "stores": real}}


def _real_store(place: ResolvedPlace) -> str:
    return store_and_path(real_place(place.url, place.endpoint, is_connected=place.is_connected))[0]


def _resolved(service: Service, tenant: str, field: str, place: str) -> ResolvedPlace:
    """Return a resolved place of a field. Raises ApiProblem with the field."""
    try:
        if is_guest(place):
            return ResolvedPlace(str(parse_url(place, cwd="/")))
        if is_of_connection(place):
            return service.connections.place_of(tenant, place)
        return ResolvedPlace(allowed_place(place, service.settings, tenant))
    except UsageError as error:
        raise ApiProblem(422, str(error), hint=error.hint, field=f"body.{field}") from None
