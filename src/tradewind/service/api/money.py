"""`/v1/tenants/NAME/budget`, `/v1/tariffs` and `/v1/invoices`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, insert, select

from tradewind.market.tariff import Tariff
from tradewind.model.document import to_document
from tradewind.service.api.etags import IfMatch, etag, require_match
from tradewind.service.api.pages import Limit
from tradewind.service.api.tenants import AUDIT, NAME, TENANTS
from tradewind.service.auth import Sender, needs
from tradewind.service.budgets import budget_view, write_budget
from tradewind.service.database import database_unix_ms, record_change
from tradewind.service.invoices import INVOICE_ID, csv_of, invoice_months, invoice_of
from tradewind.service.limits import PAGE_DEFAULT, TARIFF_USD_MICROS_MAX, TARIFFS_MAX
from tradewind.service.money_tables import tariffs
from tradewind.service.prices import price_time_ms, tariffs_at
from tradewind.service.problems import ApiProblem
from tradewind.service.tables import tenants

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["money"])
READ = needs("jobs:read")
Name = Annotated[str, Path(pattern=NAME)]
Text = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
#: Largest amount of a limit or a price, a billion dollars: sums stay within 64 bits.
Micros = Annotated[int, Field(ge=0, le=10**15)]
TariffMicros = Annotated[int, Field(ge=0, le=TARIFF_USD_MICROS_MAX)]
UnixS = Annotated[float, Field(ge=0, le=10**11)]


class BudgetRequest(BaseModel):
    """A limit on what a tenant is charged in each day or month (UTC); null removes it."""

    model_config = ConfigDict(extra="forbid")

    limit_usd_micros: Micros | None
    period: Literal["day", "month"] = "month"


class BudgetView(BaseModel):
    """A budget in this period. Spent plus reserved is at most the limit; `left` can still be reserved."""

    tenant: str
    period: str
    period_start_unix_ms: int
    limit_usd_micros: int
    spent_usd_micros: int
    reserved_usd_micros: int
    left_usd_micros: int


class Tier(BaseModel):
    """A price that applies from a monthly quantity upwards, in GB of 10^9 bytes or in hours.

    With `usd_micros_per_unit_max` it rises with the utilisation of the link: the lower price applies up to 25%, the
    upper one from 90%, and between them it is linear.
    """

    model_config = ConfigDict(extra="forbid")

    from_quantity: Annotated[int, Field(ge=0, le=10**12)]
    usd_micros_per_unit: TariffMicros
    usd_micros_per_unit_max: TariffMicros | None = None


class TariffDocument(BaseModel):
    """A tariff for some links; `*` stands for any region."""

    model_config = ConfigDict(extra="forbid")

    name: Text
    unit: Literal["GB", "hour"]
    tiers: Annotated[list[Tier], Field(min_length=1, max_length=100)]
    src: Text = "*"
    dst: Text = "*"
    valid_from_s: UnixS = 0.0
    valid_until_s: UnixS | None = None


class PriceList(BaseModel):
    """All tariffs of the service."""

    model_config = ConfigDict(extra="forbid")

    tariffs: Annotated[list[TariffDocument], Field(max_length=TARIFFS_MAX)]


class InvoiceLineView(BaseModel):
    """A line: the job or bid, what it is for, the exact amount, and the cents that add up to the total."""

    subject: str
    what: str
    usd_micros: int
    cents: int


class InvoiceView(BaseModel):
    """The charges of a tenant in a month (UTC). They are final 10 minutes after its end."""

    id: str
    number: str
    tenant: str
    month: str
    final: bool
    total_cents: int
    lines: list[InvoiceLineView]


class InvoiceEntry(BaseModel):
    """A month with charges."""

    id: str
    tenant: str
    month: str
    final: bool


class InvoicePage(BaseModel):
    """Invoices, newest month first. `next` is the cursor of the next page; null on the last one."""

    invoices: list[InvoiceEntry]
    next: str | None


@router.get("/tenants/{name}/budget", response_model=BudgetView)
def show_budget(name: Name, request: Request, sender: Sender = READ) -> dict[str, Any]:
    """Show the budget of the tenant; a service admin sees those of all."""
    if name != sender.tenant and "tenants" not in sender.scopes:
        raise ApiProblem(404, "no such tenant")
    with request.app.state.service.database.read() as connection:
        found = budget_view(connection, name, database_unix_ms(connection))
    if found is None:
        raise ApiProblem(404, f"tenant {name} has no budget", hint="a service admin can set one")
    return found


@router.put(
    "/tenants/{name}/budget", response_model=BudgetView, responses={204: {"description": "The budget is removed."}}
)
def set_budget(name: Name, body: BudgetRequest, request: Request, sender: Sender = TENANTS) -> Any:
    """Set the budget of a tenant. It applies to jobs submitted from now on, which then need a quote."""
    with request.app.state.service.database.write() as connection:
        now = database_unix_ms(connection)
        if connection.execute(select(tenants.c.name).where(tenants.c.name == name)).first() is None:
            raise ApiProblem(404, "no such tenant")
        write_budget(connection, name, body.limit_usd_micros, body.period, now)
        record_change(connection, sender.tenant, sender.token, "budget.set", name, body.model_dump())
        found = budget_view(connection, name, now)
    return Response(status_code=204) if found is None else found


@router.get("/tariffs", response_model=PriceList)
def show_tariffs(request: Request, response: Response, sender: Sender = READ) -> dict[str, Any]:
    """Show the price list in force. Without tariffs, jobs are charged their machines, egress and requests."""
    with request.app.state.service.database.read() as connection:
        found = _price_list(connection)
    response.headers["ETag"] = etag(found)
    return found


@router.put("/tariffs", response_model=PriceList)
def set_tariffs(
    body: PriceList, request: Request, response: Response, if_match: IfMatch = None, sender: Sender = TENANTS
) -> dict[str, Any]:
    """Replace the price list. Quotes, and jobs that were submitted before, keep their prices.

    With the ETag of an answer in `If-Match`, it is replaced only if it is still that of that answer.
    """
    made = [to_document(Tariff.from_document(entry.model_dump())) for entry in body.tariffs]
    with request.app.state.service.database.write() as connection:
        require_match(if_match, _price_list(connection))
        # After the jobs that were submitted before, also if the clock was set back since.
        set_unix_ms = price_time_ms(connection, database_unix_ms(connection)) + 1
        connection.execute(insert(tariffs).values(set_unix_ms=set_unix_ms, document=json.dumps(made)))
        record_change(connection, sender.tenant, sender.token, "tariffs.set", "tariffs", {"count": len(made)})
        found = _price_list(connection)
    response.headers["ETag"] = etag(found)
    return found


def _price_list(connection: Connection) -> dict[str, Any]:
    """Return the price list in force."""
    found = tariffs_at(connection, price_time_ms(connection, database_unix_ms(connection)))
    return {"tariffs": [to_document(tariff) for tariff in found]}


@router.get("/invoices", response_model=InvoicePage)
def list_invoices(
    request: Request,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{4}-[0-9]{2}$")] = None,
    tenant: Annotated[str | None, Query(pattern=NAME)] = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = AUDIT,
) -> dict[str, Any]:
    """List the months in which the tenant was charged. `tenant` is only for a service admin."""
    whose = _require_own(sender, tenant or sender.tenant)
    with request.app.state.service.database.read() as connection:
        months = [month for month in invoice_months(connection, whose) if cursor is None or month["month"] < cursor]
    return {"invoices": months[:limit], "next": months[limit - 1]["month"] if len(months) > limit else None}


@router.get("/invoices/{invoice_id}", response_model=InvoiceView, responses={200: {"content": {"text/csv": {}}}})
def show_invoice(
    invoice_id: Annotated[str, Path(pattern=INVOICE_ID)],
    request: Request,
    format: Literal["json", "csv"] | None = None,
    accept: Annotated[str, Header(max_length=1000)] = "",
    sender: Sender = AUDIT,
) -> Any:
    """Show an invoice: as JSON, or as CSV with `format=csv` or `Accept: text/csv`. Its lines add up to the cent."""
    month, tenant = invoice_id.split(".")
    _require_own(sender, tenant)
    with request.app.state.service.database.read() as connection:
        found = invoice_of(connection, tenant, month)
    if found is None:
        raise ApiProblem(404, "no such invoice", hint="GET /v1/invoices lists them")
    if format == "csv" or (format is None and accept.startswith("text/csv")):
        return Response(csv_of(found), media_type="text/csv")
    return found


def _require_own(sender: Sender, tenant: str) -> str:
    if tenant != sender.tenant and "tenants" not in sender.scopes:
        raise ApiProblem(404, "no such invoice")
    return tenant
