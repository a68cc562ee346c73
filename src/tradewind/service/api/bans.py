"""`/v1/bans` and `/v1/maintenance`: resources that operators have closed, at once or at a known time."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from sqlalchemy import delete, func, insert, select

from tradewind.service.api.known_tenants import require_tenants
from tradewind.service.api.limits import RESOURCE_NAME
from tradewind.service.api.tenants import TENANTS
from tradewind.service.auth import Sender
from tradewind.service.database import database_unix_ms, record_change
from tradewind.service.limits import BANS_MAX
from tradewind.service.problems import ApiProblem
from tradewind.service.scheduler.jobs import TENANT
from tradewind.service.scheduling_tables import bans

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["scheduling"])
BanId = Annotated[str, Path(pattern=r"^[bm]-[0-9a-f]{8}$")]
UnixMs = Annotated[int, Field(ge=0, le=10**14)]


class BanRequest(BaseModel):
    """A resource to close. `stops_jobs` also stops running jobs, and `refuses_jobs` also refuses new ones."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["store", "store-in", "store-out", "link", "site", "tenant"]
    name: str = Field(min_length=1, max_length=500, pattern=RESOURCE_NAME)
    reason: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")
    stops_jobs: bool = Field(False, description="stop running jobs; they wait, and use no attempt")
    refuses_jobs: bool = Field(False, description="answer new submissions with 409")
    end_unix_ms: UnixMs | None = Field(None, description="when the ban ends by itself")


class MaintenanceRequest(BanRequest):
    """A ban with a start and an end."""

    start_unix_ms: UnixMs
    end_unix_ms: UnixMs

    @model_validator(mode="after")
    def _ends_after_start(self) -> MaintenanceRequest:
        if self.end_unix_ms <= self.start_unix_ms:
            raise ValueError("the window ends before it starts")
        return self


class BanView(BaseModel):
    """A ban or maintenance window."""

    id: str
    kind: str
    name: str
    reason: str
    stops_jobs: bool
    refuses_jobs: bool
    start_unix_ms: int
    end_unix_ms: int | None


class BanList(BaseModel):
    """Bans that have not ended."""

    bans: list[BanView]


class MaintenanceList(BaseModel):
    """Maintenance windows that have not ended."""

    windows: list[BanView]


@router.get("/bans", response_model=BanList)
def list_bans(request: Request, sender: Sender = TENANTS) -> dict[str, Any]:
    """List the bans that have not ended."""
    return {"bans": _listed(request, is_maintenance=False)}


@router.post("/bans", status_code=201, response_model=BanView)
def ban(body: BanRequest, request: Request, sender: Sender = TENANTS) -> dict[str, Any]:
    """Close a resource now."""
    return _add(request, sender, body.model_dump(), is_maintenance=False)


@router.delete("/bans/{ban_id}", status_code=204, response_class=Response)
def lift(ban_id: BanId, request: Request, sender: Sender = TENANTS) -> Response:
    """Lift a ban. Jobs that waited for its end may start."""
    return _remove(request, sender, ban_id, is_maintenance=False)


@router.get("/maintenance", response_model=MaintenanceList)
def list_maintenance(request: Request, sender: Sender = TENANTS) -> dict[str, Any]:
    """List the maintenance windows that have not ended."""
    return {"windows": _listed(request, is_maintenance=True)}


@router.post("/maintenance", status_code=201, response_model=BanView)
def plan_maintenance(body: MaintenanceRequest, request: Request, sender: Sender = TENANTS) -> dict[str, Any]:
    """Close a resource between two times."""
    return _add(request, sender, body.model_dump(), is_maintenance=True)


@router.delete("/maintenance/{ban_id}", status_code=204, response_class=Response)
def cancel_maintenance(ban_id: BanId, request: Request, sender: Sender = TENANTS) -> Response:
    """Cancel a maintenance window, or end it now."""
    return _remove(request, sender, ban_id, is_maintenance=True)


def _listed(request: Request, *, is_maintenance: bool) -> list[dict[str, Any]]:
    with request.app.state.service.database.read() as connection:
        is_over = _is_over(database_unix_ms(connection))
        query = select(bans).where(bans.c.is_maintenance == int(is_maintenance), ~is_over)
        return [dict(row) for row in connection.execute(query.order_by(bans.c.start_unix_ms)).mappings()]


def _is_over(clock_ms: int) -> Any:
    return func.coalesce(bans.c.end_unix_ms, 2**62) <= clock_ms


def _add(request: Request, sender: Sender, fields: dict[str, Any], *, is_maintenance: bool) -> dict[str, Any]:
    """Record a closed resource. A ban begins now; a maintenance window has a start of its own."""
    service = request.app.state.service
    ban_id = f"{'m' if is_maintenance else 'b'}-{secrets.token_hex(4)}"
    with service.database.write() as connection:
        require_tenants(connection, {"body.name": fields["name"]} if fields["kind"] == TENANT else {})
        clock_ms = database_unix_ms(connection)
        fields = {"start_unix_ms": clock_ms, **fields}
        connection.execute(delete(bans).where(_is_over(clock_ms)))
        if connection.execute(select(func.count()).select_from(bans)).scalar_one() >= BANS_MAX:
            raise ApiProblem(409, f"{BANS_MAX:,} bans and maintenance windows have not ended")
        flags = {name: int(fields[name]) for name in ("stops_jobs", "refuses_jobs")}
        row = {**fields, **flags, "id": ban_id, "is_maintenance": int(is_maintenance)}
        connection.execute(insert(bans).values(**row))
        record_change(connection, sender.tenant, sender.token, "ban.set", ban_id, fields)
    service.runner.wake()
    return row


def _remove(request: Request, sender: Sender, ban_id: str, *, is_maintenance: bool) -> Response:
    service = request.app.state.service
    with service.database.write() as connection:
        mine = bans.c.id == ban_id, bans.c.is_maintenance == int(is_maintenance)
        if connection.execute(delete(bans).where(*mine)).rowcount == 0:
            raise ApiProblem(404, "no such ban" if not is_maintenance else "no such maintenance window")
        record_change(connection, sender.tenant, sender.token, "ban.lift", ban_id)
    service.runner.wake()
    return Response(status_code=204)
