"""`/v1/fleets`: the machines of the service's engine, for operators of the service."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from sqlalchemy import select

from tradewind.engine.fleets import Fleets, FleetState
from tradewind.service.api.tenants import TENANTS
from tradewind.service.auth import Sender
from tradewind.service.limits import FLEETS_PAGE_DEFAULT, FLEETS_PAGE_MAX
from tradewind.service.tables import jobs

__all__ = ["router"]

router = APIRouter(prefix="/v1/fleets", tags=["fleets"])


class FleetMachineView(BaseModel):
    """A machine. `alive` is null if its provider does not say; `phases_s` are seconds after its order."""

    name: str
    region: str
    type: str | None
    alive: bool | None
    lease_end_unix_ms: int | None
    usd_per_hour: float | None
    phases_s: dict[str, float]


class FleetView(BaseModel):
    """A fleet. `jobs` are the jobs that use it now; `cost_usd` is the cost of its machines so far, null if unknown.

    `state`: `in use`, `warm` (kept for a job), `abandoned` (its command is gone) or `elsewhere` (of another host).
    """

    id: str
    provider: str
    state: Literal["in use", "warm", "abandoned", "elsewhere"]
    jobs: list[str]
    created_unix_ms: int
    warm_until_unix_ms: int | None
    cost_usd: float | None
    machines: list[FleetMachineView]


class FleetPage(BaseModel):
    """Fleets, oldest first. `next` is the cursor of the next page; null on the last one. `unreadable` are ids."""

    fleets: list[FleetView]
    next: str | None
    unreadable: list[str]


@router.get("", response_model=FleetPage)
def fleets(
    request: Request,
    cursor: Annotated[str | None, Query(pattern=r"^[A-Za-z0-9-]{1,100}$")] = None,
    limit: Annotated[int, Query(ge=1, le=FLEETS_PAGE_MAX)] = FLEETS_PAGE_DEFAULT,
    sender: Sender = TENANTS,
) -> dict[str, Any]:
    """List the warm fleets and the fleets of running jobs, as `tradewind fleet list` does. Providers are asked."""
    service = request.app.state.service
    known: Fleets = service.runner.engine.fleets
    found, following = known.page(cursor, limit)
    with service.database.read() as connection:
        users = {one.record.id: known.users(one.record) for one in found}
        named = [job for some in users.values() for job in some]
        query = select(jobs.c.engine_job, jobs.c.id).where(jobs.c.engine_job.in_(named))
        ids = {row.engine_job: row.id for row in connection.execute(query)}
    views = [_view(known, one, [ids[job] for job in users[one.record.id] if job in ids]) for one in found]
    return {"fleets": views, "next": following, "unreadable": [one.id for one in known.unreadable()]}


def _view(known: Fleets, state: FleetState, jobs: list[str]) -> dict[str, Any]:
    record = state.record
    until_s = record.warm_until_unix_s if record.is_warm else None
    return {
        "id": record.id,
        "provider": record.provider["kind"],
        "state": "warm" if state.is_warm else record.ownership,
        "jobs": jobs,
        "created_unix_ms": record.created_unix_ms,
        "warm_until_unix_ms": None if until_s is None else round(until_s * 1000),
        "cost_usd": known.cost_usd(record),
        "machines": known.machines(state),
    }
