"""`/v1/frontier` and `/v1/plan`: what a transfer between two regions costs at each rate, and over which routes.

Nothing is rented, counted or submitted. A quote has the price of a job.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from tradewind.service.auth import Sender, needs
from tradewind.service.limits import MACHINES_MAX, VOLUME_GB_MAX

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["plans"])
READ = needs("jobs:read")
REGION = r"^[a-z]+:[a-zA-Z0-9_-]{1,64}$"
Place = Annotated[str, Query(pattern=REGION, description="region, for example aws:us-east-1")]
Volume = Annotated[float, Query(gt=0, le=VOLUME_GB_MAX, description="volume of the transfer [GB]")]
Machines = Annotated[int, Query(ge=1, le=MACHINES_MAX, description="maximum machines in each region")]
MACHINES_DEFAULT = 8
#: A plan may be slower than the requested rate by this share, because rates of the frontier may be rounded up.
ROUNDING = 1e-6


class FrontierPoint(BaseModel):
    """The lowest cost [USD] of a rate [Gbit/s]."""

    rate_gbps: float
    usd: float


class FrontierView(BaseModel):
    """Every efficient pair of rate and cost, as the ends of straight pieces, from the cheapest to the fastest.

    `proven` is true if nothing better exists.
    """

    points: list[FrontierPoint]
    proven: bool


class PlannedRouteView(BaseModel):
    """A route and its share of the bytes."""

    regions: list[str]
    share: float


class PlannedMachines(BaseModel):
    """Machines of one type in one region."""

    region: str
    type: str
    count: int


class PlanView(BaseModel):
    """The cheapest plan of at least a rate: its routes, machines, cost and time, with the start of the machines.

    `explanation` says what limits the plan, and what would help. `map_svg` is a picture of the routes.
    """

    rate_gbps: float
    time_s: float
    usd: float
    egress_usd: float
    routes: list[PlannedRouteView]
    machines: list[PlannedMachines]
    explanation: str
    map_svg: str


@router.get("/frontier", response_model=FrontierView)
def frontier(
    request: Request,
    src: Place,
    dst: Place,
    volume_gb: Volume,
    max_vms: Machines = MACHINES_DEFAULT,
    sender: Sender = READ,
) -> dict[str, Any]:
    """Return the cost of each rate that a transfer between two regions can have on machines."""
    asked = {"source": src, "destination": dst, "volume_gb": volume_gb, "max_vms": max_vms}
    found: dict[str, Any] = request.app.state.service.planning.plan(sender.tenant, asked)
    return found


@router.get("/plan", response_model=PlanView)
def plan(
    request: Request,
    src: Place,
    dst: Place,
    volume_gb: Volume,
    rate_gbps: Annotated[float, Query(gt=0, le=1e6, description="minimum rate [Gbit/s]")],
    max_vms: Machines = MACHINES_DEFAULT,
    sender: Sender = READ,
) -> dict[str, Any]:
    """Return the cheapest plan of a transfer between two regions at a rate, with a map of its routes."""
    least_gbps = rate_gbps * (1 - ROUNDING)
    asked = {"source": src, "destination": dst, "volume_gb": volume_gb, "max_vms": max_vms}
    question = {**asked, "min_throughput_gbps": least_gbps}
    made: dict[str, Any] = request.app.state.service.planning.plan(sender.tenant, question)
    return made
