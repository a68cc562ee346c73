"""`/v1/links`: the links that have limits, bans or jobs, for operators of the service."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from tradewind.service.api.bans import BanView
from tradewind.service.api.limits import RESOURCE_NAME
from tradewind.service.api.pages import Limit
from tradewind.service.api.tenants import TENANTS
from tradewind.service.auth import Sender
from tradewind.service.limits import PAGE_DEFAULT
from tradewind.service.link_states import link_states

__all__ = ["router"]

router = APIRouter(prefix="/v1/links", tags=["scheduling"])


class LinkLimitView(BaseModel):
    """The maximum that may run on a link. Null means no limit, and 0 closes the link."""

    active: int | None
    rate_gbps: float | None
    usd_per_day: float | None


class LinkLoadView(BaseModel):
    """The active jobs of a link, and the sum of the rates that they were granted [Gbit/s]."""

    jobs: int
    rate_gbps: float


class LinkStateView(BaseModel):
    """A link: the rate of one machine pair if it is known [Gbit/s], its limit, its bans and windows, and its load."""

    name: str
    src: str
    dst: str
    known_gbps: float | None
    limit: LinkLimitView | None
    bans: list[BanView]
    load: LinkLoadView


class LinkStatePage(BaseModel):
    """Links by name. `next` is the cursor of the next page; null on the last one."""

    links: list[LinkStateView]
    next: str | None


@router.get("", response_model=LinkStatePage)
def links(
    request: Request,
    cursor: Annotated[str | None, Query(max_length=500, pattern=RESOURCE_NAME)] = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = TENANTS,
) -> dict[str, Any]:
    """List the links that have a limit, a ban, a maintenance window or active jobs. All others are free."""
    service = request.app.state.service
    with service.database.read() as connection:
        found = [one for one in link_states(connection) if cursor is None or one.name > cursor]
    page = []
    for one in found[:limit]:
        src, _, dst = one.name.partition(">")
        load = {"jobs": one.jobs, "rate_gbps": one.rate_gbps}
        known_gbps = service.grid.rate_gbps(src, dst)
        page.append(
            {
                "name": one.name,
                "src": src,
                "dst": dst,
                "known_gbps": known_gbps,
                "limit": one.limit,
                "bans": one.bans,
                "load": load,
            }
        )
    return {"links": page, "next": found[limit - 1].name if len(found) > limit else None}
