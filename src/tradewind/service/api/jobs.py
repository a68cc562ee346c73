"""`/v1/jobs`: submit, list, show, pause, resume and cancel jobs; their events, objects and receipts."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tradewind.engine.jobs import OBJECTS_FILE
from tradewind.errors import JobNotFound, UsageError
from tradewind.model.codec import AUTO, COMPRESSIONS, OFF, ZSTD_LEVEL_MAX
from tradewind.model.job import MIN_CHUNK_BYTES
from tradewind.model.plan import ROUTES_ASKED_MAX
from tradewind.model.url import parse_url
from tradewind.service.auth import Sender, is_still_allowed, needs
from tradewind.service.connections import ResolvedPlace, is_of_connection, require_one_secret
from tradewind.service.events import EventCursor, event_stream
from tradewind.service.jobs import JobRow
from tradewind.service.limits import (
    CHUNK_BYTES_MAX,
    MACHINES_MAX,
    OBJECT_LINE_BYTES_MAX,
    PAGE_DEFAULT,
    PAGE_MAX,
    PRIORITY_MAX,
)
from tradewind.service.links import transfer_links
from tradewind.service.machines import JobVia
from tradewind.service.money import charges_of
from tradewind.service.places import allowed_place, owned_places, require_same_places
from tradewind.service.problems import ApiProblem
from tradewind.service.quotes import quote_of
from tradewind.service.receipts import figures, public_receipt
from tradewind.service.stores import real_place, store_and_path
from tradewind.service.tables import ENDED

if TYPE_CHECKING:
    from tradewind.service.app import Service

__all__ = ["ACTIVITY", "JOB_ID", "QUOTE_ID", "JobRequest", "resolved_request", "router"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
READ, WRITE = needs("jobs:read"), needs("jobs:write")
JOB_ID = r"^[a-z0-9-]{1,64}$"
COMPRESSION = rf"^({OFF}|{AUTO}|lz4|zstd(:[1-{ZSTD_LEVEL_MAX}])?)$"
ACTIVITY = r"^[a-z0-9][a-z0-9-]{0,62}$"
QUOTE_ID = r"^q-[0-9a-f]{16}$"
JobId = Annotated[str, Path(pattern=JOB_ID)]
Place = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+$")]
Key = Annotated[str, Header(alias="Idempotency-Key", min_length=1, max_length=255, pattern=r"^[!-~]+$")]
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
}
State = Literal["waiting", "running", "pausing", "stopping", "cancelling", "paused", "done", "failed", "cancelled"]
Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]


class JobRequest(BaseModel):
    """A transfer: places, what to copy, and how; or a quote, and nothing else."""

    model_config = ConfigDict(extra="forbid")

    source: Place | None = Field(None, description="URL, absolute path, or connection:NAME/PATH")
    destination: Place | Annotated[list[Place], Field(min_length=1, max_length=16)] | None = Field(
        None, description="URL, absolute path or connection:NAME/PATH, or up to 16 of them"
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
    max_vms: Annotated[int, Field(ge=1, le=MACHINES_MAX)] | None = Field(
        None, description="the most machines in each region"
    )
    routes: Annotated[int, Field(ge=1, le=ROUTES_ASKED_MAX)] | None = Field(
        None, description="the most routes between machines (default: as many as help)"
    )
    compression: Annotated[str, Field(pattern=COMPRESSION)] = Field(
        OFF, description=f"compression between machines: {COMPRESSIONS}; auto decides for each chunk by a sample"
    )

    @model_validator(mode="after")
    def _has_places_or_quote(self) -> JobRequest:
        if self.quote is not None and self.model_fields_set != {"quote"}:
            raise ValueError("a quote already has the request: leave out the other fields")
        if self.quote is None and (self.source is None or self.destination is None):
            raise ValueError("source and destination, or a quote, are required")
        return self


class JobView(BaseModel):
    """A job. Times are Unix times in ms; `waiting` says why it waits."""

    id: str
    state: State
    waiting: str | None
    created_unix_ms: int
    updated_unix_ms: int
    attempts: int
    error: str | None
    hint: str | None
    request: dict[str, Any]


class CompressionView(BaseModel):
    """What compression has saved so far: `sent_bytes` were sent for `data_bytes`.

    `ratio` is sent by data; null until bytes have arrived. A run whose server was killed is not counted.
    """

    codec: str
    data_bytes: int
    sent_bytes: int
    ratio: float | None


class EndView(BaseModel):
    """A job ends between these Unix times [ms] in 90% of cases."""

    earliest_unix_ms: int
    latest_unix_ms: int


class JobDetail(JobView):
    """A job with its figures: counts, proofs by kind, and the cost line by line.

    `eta` is null for a job that has ended, or whose end depends on people or on a store that is down. `routes` is the
    number of routes between machines in its plan; null on the server's own machine. `compression` is null if it is off.
    """

    eta: EndView | None
    counts: dict[str, Any] | None
    proofs: dict[str, int] | None
    ledger: dict[str, Any] | None
    routes: int | None
    compression: CompressionView | None


class JobPage(BaseModel):
    """Jobs, newest first. `next` is the cursor of the next page; null on the last one."""

    jobs: list[JobView]
    next: str | None


class ObjectPage(BaseModel):
    """Objects with their verdicts and proofs. `next` is the cursor of the next page; null if there are no more now."""

    objects: list[dict[str, Any]]
    next: str | None


@router.post("", status_code=201, response_model=JobView)
def submit(body: JobRequest, request: Request, response: Response, key: Key, sender: Sender = WRITE) -> dict[str, Any]:
    """Submit a job. The same key and body return the same job with 200; the same key with another body is refused."""
    service = request.app.state.service
    # Fields of later versions count only if they are set: a request that is sent again after an update is the same.
    given = {
        name: value
        for name, value in body.model_dump().items()
        if name not in LATER_FIELDS or value != LATER_FIELDS[name]
    }
    digest = sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
    row, is_new = service.queue.resubmitted(sender, key, digest), False
    if row is None:
        document, owned, links, size_bytes = _job_of(body, request, sender)
        traceparent = getattr(request.state, "traceparent", None)
        row, is_new = service.queue.submit(
            sender, key, digest, document, owned, links, size_bytes=size_bytes, traceparent=traceparent
        )
        service.runner.wake()
    request.state.traced_job = row.id
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = f"/v1/jobs/{row.id}"
    return _view(row)


@router.get("", response_model=JobPage)
def list_jobs(
    request: Request,
    cursor: Annotated[str | None, Query(pattern=JOB_ID)] = None,
    state: State | None = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = READ,
) -> Response:
    """List jobs, newest first."""
    queue = request.app.state.service.queue
    rows = queue.page(sender.tenant, before=cursor, state=state, limit=limit + 1)
    page = {"jobs": [_view(row) for row in rows[:limit]], "next": rows[limit - 1].id if len(rows) > limit else None}
    # The rows are valid: checking each of them against the model would take longer than all the rest.
    return Response(json.dumps(page), media_type="application/json")


@router.get("/{job_id}", response_model=JobDetail, responses={304: {"description": "It has not changed."}})
def show(
    job_id: JobId,
    request: Request,
    if_none_match: Annotated[str | None, Header(max_length=1000)] = None,
    sender: Sender = READ,
) -> Response:
    """Show a job with its counts, proofs and ledger. The ETag changes when any of these does."""
    row = request.app.state.service.queue.get(sender.tenant, job_id)
    document = {**_view(row), **_answers(request, row), **figures(_receipt(request, row))}
    text = json.dumps(document)
    tag = f'"{sha256(text.encode()).hexdigest()[:32]}"'
    if if_none_match is not None and tag in [one.strip().removeprefix("W/") for one in if_none_match.split(",")]:
        return Response(status_code=304, headers={"ETag": tag})
    return Response(text, media_type="application/json", headers={"ETag": tag})


@router.post("/{job_id}/pause", response_model=JobView, status_code=202)
def pause(job_id: JobId, request: Request, sender: Sender = WRITE) -> dict[str, Any]:
    """Pause a job at its next checkpoint."""
    return _changed(request, sender, job_id, {"waiting": "paused", "running": "pausing", "stopping": "pausing"})


@router.post("/{job_id}/resume", response_model=JobView, status_code=202)
def resume(job_id: JobId, request: Request, sender: Sender = WRITE) -> dict[str, Any]:
    """Continue a paused or failed job from its journal, if its places are still allowed."""
    service = request.app.state.service
    row = service.queue.get(sender.tenant, job_id)
    require_same_places(row.request, service.settings)
    service.connections.use_of(sender.tenant, row.request)
    return _changed(request, sender, job_id, {"paused": "waiting", "failed": "waiting"})


@router.post("/{job_id}/cancel", response_model=JobView, status_code=202)
def cancel(job_id: JobId, request: Request, sender: Sender = WRITE) -> dict[str, Any]:
    """Stop a job permanently, and abort its unfinished uploads. Copied objects stay."""
    moves = dict.fromkeys(("waiting", "running", "pausing", "stopping", "paused"), "cancelling")
    return _changed(request, sender, job_id, moves)


@router.delete("/{job_id}", response_model=JobView, status_code=202)
def delete(job_id: JobId, request: Request, sender: Sender = WRITE) -> dict[str, Any]:
    """Do the same as `cancel`. The record of the job stays."""
    return cancel(job_id, request, sender)


@router.get("/{job_id}/receipt")
def receipt(job_id: JobId, request: Request, sender: Sender = READ) -> dict[str, Any]:
    """Return what a job moved, how it was proven, its runs, its cost and what was charged for it.

    The receipt of a job that has ended is signed; `complete` says whether it is done. `tradewind receipt verify`
    checks it.
    """
    service = request.app.state.service
    row = service.queue.get(sender.tenant, job_id)
    found = _receipt(request, row)
    if found is None:
        raise ApiProblem(409, "the job has not started", hint="its receipt exists once it runs")
    with service.database.read() as connection:
        document = {**found, "charges": charges_of(connection, job_id)}
    signed: dict[str, Any] = service.receipt_key.signed(document) if row.state in ENDED else document
    return signed


@router.get("/{job_id}/objects", response_model=ObjectPage)
def objects(
    job_id: JobId,
    request: Request,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,15}$")] = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = READ,
) -> dict[str, Any]:
    """List the objects of a job with their verdicts, in the order in which they ended."""
    service = request.app.state.service
    row = service.queue.get(sender.tenant, job_id)
    if row.engine_job is None:
        return {"objects": [], "next": None}
    path = os.path.join(service.runner.engine.control.store.path(row.engine_job), OBJECTS_FILE)
    try:
        lines, place = _lines(path, int(cursor or 0), limit)
        found = [json.loads(line) for line in lines]
    except FileNotFoundError:
        if row.state in ENDED and _had_objects(_receipt(request, row)):
            raise ApiProblem(410, "the list of objects was removed", hint="the receipt has the counts") from None
        return {"objects": [], "next": None}
    except ValueError:
        raise ApiProblem(422, "cursor: not the `next` of an earlier page") from None
    return {"objects": found, "next": str(place) if len(lines) == limit else None}


@router.get(
    "/{job_id}/events",
    response_class=StreamingResponse,
    responses={200: {"description": "Events as they happen.", "content": {"text/event-stream": {}}}},
)
def events(
    job_id: JobId,
    request: Request,
    last_event_id: Annotated[str | None, Header(max_length=64)] = None,
    sender: Sender = READ,
) -> StreamingResponse:
    """Stream the events of a job, from the start or after `Last-Event-ID`, until it has ended."""
    service = request.app.state.service
    service.queue.get(sender.tenant, job_id)
    cursor = EventCursor() if last_event_id is None else EventCursor.parse(last_event_id)
    stream = event_stream(
        service.queue,
        service.runner.engine,
        service.watch,
        job_id,
        cursor,
        leave=service.streams.enter(sender.tenant),
        is_closing=lambda: service.is_closing,
        is_allowed=lambda: is_still_allowed(request, "jobs:read"),
    )
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _job_of(
    body: JobRequest, request: Request, sender: Sender
) -> tuple[dict[str, Any], list[str], list[tuple[str, str]], int | None]:
    """Return what `resolved_request` does, for a quote its own request; and the size, if it is known.

    Raises ApiProblem.
    """
    if body.quote is None:
        document, owned, links = resolved_request(body, request, sender)
        return document, owned, links, _file_bytes(document["source"])
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
    service.settings.machines.via_of(document)
    return document, owned, transfer_links(source, ends)


def _owned(places: Sequence[ResolvedPlace], *, recursive: bool, with_sources: bool) -> list[str]:
    """Return the names of the places that a job writes: the source is the first of `places`."""
    source, *ends = places
    owned = set()
    for end in ends:
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
        if place.connection is None and not place.url.startswith("/"):
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
        if is_of_connection(place):
            return service.connections.place_of(tenant, place)
        return ResolvedPlace(allowed_place(place, service.settings))
    except UsageError as error:
        raise ApiProblem(422, str(error), hint=error.hint, field=f"body.{field}") from None


def _changed(request: Request, sender: Sender, job_id: str, moves: dict[str, str]) -> dict[str, Any]:
    """Move a job to the state that `moves` has for its own; in that state already, it stays. Raises ApiProblem."""
    service = request.app.state.service
    row = service.queue.get(sender.tenant, job_id)
    while row.state in moves:
        fields: dict[str, Any] = {"error": None, "hint": None, "attempts": 0, "not_before_unix_ms": 0, "receipt": None}
        fields |= {"failures": "{}", "failure": None}
        reset = fields if moves[row.state] == "waiting" else {}
        if service.queue.move(job_id, (row.state,), moves[row.state], by=sender, **reset):
            service.runner.wake()
            break
        row = service.queue.get(sender.tenant, job_id)
    else:
        if row.state not in _reached(moves):
            raise ApiProblem(
                409, f"the job is {row.state}", hint=f"this is possible only while it is {' or '.join(moves)}"
            )
    return _view(service.queue.get(sender.tenant, job_id))


def _reached(moves: dict[str, str]) -> set[str]:
    """Return the states that a request leads to, at once or later."""
    later = {"pausing": "paused", "cancelling": "cancelled", "waiting": "running"}
    return {*moves.values(), *(later[state] for state in moves.values() if state in later)}


def _receipt(request: Request, row: JobRow) -> dict[str, Any] | None:
    """Return the receipt of a job, also while it runs; None before it has started."""
    service = request.app.state.service
    kept: dict[str, Any] | None = service.queue.receipt(row.id)
    if kept is not None or row.engine_job is None:
        return kept
    try:
        return public_receipt(row, row.state, service.runner.engine.job(row.engine_job).receipt())
    except JobNotFound:
        return None


def _had_objects(receipt: dict[str, Any] | None) -> bool:
    """Return whether a job has copied, skipped or failed an object, or nobody knows."""
    progress = None if receipt is None else receipt["progress"]
    names = ("objects_done", "objects_skipped", "objects_failed")
    return progress is None or any(progress[name] > 0 for name in names)


def _answers(request: Request, row: JobRow) -> dict[str, Any]:
    """Return why a job waits and when it ends: as the scheduler says now, or as another server's has last written."""
    if row.state in ENDED or row.state == "paused":
        return {"eta": None}
    answer = request.app.state.service.runner.scheduling.answer(row.id)
    if answer is None:
        is_known = row.earliest_unix_ms is not None
        end: dict[str, Any] = {"earliest_unix_ms": row.earliest_unix_ms, "latest_unix_ms": row.latest_unix_ms}
        return {"eta": end if is_known else None}
    sentence, eta = answer
    waits: dict[str, Any] = {"waiting": sentence} if row.state == "waiting" and sentence is not None else {}
    if eta is None:
        return {**waits, "eta": None}
    return {
        **waits,
        "eta": {"earliest_unix_ms": round(eta.earliest_s * 1000), "latest_unix_ms": round(eta.latest_s * 1000)},
    }


def _view(row: JobRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in JobView.model_fields}


def _lines(path: str, start: int, limit: int) -> tuple[list[bytes], int]:
    """Return complete lines of a file from a byte, and the byte after them. Raises ValueError if none begins there."""
    with open(path, "rb") as file:
        if start > 0:
            file.seek(start - 1)
            if file.read(1) != b"\n":
                raise ValueError("not the start of a line")
        lines: list[bytes] = []
        while len(lines) < limit and (line := file.readline(OBJECT_LINE_BYTES_MAX)).endswith(b"\n"):
            lines.append(line)
            start += len(line)
    return lines, start
