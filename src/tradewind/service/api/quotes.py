"""`/v1/quotes`: the price of a job before it is submitted."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from tradewind.errors import TradewindError
from tradewind.service.api.job_requests import QUOTE_ID, JobRequest, resolved_request
from tradewind.service.api.jobs import READ, WRITE
from tradewind.service.auth import Sender
from tradewind.service.connections import named_in_error
from tradewind.service.engine_request import engine_request, guest_of
from tradewind.service.failures import tenant_error
from tradewind.service.limits import QUOTE_S_DEFAULT, QUOTE_S_MAX
from tradewind.service.problems import ApiProblem
from tradewind.service.quotes import quote_of
from tradewind.service.told import hides_words

__all__ = ["router"]

_LOG = logging.getLogger("tradewind.service")
router = APIRouter(prefix="/v1/quotes", tags=["quotes"])


class QuoteRequest(JobRequest):
    """A transfer to price, in the same form as a job."""

    kept_s: int = Field(QUOTE_S_DEFAULT, ge=1, le=QUOTE_S_MAX, description="time for which the price is kept [s]")


class PriceLine(BaseModel):
    """A part of a price."""

    what: str
    usd_micros: int


class QuoteView(BaseModel):
    """A quote. The job is charged at most `usd_micros`; it stops if it has to send more than `max_bytes`.

    `routes` is the number of routes between machines in the plan; null on the server's own machine. What compression
    will save is not known, so the price is that of uncompressed bytes.
    """

    id: str
    usd_micros: int
    lines: list[PriceLine]
    made_unix_ms: int
    expires_unix_ms: int
    objects: int
    volume_bytes: int
    max_bytes: int
    plan: str
    routes: int | None = None
    rate_gbps: float | None
    notes: list[str]
    job: str | None


@router.post("", status_code=201, response_model=QuoteView)
def make(body: QuoteRequest, request: Request, sender: Sender = WRITE) -> dict[str, Any]:
    """Count the source, and return a price that is kept until the quote expires. Nothing is copied."""
    if body.quote is not None:
        raise ApiProblem(422, "a quote needs source and destination, not another quote")
    document, owned, links = resolved_request(body, request, sender)
    kept_s = document.pop("kept_s")
    service, by = request.app.state.service, (sender.tenant, sender.token)
    use = service.connections.use_of(sender.tenant, document)
    engine = engine_request(
        document, use, service.settings.machines, guest_of(document, service.settings.guest_addresses)
    )
    credentials = None if use is None else use.credentials
    try:
        made: dict[str, Any] = service.quotes.make(by, engine, document, owned, links, kept_s, credentials)
    except TradewindError as error:
        named = named_in_error(error, document)
        told = tenant_error(named, hides_words=hides_words(document, service.settings))
        if str(told) != str(named):
            _LOG.error("quote for %s: %s", sender.tenant, error)
        raise told from None
    return made


@router.get("/{quote_id}", response_model=QuoteView)
def show(quote_id: Annotated[str, Path(pattern=QUOTE_ID)], request: Request, sender: Sender = READ) -> dict[str, Any]:
    """Show a quote, also an expired one for a day."""
    with request.app.state.service.database.read() as connection:
        row = quote_of(connection, quote_id, sender.tenant)
    return {**row, **json.loads(row["view"])}
