"""`/v1/jobs/{job_id}/objects`: the objects of a job with their verdicts, page by page."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from tradewind.engine.jobs import OBJECTS_FILE
from tradewind.service.api.jobs import READ, JobId, receipt_of
from tradewind.service.api.pages import Limit
from tradewind.service.auth import Sender
from tradewind.service.limits import OBJECT_LINE_BYTES_MAX, PAGE_DEFAULT
from tradewind.service.problems import ApiProblem
from tradewind.service.tables import ENDED
from tradewind.service.told import hides_words, told_document

__all__ = ["router"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


#: Beginning of the destinations of a lead whose sink is a guest.
IN_MEMORY = "mem:/"
COUNTS_HINT = "the receipt has the counts"


class ObjectPage(BaseModel):
    """Objects with their verdicts and proofs. `next` is the cursor of the next page; null if there are no more now."""

    objects: list[dict[str, Any]]
    next: str | None


@router.get("/{job_id}/objects", response_model=ObjectPage)
def objects(
    job_id: JobId,
    request: Request,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,15}$")] = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = READ,
) -> dict[str, Any]:
    """List the objects of a job with their verdicts, in the order in which they ended."""
    service = request.app.state.service
    row = service.queue.get(sender.tenant, job_id)
    if row.engine_job is None:
        return {"objects": [], "next": None}
    path = os.path.join(service.runner.engine.control.store.path(row.engine_job), OBJECTS_FILE)
    try:
        lines, place = _lines(path, int(cursor or 0), limit)
        told = told_document if hides_words(row.request, service.settings) else dict
        found = [_named(told(json.loads(line)), row.request) for line in lines]
    except FileNotFoundError:
        if (row.request.get("guest") or {}).get("side") == "source":
            raise ApiProblem(410, "a job that its guest reads has no list of objects", hint=COUNTS_HINT) from None
        if row.state in ENDED and _had_objects(receipt_of(request, row)):
            raise ApiProblem(410, "the list of objects was removed", hint=COUNTS_HINT) from None
        return {"objects": [], "next": None}
    except ValueError:
        raise ApiProblem(422, "cursor: not the `next` of an earlier page") from None
    return {"objects": found, "next": str(place) if len(lines) == limit else None}


def _named(verdict: dict[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a verdict with the place of the guest, which the lead of the job does not know."""
    if request.get("guest") is None:
        return verdict
    name = verdict["destination"].removeprefix(IN_MEMORY)
    (end,) = request["destination"]
    return {**verdict, "destination": f"{end}{name}" if end.endswith("/") else end}


def _had_objects(receipt: dict[str, Any] | None) -> bool:
    """Return whether a job has copied, skipped or failed an object, or nobody knows."""
    progress = None if receipt is None else receipt["progress"]
    names = ("objects_done", "objects_skipped", "objects_failed")
    return progress is None or any(progress[name] > 0 for name in names)


def _lines(path: str, start: int, limit: int) -> tuple[list[bytes], int]:
    """Return complete lines of a file from a byte, and the byte after them. Raises ValueError if none begins there."""
    with open(path, "rb") as file:
        if start > 0:
            file.seek(start - 1)
            if file.read(1) != b"\n":
                raise ValueError("not the start of a line")
        lines: list[bytes] = []
        while len(lines) < limit and (line := file.readline(OBJECT_LINE_BYTES_MAX)).endswith(b"\n"):
            lines.append(line)
            start += len(line)
    return lines, start
