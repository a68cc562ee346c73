"""`/v1/grid`: the rates of links, as transfers have observed them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel

from tradewind.engine.grid_export import COLUMNS, HISTORY_COLUMNS, GridRow, grid_csv, grid_parquet, history_rows
from tradewind.service.api.pages import Limit
from tradewind.service.auth import Sender, needs
from tradewind.service.limits import PAGE_DEFAULT
from tradewind.service.problems import ApiProblem

__all__ = ["router"]

router = APIRouter(prefix="/v1/grid", tags=["grid"])
READ = needs("jobs:read")
REGION = r"^[a-z]+:[a-zA-Z0-9_-]{1,64}$"
PARQUET = "application/vnd.apache.parquet"
Format = Literal["json", "csv", "parquet"]
RegionName = Annotated[str | None, Query(pattern=REGION)]


class Observation(BaseModel):
    """The rate that one transfer observed. `at_least` is true if something else than the link limited it."""

    date: str
    gbps: float
    at_least: bool


class LinkView(BaseModel):
    """A link: rate of one machine pair [Gbit/s], round trip [ms], source, date, and confidence from 0 to 1."""

    src: str
    dst: str
    gbps: float
    rtt_ms: float | None
    kind: str
    source: str
    date: str
    confidence: float
    transfers: int
    history: list[Observation]


class GridPage(BaseModel):
    """Links by source and destination. `next` is the cursor of the next page; null on the last one."""

    links: list[LinkView]
    next: str | None


@router.get("", response_model=GridPage, responses={200: {"content": {"text/csv": {}, PARQUET: {}}}})
def grid(
    request: Request,
    src: RegionName = None,
    dst: RegionName = None,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,9}$")] = None,
    limit: Limit = PAGE_DEFAULT,
    format: Format | None = None,
    history: bool = False,
    accept: Annotated[str, Header(max_length=1000)] = "",
    sender: Sender = READ,
) -> Any:
    """List links with the history of their rates. `format` or `Accept` chooses CSV or Parquet, which have all links.

    With `history`, CSV and Parquet have a row for each observation of a link instead of one for each link.
    """
    rows = [
        row
        for row in request.app.state.service.grid.rows()
        if (src is None or row.src == src) and (dst is None or row.dst == dst)
    ]
    wanted = format or _accepted(accept)
    columns = HISTORY_COLUMNS if history else COLUMNS
    if wanted == "csv":
        return Response("".join(grid_csv(_table(rows, history), columns)), media_type="text/csv")
    if wanted == "parquet":
        if not find_spec("pyarrow"):
            raise ApiProblem(406, "this server cannot write Parquet", hint="use CSV; the operator can install pyarrow")
        return Response(grid_parquet(_table(rows, history), columns), media_type=PARQUET)
    start = int(cursor or 0)
    page = [row.document() for row in rows[start : start + limit]]
    return {"links": page, "next": str(start + limit) if start + limit < len(rows) else None}


def _table(rows: Sequence[GridRow], has_history: bool) -> list[dict[str, Any]]:
    return history_rows(rows) if has_history else [row.columns() for row in rows]


def _accepted(accept: str) -> Format:
    kind = accept.split(",", maxsplit=1)[0].split(";", maxsplit=1)[0].strip().lower()
    return {"text/csv": "csv", PARQUET: "parquet"}.get(kind, "json")  # type: ignore[return-value]
