"""`/v1/keys`, and the list of objects that a receipt names."""

from __future__ import annotations

import os
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, StreamingResponse

from tradewind.engine.jobs import OBJECTS_FILE
from tradewind.service.api.jobs import READ, JobId
from tradewind.service.auth import Sender
from tradewind.service.problems import ApiProblem
from tradewind.service.receipts import object_list_blocks
from tradewind.service.told import hides_words

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["receipts"])


@router.get("/keys")
def keys(request: Request) -> dict[str, Any]:
    """Return the public key that verifies receipts, as a JWK set. Needs no token."""
    found: dict[str, Any] = request.app.state.service.receipt_key.public()
    return found


@router.get(
    "/jobs/{job_id}/objects.jsonl",
    response_class=FileResponse,
    responses={200: {"content": {"application/x-ndjson": {}}}},
)
def object_list(job_id: JobId, request: Request, sender: Sender = READ) -> Response:
    """Return the list of objects as a file, one JSON document in each line. The receipt has its SHA-256."""
    service = request.app.state.service
    row = service.queue.get(sender.tenant, job_id)
    path = None
    if row.engine_job is not None:
        path = os.path.join(service.runner.engine.control.store.path(row.engine_job), OBJECTS_FILE)
    if path is None or not os.path.exists(path):
        raise ApiProblem(409, "there is no list of objects", hint="it exists while the engine keeps the job")
    if not hides_words(row.request, service.settings):
        return FileResponse(path, media_type="application/x-ndjson", filename=f"{job_id}.jsonl")
    blocks = object_list_blocks(path, hides_words=True)
    name = {"Content-Disposition": f'attachment; filename="{job_id}.jsonl"'}
    return StreamingResponse(blocks, media_type="application/x-ndjson", headers=name)
