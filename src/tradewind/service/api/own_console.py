"""`/v1/console`: sign-in to a user's own console, and the jobs of the command line. A service has none of it."""

from __future__ import annotations

from collections import deque
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select

from tradewind.engine.jobs import JobRecord
from tradewind.service.auth import Sender, needs
from tradewind.service.limits import OWN_JOBS_SHOWN_MAX
from tradewind.service.problems import ApiProblem
from tradewind.service.tables import jobs

__all__ = ["router"]

router = APIRouter(prefix="/v1/console", include_in_schema=False)
READ = needs("jobs:read")
#: Only the admin token has this scope: no browser of the console can invite another one.
INVITE = needs("tenants")


class SignIn(BaseModel):
    """The code of an address that signs in."""

    model_config = ConfigDict(extra="forbid")

    code: Annotated[str, Field(min_length=1, max_length=100)]


@router.post("/tokens", status_code=201)
def sign_in(body: SignIn, request: Request, response: Response) -> dict[str, str]:
    """Return a token for a code, once. Needs no token."""
    service = request.app.state.service
    token = service.own.exchange(body.code)
    if token is None:
        service.refused.require(request.client.host if request.client else "")
        raise ApiProblem(403, "the address was used before, or has expired", hint="run `tradewind console` again")
    response.headers["Cache-Control"] = "no-store"
    return {"token": token}


@router.post("/invitations", status_code=201)
def invite(request: Request, response: Response, sender: Sender = INVITE) -> dict[str, str]:
    """Return a new address that signs in, and a file that leads to another one."""
    invitation = request.app.state.service.own.invite()
    response.headers["Cache-Control"] = "no-store"
    return {"address": invitation.address, "page": invitation.page}


@router.get("/jobs")
def command_line_jobs(request: Request, sender: Sender = READ) -> dict[str, Any]:
    """List the newest jobs of the user's state folder that were not started here, newest first."""
    service = request.app.state.service
    with service.database.read() as connection:
        started_here = set(connection.execute(select(jobs.c.engine_job)).scalars())
    others = (one for one in service.runner.engine.records(lambda _: None) if one.id not in started_here)
    return {"jobs": [_view(one) for one in reversed(deque(others, OWN_JOBS_SHOWN_MAX))]}


def _view(record: JobRecord) -> dict[str, Any]:
    progress = record.progress
    return {
        "id": record.id,
        "state": record.state,
        "verb": record.verb,
        "source": record.source,
        "destination": list(record.destinations),
        "created_unix_ms": record.created_unix_ms,
        "objects_done": progress.objects_done,
        "objects_total": progress.objects_total,
        "bytes_done": progress.bytes_done,
        "bytes_total": progress.bytes_total,
    }
