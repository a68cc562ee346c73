"""`/v1/jobs/ID/guest`: how the user's host that sends or receives joins its job.

The client on that host claims the join document of the present run, and then reports what its gateway does. A server
that does not run the job passes the requests on to the one that does (`service.peers`). If that one does not answer,
the client gets 503 and retries.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tradewind.fleet.guests import DeskOver, DeskTaken, GuestDesk, desk_of
from tradewind.model.document import parse_json, to_document
from tradewind.model.event import Outcome, Summary, event_from_document
from tradewind.service.api.jobs import WRITE, JobId
from tradewind.service.auth import Sender
from tradewind.service.database import record_change
from tradewind.service.jobs import JobRow
from tradewind.service.limits import GUEST_ANSWERS_MAX, GUEST_EVENTS_MAX, GUEST_UPLOADS_MAX, GUEST_WAIT_S
from tradewind.service.peers import Peer
from tradewind.service.problems import ApiProblem
from tradewind.service.tables import ACTIVE

__all__ = ["router"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
LOOK_S = 0.05
#: Largest number in an event: programs that read JSON keep it exactly, and it is far above any count of a job.
COUNT_MAX = (1 << 53) - 1
UploadKey = Annotated[str, Field(max_length=4_096)]
EventLine = Annotated[str, Field(max_length=65_536)]


def _printable(text: str) -> str:
    """Return a text of a guest without control characters, which would reach logs, terminals and the database."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


Words = Annotated[str, Field(max_length=2_000), AfterValidator(_printable)]


class JoinView(BaseModel):
    """Join document of the gateway of the guest. `token_hex` is secret, works once, and until it expires."""

    fleet: str
    name: str
    token_hex: str
    expires_unix_s: int
    ca_pem: str
    owner: str


class GuestView(BaseModel):
    """The right to be the guest of a run. `session` is secret."""

    session: str
    join: JoinView


class GuestClaim(BaseModel):
    """`earlier` is the session of a client that was killed: its run then ends at once."""

    model_config = ConfigDict(extra="forbid")

    earlier: Annotated[str, Field(max_length=64)] | None = None


class GuestVersion(BaseModel):
    """The version of the guest's gateway program."""

    gateway: Annotated[str, Field(max_length=100), AfterValidator(_printable)]
    contract: int


class GuestAnswer(BaseModel):
    """The answer to a request of the service: an error, or the body of the gateway's answer."""

    number: int
    error: Words | None = None
    hint: Words | None = None
    body: dict[str, Any] | None = None


class GuestReport(BaseModel):
    """A report of the guest. `first` is the number of events that it sent before; `failure` ends the run.

    `uploads` are the keys of the unfinished uploads of a guest that sends, if they have changed, and `journal` is the
    id of the journal that has them: another host has another one. With `waits` the answer comes when the gateway is
    asked something, or after a moment.
    """

    model_config = ConfigDict(extra="forbid")

    session: Annotated[str, Field(max_length=64)]
    version: GuestVersion | None = None
    answers: Annotated[list[GuestAnswer], Field(max_length=GUEST_ANSWERS_MAX)] = []
    first: Annotated[int, Field(ge=0, le=1 << 62)] = 0
    events: Annotated[list[EventLine], Field(max_length=GUEST_EVENTS_MAX)] = []
    failure: Words | None = None
    uploads: Annotated[list[UploadKey], Field(max_length=GUEST_UPLOADS_MAX)] | None = None
    journal: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    waits: bool = False


class GuestRequest(BaseModel):
    """A request to the guest's gateway, about which its client decides."""

    number: int
    kind: Literal["program", "drain", "identity"]
    method: str
    body: dict[str, Any] | None


class GuestRequests(BaseModel):
    """The requests that the guest has not answered, and the number of its events that were taken."""

    asked: list[GuestRequest]
    events: int


@router.post("/{job_id}/guest", status_code=201, response_model=GuestView)
async def claim(
    job_id: JobId, body: GuestClaim, request: Request, response: Response, sender: Sender = WRITE
) -> Response | dict[str, Any]:
    """Become the guest of the present run of a job. Only the first request of a run gets the join document."""
    row, passed = await _row_here(job_id, body, request, sender)
    response.headers["Cache-Control"] = "no-store"
    if passed is not None:
        return passed
    return await run_in_threadpool(_claimed, row, body.earlier, request, sender)


