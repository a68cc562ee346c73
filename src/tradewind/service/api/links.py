"""`/v1/links`: links with their limits, bans, load and tuning, and the decisions on them, for operators."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from tradewind.service.api.bans import BanView
from tradewind.service.api.limits import RESOURCE_NAME
from tradewind.service.api.pages import Limit
from tradewind.service.api.tenants import TENANTS
from tradewind.service.auth import Sender
from tradewind.service.limits import PAGE_DEFAULT
from tradewind.service.link_decisions import Decider, decisions_page
from tradewind.service.link_states import link_states
from tradewind.service.utilisation import link_shares

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


class LinkTuningView(BaseModel):
    """The decisions of the scheduler about a link: the most jobs at once, and the requests that jobs begin with.

    `goodput_gbps` is the moving average while jobs run [Gbit/s], and `success` that of its runs, from 0 to 1.
    """

    jobs_max: int
    read_requests: int
    write_requests: int
    goodput_gbps: float
    success: float
    updated_unix_ms: int


class LinkStateView(BaseModel):
    """A link: the rate of one machine pair if it is known [Gbit/s], its limit, its bans and windows, and its load.

    `tuning` is null if no job has run on it. `utilisation` is smoothed over hours, and prices follow it.
    """

    name: str
    src: str
    dst: str
    known_gbps: float | None
    limit: LinkLimitView | None
    bans: list[BanView]
    load: LinkLoadView
    utilisation: float
    tuning: LinkTuningView | None


class LinkStatePage(BaseModel):
    """Links by name. `next` is the cursor of the next page; null on the last one."""

    links: list[LinkStateView]
    next: str | None


class LinkDecisionView(BaseModel):
    """A decision on a link: of the scheduler for the next jobs, or of the gateways in a run of `job`.

    `what` changed from `before` to `now`: the jobs at once; or the requests to the source (`read`) or to a destination
    (`write`), or the connections that send at the same time (`network`). Of the scheduler, requests are those that each
    gateway begins with; of gateways, those of all gateways in the run.
    """

    number: int
    link: str
    at_unix_ms: int
    job: str | None
    what: Literal["jobs", "read", "network", "write"]
    before: int
    now: int
    reason: str


class LinkDecisionPage(BaseModel):
    """Decisions, newest first. `next` is the cursor of the next page; null on the last one."""

    decisions: list[LinkDecisionView]
    next: int | None


@router.get("", response_model=LinkStatePage)
def links(
    request: Request,
    cursor: Annotated[str | None, Query(max_length=500, pattern=RESOURCE_NAME)] = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = TENANTS,
) -> dict[str, Any]:
    """List the links that have a limit, a ban or a maintenance window, or have run jobs."""
    service = request.app.state.service
    with service.database.read() as connection:
        found = [one for one in link_states(connection) if cursor is None or one.name > cursor]
        shares = link_shares(connection)
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
                "utilisation": shares.get(one.name, 0.0),
                "tuning": one.tuning,
            }
        )
    return {"links": page, "next": found[limit - 1].name if len(found) > limit else None}


@router.get("/decisions", response_model=LinkDecisionPage)
def decisions(
    request: Request,
    link: Annotated[str | None, Query(max_length=500, pattern=RESOURCE_NAME)] = None,
    by: Decider | None = None,
    cursor: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = TENANTS,
) -> dict[str, Any]:
    """List what was decided about links and why, newest first.

    `by` is who has decided. Of each link, the latest 200 decisions of each are kept.
    """
    with request.app.state.service.database.read() as connection:
        found = decisions_page(connection, link=link, before=cursor, limit=limit + 1, by=by)
    shown = found[:limit]
    return {"decisions": shown, "next": shown[-1]["number"] if len(found) > limit else None}
