"""`/v1/schedules`: jobs that are submitted by a timetable or by events."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from tradewind.service.api.job_requests import JobRequest, resolved_request
from tradewind.service.api.jobs import READ, WRITE, Key
from tradewind.service.api.own_rows import own_row
from tradewind.service.auth import Sender, require_not_revoked
from tradewind.service.connections import require_connections
from tradewind.service.database import database_unix_ms, record_change
from tradewind.service.limits import SCHEDULE_EVENT_KEPT_S, SCHEDULE_EVENTS_MAX, SCHEDULES_PER_TENANT_MAX
from tradewind.service.problems import ApiProblem
from tradewind.service.schedule_runner import job_schedule
from tradewind.service.scheduling_tables import schedule_events, schedules

__all__ = ["router"]

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])
ScheduleId = Annotated[str, Path(pattern=r"^s-[0-9a-f]{16}$")]
Line = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[!-~ ]+$")]


class ScheduleRequest(BaseModel):
    """A job and its timetable. It ends at `end_unix_ms` or after `count` jobs.

    `overlap` says what happens if the previous job has not ended: `skip` this time, `queue` it, or `allow` both.
    Without `cron`, only events submit jobs.
    """

    model_config = ConfigDict(extra="forbid")

    job: JobRequest
    cron: Line | None = Field(None, description="minute hour day month weekday")
    time_zone: Line = "UTC"
    end_unix_ms: Annotated[int, Field(ge=0, le=10**14)] | None = None
    count: Annotated[int, Field(ge=1, le=10**9)] | None = None
    overlap: Literal["skip", "queue", "allow"] = "skip"


class ScheduleView(BaseModel):
    """A schedule. `next_unix_ms` is null when it has ended, or without `cron`.

    `skipped` says why the latest skipped time or event got no job.
    """

    id: str
    request: dict[str, Any]
    cron: str | None
    time_zone: str
    end_unix_ms: int | None
    count: int | None
    overlap: str
    created_unix_ms: int
    next_unix_ms: int | None
    submitted: int
    queued: list[float]
    skipped: str | None


class EventView(BaseModel):
    """An event of a schedule. It is open until the scheduler has submitted its job, queued it or skipped it."""

    at_unix_ms: int
    open: bool


class ScheduleList(BaseModel):
    """The tenant's schedules."""

    schedules: list[ScheduleView]


@router.post("", status_code=201, response_model=ScheduleView)
def make(body: ScheduleRequest, request: Request, sender: Sender = WRITE) -> dict[str, Any]:
    """Submit a job at each time of a timetable, and for each event. Its key is made of the schedule and the time."""
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
        "cron": body.cron or "",
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
    if following is None and body.cron is not None:
        raise ApiProblem(422, "the schedule has no time before its end")
    row["next_unix_ms"] = None if following is None else round(following * 1000)
    with database.write() as connection:
        require_not_revoked(connection, sender)
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


@router.post("/{schedule_id}/events", status_code=202, response_model=EventView)
def happen(schedule_id: ScheduleId, request: Request, key: Key, sender: Sender = WRITE) -> dict[str, Any]:
    """Submit a job of a schedule because something has happened, such as that new data is complete.

    `overlap`, the end and the count apply as to its times. The same key is the same event for 7 days.
    """
    own_row(request, sender, schedules, schedule_id, "schedule")
    service, of_schedule = request.app.state.service, schedule_events.c.schedule == schedule_id
    with service.database.write() as connection:
        now_ms = database_unix_ms(connection)
        kept_ms = now_ms - round(SCHEDULE_EVENT_KEPT_S * 1000)
        is_old = schedule_events.c.is_open == 0, schedule_events.c.at_unix_ms < kept_ms
        connection.execute(delete(schedule_events).where(of_schedule, *is_old))
        query = select(schedule_events).where(of_schedule, schedule_events.c.idempotency_key == key)
        found = connection.execute(query).mappings().first()
        if found is not None:
            return {"at_unix_ms": found["at_unix_ms"], "open": bool(found["is_open"])}
        figures = select(func.max(schedule_events.c.at_unix_ms), func.sum(schedule_events.c.is_open))
        last_ms, open_events = connection.execute(figures.where(of_schedule)).one()
        if (open_events or 0) >= SCHEDULE_EVENTS_MAX:
            raise ApiProblem(429, f"{SCHEDULE_EVENTS_MAX:,} events are open", headers={"Retry-After": "1"})
        # Their times differ from each other, and from the whole seconds of the cron expression.
        at_ms = max(now_ms, (last_ms or 0) + 1)
        at_ms += at_ms % 1000 == 0
        row = {"schedule": schedule_id, "at_unix_ms": at_ms, "idempotency_key": key, "is_open": 1}
        try:
            connection.execute(insert(schedule_events).values(**row))
        except IntegrityError:
            raise ApiProblem(404, "no such schedule") from None  # It was deleted meanwhile.
        record_change(connection, sender.tenant, sender.token, "schedule.event", schedule_id)
    service.runner.wake()
    return {"at_unix_ms": at_ms, "open": True}


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
    listed = {name: json.loads(row[name]) for name in ("request", "queued")}
    return {**row, **listed, "cron": row["cron"] or None}