@router.post("/{job_id}/guest/exchange", response_model=GuestRequests)
async def exchange(
    job_id: JobId, body: GuestReport, request: Request, sender: Sender = WRITE
) -> Response | dict[str, Any]:
    """Say what the guest's gateway does, and return what it is asked to do."""
    row, passed = await _row_here(job_id, body, request, sender)
    if passed is not None:
        return passed
    desk = _desk(request, row)
    events = [_event(line) for line in body.events]
    answers = {answer.number: answer.model_dump(exclude={"number"}) for answer in body.answers}
    version = None if body.version is None else body.version.model_dump()
    try:
        # It writes the status of the job to a file.
        said = body.session, version, answers, body.first, events, body.failure, body.uploads, body.journal
        taken = await asyncio.to_thread(desk.say, *said)
        deadline_s = time.monotonic() + (GUEST_WAIT_S if body.waits else 0.0)
        while not (asked := desk.asked(body.session)) and time.monotonic() < deadline_s:
            await asyncio.sleep(LOOK_S)
    except DeskOver as error:
        raise _over(error) from None
    except OSError as error:  # The disk of the state folder is full. The client sends the report again.
        raise ApiProblem(
            503, f"the service cannot keep this report: {error.strerror}", headers={"Retry-After": "1"}
        ) from None
    return {"asked": asked, "events": taken}


async def _row_here(job_id: str, body: BaseModel, request: Request, sender: Sender) -> tuple[JobRow, Response | None]:
    """Return a job, and if another server runs it, that server's answer to the request. Raises ApiProblem 404, 503.

    A server that does not answer takes time. It uses threads of its own, not those that answer all requests.
    """
    service = request.app.state.service
    row = await asyncio.to_thread(service.queue.get, sender.tenant, job_id)
    peer = await asyncio.to_thread(_peer, request, row)
    if peer is None:
        return row, None
    return row, await asyncio.get_running_loop().run_in_executor(service.passing, _passed_on, peer, request, body)


def _claimed(row: JobRow, earlier: str | None, request: Request, sender: Sender) -> dict[str, Any]:
    desk = _desk(request, row)
    try:
        session = desk.claim(earlier)
    except DeskTaken as error:
        raise ApiProblem(409, str(error)) from None
    except DeskOver as error:
        raise _over(error) from None
    with request.app.state.service.database.write() as connection:
        record_change(connection, sender.tenant, sender.token, "job.join", row.id)
    join = desk.join
    return {
        "session": session,
        "join": {
            "fleet": join.fleet_id,
            "name": join.name,
            "token_hex": join.token.hex,
            "expires_unix_s": join.token.expires_unix_s,
            "ca_pem": join.ca_pem,
            "owner": join.owner,
        },
    }


def _event(line: str) -> bytes:
    """Return an event of a lead as a line, in this version's form. Raises ApiProblem for anything else.

    It is not trusted: the engine has further events in the same list, and computes with the numbers.
    """
    try:
        event = event_from_document(parse_json(line))
    except (ValueError, TypeError, KeyError, AttributeError):
        event = None
    if event is None or (isinstance(event, Summary) and event.outcome not in get_args(Outcome)):
        raise _no_event()
    return json.dumps(_checked(to_document(event)), ensure_ascii=False).encode() + b"\n"


def _checked(said: Any) -> Any:
    """Return the content of an event with printable texts. Raises ApiProblem for a number that is no count."""
    if isinstance(said, str):
        return _printable(said)
    if isinstance(said, (int, float)):
        if not 0 <= said <= COUNT_MAX:  # Neither NaN nor infinite.
            raise _no_event()
        return said
    if isinstance(said, dict):
        return {_printable(name): _checked(content) for name, content in said.items()}
    return [_checked(content) for content in said] if isinstance(said, list) else said


def _no_event() -> ApiProblem:
    return ApiProblem(422, "not an event of a gateway", field="body.events")


def _over(error: DeskOver) -> ApiProblem:
    return ApiProblem(410, f"this run has ended: {error}", hint="join the next run, if the job has one")


def _peer(request: Request, row: JobRow) -> Peer | None:
    """Return the other server that runs a job with a guest; None if it is this one, or there is none."""
    if row.request.get("guest") is None or row.state not in ACTIVE or not request.app.state.passes_on:
        return None
    found: Peer | None = request.app.state.service.peer_of(row.owner)
    return found


def _passed_on(peer: Peer, request: Request, body: BaseModel) -> Response:
    """Return the answer of another server to a request. Raises ApiProblem 503."""
    sealer, authorization = request.app.state.service.sealer, request.headers["authorization"]
    return peer.pass_on(sealer, request.scope["path"], authorization, body.model_dump(mode="json"))


def _desk(request: Request, row: JobRow) -> GuestDesk:
    """Return the desk of a job's present run. Raises ApiProblem 409 without a guest, 410 or 503 without a run here."""
    guest = row.request.get("guest")
    if guest is None:
        raise ApiProblem(409, "this job has no guest", hint="its source or destination is guest://NAME")
    desk = desk_of(guest["guest"])
    if desk is not None:
        return desk
    if row.state in ACTIVE and row.owner not in (None, request.app.state.service.replica_id):
        raise ApiProblem(503, "another server runs this job", headers={"Retry-After": "1"})
    raise ApiProblem(410, f"no run of the job waits for a guest: it is {row.state}", hint="try again while it runs")
