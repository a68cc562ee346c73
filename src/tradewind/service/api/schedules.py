"""`/v1/schedules`: jobs that are submitted by a timetable."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import delete, func, insert, select

from tradewind.service.api.job_requests import JobRequest, resolved_request
from tradewind.service.api.jobs import READ, WRITE
from tradewind.service.api.own_rows import own_row
from tradewind.service.auth import Sender
from tradewind.service.connections import require_connections
from tradewind.service.database import database_unix_ms, record_change
from tradewind.service.limits import SCHEDULES_PER_TENANT_MAX
from tradewind.service.problems import ApiProblem
from tradewind.service.schedule_runner import job_schedule
from tradewind.service.scheduling_tables import schedules

__all__ = ["router"]

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])
ScheduleId = Annotated[str, Path(pattern=r"^s-[0-9a-f]{16}$")]
Line = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[!-~ ]+$")]


class ScheduleRequest(BaseModel):
    """A job and its timetable. It ends at `end_unix_ms` or after `count` jobs.

    `overlap` says what happens if the job before has not ended: `skip` this time, `queue` it, or `allow` both.
    """

    model_config = ConfigDict(extra="forbid")

    job: JobRequest
    cron: Line = Field(description="minute hour day month weekday")
    time_zone: Line = "UTC"
    end_unix_ms: Annotated[int, Field(ge=0, le=10**14)] | None = None
    count: Annotated[int, Field(ge=1, le=10**9)] | None = None
    overlap: Literal["skip", "queue", "allow"] = "skip"


class ScheduleView(BaseModel):
    """A schedule. `next_unix_ms` is null when it has ended; `skipped` says why the latest skipped time got no job."""

    id: str
    request: dict[str, Any]
    cron: str
    time_zone: str
    end_unix_ms: int | None
    count: int | None
    overlap: str
    created_unix_ms: int
    next_unix_ms: int | None
    submitted: int
    queued: list[float]
    skipped: str | None


class ScheduleList(BaseModel):
    """The tenant's schedules."""

    schedules: list[ScheduleView]


@router.post("", status_code=201, response_model=ScheduleView)
def make(body: ScheduleRequest, request: Request, sender: Sender = WRITE) -> dict[str, Any]:
    """Submit a job at each time of a timetable. The key of each job is made of the schedule and the time."""
    if body.job.quote is not None:
        raise ApiProblem(422, "a schedule cannot have a quote", hint="a quote is valid for one job")
    document, owned, links = resolved_request(body.job, request, sender)
    if document.get("guest") is not None:
        raise ApiProblem(
            422, "a schedule cannot have a guest", hint="run `tradewind send` or `receive` from cron on that host"
        )
    database = request.app.state.service.database
    with database.read() as connection:
        now_ms = database_unix_ms(connection)
    row = {
        **body.model_dump(exclude={"job"}),
        "id": f"s-{secrets.token_hex(8)}",
        "tenant": sender.tenant,
        "token": sender.token,
        "request": json.dumps(document),
        "owned": json.dumps(owned),
        "links": json.dumps(links),
        "created_unix_ms": now_ms,
        "last_unix_ms": now_ms,
        "submitted": 0,
        "queued": "[]",
        "skipped": None,
    }
    following = next(job_schedule(row).times_after(now_ms / 1000), None)
    if following is None:
        raise ApiProblem(422, "the schedule has no time before its end")
    row["next_unix_ms"] = round(following * 1000)
    with database.write() as connection:
        count = select(func.count()).select_from(schedules).where(schedules.c.tenant == sender.tenant)
        if connection.execute(count).scalar_one() >= SCHEDULES_PER_TENANT_MAX:
            raise ApiProblem(409, f"the tenant has {SCHEDULES_PER_TENANT_MAX} schedules", hint="delete one of them")
        require_connections(connection, sender.tenant, document)
        connection.execute(insert(schedules).values(**row))
        record_change(connection, sender.tenant, sender.token, "schedule.make", row["id"])
    return _view(row)


@router.get("", response_model=ScheduleList)
def list_schedules(request: Request, sender: Sender = READ) -> dict[str, Any]:
    """List the schedules of the tenant."""
    query = select(schedules).where(schedules.c.tenant == sender.tenant).order_by(schedules.c.created_unix_ms)
    with request.app.state.service.database.read() as connection:
        return {"schedules": [_view(row) for row in connection.execute(query).mappings()]}


@router.get("/{schedule_id}", response_model=ScheduleView)
def show(schedule_id: ScheduleId, request: Request, sender: Sender = READ) -> dict[str, Any]:
    """Show a schedule."""
    return _view(own_row(request, sender, schedules, schedule_id, "schedule"))


@router.delete("/{schedule_id}", status_code=204, response_class=Response)
def remove(schedule_id: ScheduleId, request: Request, sender: Sender = WRITE) -> Response:
    """Delete a schedule. Its jobs stay."""
    mine = schedules.c.id == schedule_id, schedules.c.tenant == sender.tenant
    with request.app.state.service.database.write() as connection:
        if connection.execute(delete(schedules).where(*mine)).rowcount == 0:
            raise ApiProblem(404, "no such schedule")
        record_change(connection, sender.tenant, sender.token, "schedule.delete", schedule_id)
    return Response(status_code=204)


def _view(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {**row, "request": json.loads(row["request"]), "queued": json.loads(row["queued"])}
