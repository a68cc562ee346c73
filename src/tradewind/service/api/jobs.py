"""`/v1/jobs`: submit, list, show, pause, resume and cancel jobs; their events and receipts."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from tradewind.errors import JobNotFound
from tradewind.service.api.etags import etag, has_etag
from tradewind.service.api.job_requests import JobRequest, job_of, request_digest
from tradewind.service.api.pages import Limit
from tradewind.service.auth import Sender, is_still_allowed, needs
from tradewind.service.events import EventCursor, event_stream
from tradewind.service.jobs import JobRow
from tradewind.service.limits import PAGE_DEFAULT
from tradewind.service.money import charges_of
from tradewind.service.places import require_same_places
from tradewind.service.problems import ApiProblem
from tradewind.service.receipts import figures, public_receipt
from tradewind.service.tables import ENDED
from tradewind.service.told import hides_words

__all__ = ["JOB_ID", "router"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
READ, WRITE = needs("jobs:read"), needs("jobs:write")
JOB_ID = r"^[a-z0-9-]{1,64}$"
JobId = Annotated[str, Path(pattern=JOB_ID)]
Key = Annotated[str, Header(alias="Idempotency-Key", min_length=1, max_length=255, pattern=r"^[!-~]+$")]
State = Literal["waiting", "running", "pausing", "stopping", "cancelling", "paused", "done", "failed", "cancelled"]


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


class DeduplicationView(BaseModel):
    """Effect of deduplication so far: `sent_bytes` of `carried_bytes` were not known to the receiving machine.

    Compression makes them shorter still. Both are sums over all hops, as in `CompressionView`. `ratio` is `sent_bytes`
    by `carried_bytes`; null until bytes have arrived. A run whose server was killed is not counted.
    """

    carried_bytes: int
    sent_bytes: int
    ratio: float | None


class CompressionView(BaseModel):
    """Effect of compression so far: `sent_bytes` were sent for `carried_bytes` of data that deduplication has left.

    Both are sums over all hops, so data that passes a relay counts once for each hop: they may exceed the bytes of the
    objects. `ratio` is `sent_bytes` by `carried_bytes`; null until bytes have arrived. A run whose server was killed is
    not counted.
    """

    codec: str
    carried_bytes: int
    sent_bytes: int
    ratio: float | None


class EndView(BaseModel):
    """A job ends between these Unix times [ms] in 90% of cases."""

    earliest_unix_ms: int
    latest_unix_ms: int


class DeadlineView(BaseModel):
    """A deadline: its time and that which the job took, since its machines were ordered [s], and whether it was kept.

    `took_s` and `kept` are null while the end is not known.
    """

    deadline_s: float
    took_s: float | None
    kept: bool | None


class JobDetail(JobView):
    """A job with its figures: counts, proofs by kind, and the cost line by line.

    `eta` is null for a job that has ended, or whose end depends on people, such as a host that has not joined, or on a
    store that is down, or may be after the year 9999. `routes` is the number of routes between machines in its plan;
    null on the server's own machine.
    `compression` and `deduplication` are null if they are off; `deadline` is null until a run has ended, and without
    one. A job that ended after its deadline is `done`, and `error` says how late it was. `quote_usd_micros` is the most
    that the job is charged; null without a quote.
    """

    eta: EndView | None
    quote_usd_micros: int | None
    counts: dict[str, Any] | None
    proofs: dict[str, int] | None
    ledger: dict[str, Any] | None
    routes: int | None
    compression: CompressionView | None
    deduplication: DeduplicationView | None
    deadline: DeadlineView | None


class JobPage(BaseModel):
    """Jobs, newest first. `next` is the cursor of the next page; null on the last one."""

    jobs: list[JobView]
    next: str | None


@router.post("", status_code=201, response_model=JobView)
def submit(body: JobRequest, request: Request, response: Response, key: Key, sender: Sender = WRITE) -> dict[str, Any]:
    """Submit a job. The same key and body return the same job with 200; the same key with another body is refused."""
    service = request.app.state.service
    digest = request_digest(body)
    row, is_new = service.queue.resubmitted(sender, key, digest), False
    if row is None:
        document, owned, links, size_bytes = job_of(body, request, sender)
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
    price = {"quote_usd_micros": row.price_usd_micros}
    document = {**_view(row), **_answers(request, row), **price, **figures(receipt_of(request, row))}
    text = json.dumps(document)
    tag = etag(text)
    if has_etag(if_none_match, tag):
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
    require_same_places(row.request, service.settings, sender.tenant)
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
    found = receipt_of(request, row)
    if found is None:
        raise ApiProblem(409, "the job has not started", hint="its receipt exists once it runs")
    with service.database.read() as connection:
        document = {**found, "charges": charges_of(connection, job_id)}
    signed: dict[str, Any] = service.receipt_key.signed(document) if row.state in ENDED else document
    return signed


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
    row = service.queue.get(sender.tenant, job_id)
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
        hides_words=hides_words(row.request, service.settings),
    )
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _changed(request: Request, sender: Sender, job_id: str, moves: dict[str, str]) -> dict[str, Any]:
    """Move a job to the state that `moves` has for its own; in that state already, it stays. Raises ApiProblem."""
    service = request.app.state.service
    row = service.queue.get(sender.tenant, job_id)
    while row.state in moves:
        fields: dict[str, Any] = {"error": None, "hint": None, "attempts": 0, "not_before_unix_ms": 0}
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


def receipt_of(request: Request, row: JobRow) -> dict[str, Any] | None:
    """Return the receipt of a job, also while it runs; None before it has started."""
    service = request.app.state.service
    kept: dict[str, Any] | None = service.queue.receipt(row.id)
    if kept is not None or row.engine_job is None:
        return kept
    try:
        found = service.runner.engine.job(row.engine_job).receipt()
        return public_receipt(row, row.state, found, hides_words=hides_words(row.request, service.settings))
    except JobNotFound:
        return None


def _answers(request: Request, row: JobRow) -> dict[str, Any]:
    """Return why a job waits and when it ends: as the scheduler says now, or as another server's has last written."""
    if row.state in ENDED or row.state == "paused" or (row.state == "running" and row.waiting is not None):
        return {"eta": None}  # A run that waits needs the host of a user.
    answer = request.app.state.service.runner.scheduling.answer(row.id)
    if answer is None:
        is_known = row.earliest_unix_ms is not None
        end: dict[str, Any] = {"earliest_unix_ms": row.earliest_unix_ms, "latest_unix_ms": row.latest_unix_ms}
        return {"eta": end if is_known else None}
    sentence, eta = answer
    waits = {"waiting": sentence} if row.state == "waiting" and sentence is not None else {}
    times = None if eta is None else eta.unix_ms
    if times is None:
        return {**waits, "eta": None}
    return {**waits, "eta": {"earliest_unix_ms": times[0], "latest_unix_ms": times[1]}}


def _view(row: JobRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in JobView.model_fields}
