"""`/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tradewind.service.auth import Sender, needs
from tradewind.service.problems import ApiProblem

__all__ = ["router"]

router = APIRouter(tags=["health"])
METRICS = needs("metrics:read")


@router.get("/healthz")
def healthz() -> dict[str, str]:
    """Answer 200 while the process runs. Needs no token."""
    return {"status": "ok"}


@router.get("/readyz")
def readyz(request: Request) -> dict[str, str]:
    """Answer 200 if the database can be read and jobs are being scheduled, 503 if not. Needs no token."""
    service = request.app.state.service
    service.database.version()
    if not service.runner.is_alive:
        raise ApiProblem(503, "this server does not schedule jobs at the moment")
    return {"status": "ready"}


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def metrics(request: Request, sender: Sender = METRICS) -> Response:
    """Return metrics of the whole service for Prometheus."""
    return Response(generate_latest(request.app.state.service.metrics.registry), media_type=CONTENT_TYPE_LATEST)
