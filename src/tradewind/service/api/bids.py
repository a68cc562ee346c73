"""`/v1/market/bids`, `lots` and `auctions`: bids for the idle bandwidth of links, and the prices of past hours."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select

from tradewind.service.api.money import Micros
from tradewind.service.api.own_rows import own_row
from tradewind.service.api.pages import Limit, OpaqueCursor, number_of
from tradewind.service.auction_tables import HOUR_MS, SLICES_PER_GBPS, bids
from tradewind.service.auctions import open_links, past_auctions, place_bid, reserve_per_gbps, withdraw_bid
from tradewind.service.auth import Sender, needs
from tradewind.service.database import database_unix_ms
from tradewind.service.limits import BID_HOURS_MAX, PAGE_DEFAULT
from tradewind.service.problems import ApiProblem

__all__ = ["router"]

router = APIRouter(prefix="/v1/market", tags=["market"])
READ, WRITE = needs("jobs:read"), needs("jobs:write")
#: `START>END`, as limits name links.
LINK_NAME = r"^[!-=?-~]+>[!-=?-~]+$"
#: Largest rate of a bid [Gbit/s].
RATE_GBPS_MAX = 10_000
#: Largest price of a Gbit/s for an hour, a million dollars: the cost of a bid stays within the amounts of budgets.
PRICE_USD_MICROS_MAX = 10**12
SLICE_GBPS = 1 / SLICES_PER_GBPS
#: Share of a slice by which a rate may differ from whole slices, since 0.1 has no exact binary form.
ROUNDING = 1e-6
HOUR_MAX = 10**9


class BidRequest(BaseModel):
    """A bid for a link in an hour. The most that it can cost is its rate times its price."""

    model_config = ConfigDict(extra="forbid")

    link: Annotated[str, Field(min_length=3, max_length=500, pattern=LINK_NAME)] = Field(
        description="START>END, for example aws:us-east-1>gcp:europe-west4"
    )
    hour: Annotated[int, Field(ge=0, le=HOUR_MAX)] = Field(description="hours since 1970, UTC")
    rate_gbps: Annotated[float, Field(ge=SLICE_GBPS, le=RATE_GBPS_MAX)] = Field(description="in steps of 0.1 Gbit/s")
    usd_micros: Annotated[int, Field(ge=0, le=PRICE_USD_MICROS_MAX, multiple_of=SLICES_PER_GBPS)] = Field(
        description="the most that 1 Gbit/s for the hour, 450 GB, may cost; in steps of 10 micro-dollars"
    )


class BidView(BaseModel):
    """A bid. `reserved` is held in the budget while it is open; a `void` auction took place too late to be of use.

    When the hour of a winner is over, the part of the charge is refunded for which the service has withheld bandwidth.
    """

    id: str
    link: str
    hour: int
    rate_gbps: float
    usd_micros: Micros
    placed_unix_ms: int
    state: Literal["open", "won", "lost", "void"]
    reserved_usd_micros: int
    won_gbps: float
    charged_usd_micros: int
    refunded_usd_micros: int


class BidPage(BaseModel):
    """Bids of the tenant, newest first. `next` is the cursor of the next page; null on the last one."""

    bids: list[BidView]
    next: str | None


class AuctionView(BaseModel):
    """An auction that is over: the price of 1 Gbit/s for the hour, null if the auction was void."""

    link: str
    hour: int
    usd_micros: int | None


class AuctionPage(BaseModel):
    """Auctions, latest hour first. `next` is the cursor of the next page; null on the last one."""

    auctions: list[AuctionView]
    next: str | None


class LotView(BaseModel):
    """A link that has auctions: bids are open for the hours from `first_hour` to `last_hour` (hours since 1970, UTC).

    `reserve_usd_micros` is the lowest price that 1 Gbit/s can have for an hour.
    """

    link: str
    first_hour: int
    last_hour: int
    reserve_usd_micros: int


class LotPage(BaseModel):
    """Links by name. `next` is the cursor of the next page; null on the last one."""

    lots: list[LotView]
    next: str | None


BidId = Annotated[str, Path(pattern=r"^a-[0-9a-f]{16}$")]


@router.post("/bids", status_code=201, response_model=BidView)
def bid(body: BidRequest, request: Request, response: Response, sender: Sender = WRITE) -> dict[str, Any]:
    """Bid for a link in an hour, before it begins. The winners pay the highest bid that lost, or the reserve."""
    slices = round(body.rate_gbps * SLICES_PER_GBPS)
    if abs(body.rate_gbps * SLICES_PER_GBPS - slices) > ROUNDING:
        raise ApiProblem(422, f"rate_gbps: not a multiple of {SLICE_GBPS:g}", field="body.rate_gbps")
    price = body.usd_micros // SLICES_PER_GBPS
    service = request.app.state.service
    stores = service.connections.stores(sender.tenant)
    with service.database.write() as connection:
        row = place_bid(connection, sender, body.link, body.hour, slices, price, stores)
    response.headers["Location"] = f"/v1/market/bids/{row['id']}"
    return _view(row)


@router.get("/bids", response_model=BidPage)
def list_bids(
    request: Request,
    cursor: OpaqueCursor | None = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = READ,
) -> dict[str, Any]:
    """List the bids of the tenant. Those of others are never shown."""
    service, label = request.app.state.service, (sender.tenant, "bids")
    query = select(bids).where(bids.c.tenant == sender.tenant).order_by(bids.c.number.desc()).limit(limit + 1)
    if cursor is not None:
        query = query.where(bids.c.number < number_of(cursor, service.sealer, *label))
    with service.database.read() as connection:
        rows = list(connection.execute(query).mappings())
    shown = rows[:limit]
    following = service.sealer.opaque(shown[-1]["number"], *label) if len(rows) > limit else None
    return {"bids": [_view(row) for row in shown], "next": following}


@router.get("/bids/{bid_id}", response_model=BidView)
def show_bid(bid_id: BidId, request: Request, sender: Sender = READ) -> dict[str, Any]:
    """Show a bid of the tenant."""
    return _view(own_row(request, sender, bids, bid_id, "bid"))


@router.delete("/bids/{bid_id}", status_code=204, response_class=Response)
def withdraw(bid_id: BidId, request: Request, sender: Sender = WRITE) -> Response:
    """Withdraw a bid before its hour begins, and release its reservation."""
    with request.app.state.service.database.write() as connection:
        withdraw_bid(connection, sender, bid_id)
    return Response(status_code=204)


@router.get("/lots", response_model=LotPage)
def list_lots(
    request: Request,
    cursor: Annotated[str | None, Query(max_length=500, pattern=LINK_NAME)] = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = READ,
) -> dict[str, Any]:
    """List the links with open auctions. A link that names a store is shown to tenants that may use the store."""
    service = request.app.state.service
    stores = service.connections.stores(sender.tenant)
    with service.database.read() as connection:
        now_ms = database_unix_ms(connection)
        links = list(islice(open_links(connection, stores, cursor or "", now_ms), limit + 1))
    hour = now_ms // HOUR_MS
    shown = [
        {
            "link": link,
            "first_hour": hour + 1,
            "last_hour": hour + BID_HOURS_MAX,
            "reserve_usd_micros": reserve_per_gbps(link, service.grid.rate_gbps),
        }
        for link in links[:limit]
    ]
    return {"lots": shown, "next": links[limit - 1] if len(links) > limit else None}


@router.get("/auctions", response_model=AuctionPage)
def list_auctions(
    request: Request,
    cursor: Annotated[str | None, Query(max_length=520, pattern=r"^[0-9]{1,10} [!-~]*$")] = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = READ,
) -> dict[str, Any]:
    """List the prices of past hours, for all links that had bids. Those that name a store are shown as in `lots`.

    A page may have few auctions, or none, and a `next`: those of many hours were not for the tenant.
    """
    service = request.app.state.service
    stores = service.connections.stores(sender.tenant)
    before = None
    if cursor is not None:
        hour, _, link = cursor.partition(" ")
        before = int(hour), link
    with service.database.read() as connection:
        rows, following = past_auctions(connection, stores, before, limit)
    shown = [{"link": row["link"], "hour": row["hour"], "usd_micros": _per_gbps(row)} for row in rows]
    return {"auctions": shown, "next": None if following is None else f"{following[0]} {following[1]}"}


def _per_gbps(row: Any) -> int | None:
    return None if row["usd_micros"] is None else row["usd_micros"] * SLICES_PER_GBPS


def _view(row: Any) -> dict[str, Any]:
    shown = {name: row[name] for name in BidView.model_fields if name not in ("rate_gbps", "won_gbps")}
    rates = {"rate_gbps": row["slices"] / SLICES_PER_GBPS, "won_gbps": row["won_slices"] / SLICES_PER_GBPS}
    return {**shown, **rates, "usd_micros": _per_gbps(row)}
