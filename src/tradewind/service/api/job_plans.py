"""`/v1/jobs/{job_id}/plan`: the routes, hops and machines of a job, and their map."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel

from tradewind.errors import JobNotFound
from tradewind.service.api.jobs import READ, JobId
from tradewind.service.auth import Sender
from tradewind.service.job_plan import NO_PLAN, job_plan

__all__ = ["router"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
#: Distances from the left and from the top [px].
Point = list[float]


class JobRoute(BaseModel):
    """A route, by the name that it has in the `hops` of the counts. `planned_gbps` is null without a prediction."""

    name: str
    regions: list[str]
    share: float
    planned_gbps: float | None


class JobHop(BaseModel):
    """The flow from one region to the next, with the names of its routes.

    `lines` and `figures_at`, the middle of its figures, are on the map: points as distances from the left and from the
    top [px]. They are empty and null without a map.
    """

    src: str
    dst: str
    routes: list[str]
    planned_gbps: float | None
    lines: list[list[Point]]
    figures_at: Point | None


class JobMachine(BaseModel):
    """A machine of the job. One that is not used any more has ended; `replaced_by` took its place."""

    name: str
    region: str
    is_used: bool
    replaced_by: str | None


class JobMap(BaseModel):
    """A picture of the routes, and its size. `lines` of the hops are drawn over it."""

    svg: str
    width_px: int
    height_px: int


class JobPlanView(BaseModel):
    """The latest plan of a job. All lists are empty before it starts.

    `limits` says what limits the plan, the tightest first. `map` is null without machines.
    """

    routes: list[JobRoute]
    hops: list[JobHop]
    machines: list[JobMachine]
    limits: list[str]
    map: JobMap | None


@router.get("/{job_id}/plan", response_model=JobPlanView)
def plan(job_id: JobId, request: Request, sender: Sender = READ) -> dict[str, Any]:
    """Show the routes, hops and machines of a job, with a map. The plan changes when machines are replaced."""
    service = request.app.state.service
    row = service.queue.get(sender.tenant, job_id)
    try:
        plans = () if row.engine_job is None else service.runner.engine.job(row.engine_job).plans
    except JobNotFound:
        plans = ()
    return job_plan(plans) if plans else dict(NO_PLAN)
