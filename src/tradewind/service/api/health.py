"""`/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

import time
from typing import Literal

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel

from tradewind.service.auth import Sender, needs
from tradewind.service.problems import ApiProblem

__all__ = ["router"]

router = APIRouter(tags=["health"])
METRICS = needs("metrics:read")


class PartFault(BaseModel):
    """The latest fault of a part of the server, which has not worked since."""

    part: str
    id: str
    age_s: float
    in_a_row: int


class ServerHealth(BaseModel):
    """State of the server: `ok` while all its parts work."""

    status: Literal["ok", "degraded"]
    faults: list[PartFault]


@router.get("/healthz")
def healthz(request: Request) -> ServerHealth:
    """Answer 200 while the process runs. Needs no token.

    The status is `degraded` while a part of the server has not worked since its latest fault of the program. The log
    has each fault by its id.
    """
    now_s = time.monotonic()
    faults = [
        PartFault(part=one.part, id=one.id, age_s=round(now_s - one.at_s, 1), in_a_row=one.in_a_row)
        for one in request.app.state.service.faults.failing()
    ]
    return ServerHealth(status="degraded" if faults else "ok", faults=faults)


@router.get("/readyz")
def readyz(request: Request) -> dict[str, str]:
    """Answer 200 if the database can be read and all threads of the server live, 503 if not. Needs no token.

    A server with faults of the program is ready: it answers requests, and tries again.
    """
    service = request.app.state.service
    service.database.version()
    if not service.is_alive:
        raise ApiProblem(503, "this server does not schedule jobs at the moment")
    return {"status": "ready"}


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(request: Request, sender: Sender = METRICS) -> Response:
    """Return metrics of the whole service for Prometheus."""
    return Response(generate_latest(request.app.state.service.metrics.registry), media_type=CONTENT_TYPE_LATEST)
