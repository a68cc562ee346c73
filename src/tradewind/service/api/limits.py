"""`/v1/limits` and `/v1/weights`: how much may run on a resource, and the shares of tenants and activities."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, delete, insert, select

from tradewind.service.api.etags import IfMatch, etag, require_match
from tradewind.service.api.job_requests import ACTIVITY
from tradewind.service.api.known_tenants import require_tenants
from tradewind.service.api.tenants import NAME, TENANTS
from tradewind.service.auth import Sender
from tradewind.service.database import record_change
from tradewind.service.limits import RESOURCE_LIMITS_MAX, WEIGHTS_MAX
from tradewind.service.problems import ApiProblem
from tradewind.service.scheduler.jobs import TENANT
from tradewind.service.scheduling_tables import resource_limits, weights

__all__ = ["RESOURCE_NAME", "router"]

router = APIRouter(prefix="/v1", tags=["scheduling"])
#: A store is `local` or the URL of its bucket; a link is `START>END`, with regions or stores.
RESOURCE_NAME = r"^[!-~]+$"
Name = Annotated[str, Field(min_length=1, max_length=500, pattern=RESOURCE_NAME)]
Amount = Annotated[float, Field(ge=0, le=1e9)]


class ResourceLimitDocument(BaseModel):
    """The maximum that may run on a resource. Null means no limit, and 0 closes the resource."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["store-in", "store-out", "link", "site", "tenant"]
    name: Name
    active: Annotated[int, Field(ge=0, le=10**6)] | None = Field(None, description="jobs that run at a time")
    rate_gbps: Amount | None = Field(None, description="sum of their rates [Gbit/s]")
    usd_per_day: Amount | None = Field(
        None, description="cost of a day (UTC); running jobs count with their quotes or ceilings"
    )


class LimitList(BaseModel):
    """All limits. Resources that are not listed have none."""

    model_config = ConfigDict(extra="forbid")

    limits: Annotated[list[ResourceLimitDocument], Field(max_length=RESOURCE_LIMITS_MAX)]


class WeightDocument(BaseModel):
    """The weight of a tenant among tenants, or of an activity among those of the tenant."""

    model_config = ConfigDict(extra="forbid")

    tenant: str = Field(pattern=NAME)
    activity: Annotated[str, Field(pattern=ACTIVITY)] | None = None
    weight: Annotated[float, Field(gt=0, le=1e6)]


class WeightList(BaseModel):
    """All weights. Tenants and activities that are not listed have 1."""

    model_config = ConfigDict(extra="forbid")

    weights: Annotated[list[WeightDocument], Field(max_length=WEIGHTS_MAX)]


@router.get("/limits", response_model=LimitList)
def show_limits(request: Request, response: Response, sender: Sender = TENANTS) -> dict[str, Any]:
    """Show the limits of resources."""
    with request.app.state.service.database.read() as connection:
        found = _limits(connection)
    response.headers["ETag"] = etag(found)
    return found


@router.put("/limits", response_model=LimitList)
def set_limits(
    body: LimitList, request: Request, response: Response, if_match: IfMatch = None, sender: Sender = TENANTS
) -> dict[str, Any]:
    """Replace the limits of resources. Running jobs are not affected.

    With the ETag of an answer in `If-Match`, they are replaced only if they are still those of that answer.
    """
    rows = [one.model_dump() for one in body.limits]
    if len({(row["kind"], row["name"]) for row in rows}) < len(rows):
        raise ApiProblem(422, "the list has two limits for one resource")
    service = request.app.state.service
    named = {f"body.limits.{index}.name": row["name"] for index, row in enumerate(rows) if row["kind"] == TENANT}
    with service.database.write() as connection:
        require_match(if_match, _limits(connection))
        require_tenants(connection, named)
        connection.execute(delete(resource_limits))
        if rows:
            connection.execute(insert(resource_limits), rows)
        record_change(connection, sender.tenant, sender.token, "limits.set", "limits", {"limits": rows})
        made = _limits(connection)
    service.runner.wake()
    response.headers["ETag"] = etag(made)
    return made


def _limits(connection: Connection) -> dict[str, Any]:
    query = select(resource_limits).order_by(resource_limits.c.kind, resource_limits.c.name)
    return {"limits": [dict(row) for row in connection.execute(query).mappings()]}


@router.get("/weights", response_model=WeightList)
def show_weights(request: Request, response: Response, sender: Sender = TENANTS) -> dict[str, Any]:
    """Show the weights of tenants and activities."""
    with request.app.state.service.database.read() as connection:
        found = _weights(connection)
    response.headers["ETag"] = etag(found)
    return found


@router.put("/weights", response_model=WeightList)
def set_weights(
    body: WeightList, request: Request, response: Response, if_match: IfMatch = None, sender: Sender = TENANTS
) -> dict[str, Any]:
    """Replace the weights of tenants and activities. `If-Match` is as for limits."""
    rows = [{**one.model_dump(), "activity": one.activity or ""} for one in body.weights]
    if len({(row["tenant"], row["activity"]) for row in rows}) < len(rows):
        raise ApiProblem(422, "the list has two weights for one tenant or activity")
    service = request.app.state.service
    named = {f"body.weights.{index}.tenant": row["tenant"] for index, row in enumerate(rows)}
    with service.database.write() as connection:
        require_match(if_match, _weights(connection))
        require_tenants(connection, named)
        connection.execute(delete(weights))
        if rows:
            connection.execute(insert(weights), rows)
        record_change(connection, sender.tenant, sender.token, "weights.set", "weights", {"weights": rows})
        made = _weights(connection)
    service.runner.wake()
    response.headers["ETag"] = etag(made)
    return made


def _weights(connection: Connection) -> dict[str, Any]:
    rows = connection.execute(select(weights).order_by(weights.c.tenant, weights.c.activity)).mappings()
    return {"weights": [{**row, "activity": row["activity"] or None} for row in rows]}
