"""`/v1/webhooks`: receivers of a tenant's events, and their deliveries."""

from __future__ import annotations

import json
import secrets
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, delete, func, insert, select, update

from tradewind.service.api.pages import Limit
from tradewind.service.auth import Sender, needs, require_not_revoked
from tradewind.service.database import database_unix_ms, record_change
from tradewind.service.limits import DELIVERIES_PENDING_MAX, PAGE_DEFAULT, WEBHOOKS_PER_TENANT_MAX
from tradewind.service.problems import ApiProblem
from tradewind.service.receivers import require_webhook_url
from tradewind.service.tables import deliveries, webhooks
from tradewind.service.webhooks import pending_count

__all__ = ["router"]

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])
WEBHOOKS = needs("webhooks")
ID = r"^[0-9a-f]{16}$"
Id = Annotated[str, Path(pattern=ID)]
Cursor = Annotated[str | None, Query(pattern=ID)]
State = Literal["waiting", "running", "pausing", "stopping", "cancelling", "paused", "done", "failed", "cancelled"]
SECRET_BYTES = 32


class WebhookRequest(BaseModel):
    """A new webhook: the URL that gets the events, and the states that it gets."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=2048, pattern=r"^[!-~]+$")
    states: list[State] = Field(["done", "failed", "cancelled"], min_length=1, max_length=9)


class WebhookView(BaseModel):
    """A webhook. `dropped` counts events that were dropped because the queue was full."""

    id: str
    url: str
    states: list[State]
    dropped: int
    created_unix_ms: int


class NewWebhook(WebhookView):
    """A new webhook with the secret that signs its events, which is shown only once."""

    secret: str


class WebhookPage(BaseModel):
    """Webhooks by id. `next` is the cursor of the next page; null on the last one."""

    webhooks: list[WebhookView]
    next: str | None


class DeliveryView(BaseModel):
    """A delivery. `error` is the error of the last attempt."""

    id: str
    state: Literal["pending", "delivered", "failed"]
    attempts: int
    error: str | None
    created_unix_ms: int
    body: dict[str, Any]


class DeliveryPage(BaseModel):
    """Deliveries by id. `next` is the cursor of the next page; null on the last one."""

    deliveries: list[DeliveryView]
    next: str | None


@router.post("", status_code=201, response_model=NewWebhook)
def make(body: WebhookRequest, request: Request, response: Response, sender: Sender = WEBHOOKS) -> dict[str, Any]:
    """Make a webhook. Its URL is checked again at each delivery."""
    service = request.app.state.service
    require_webhook_url(body.url, service.settings.webhook_networks)
    webhook_id, secret = secrets.token_hex(8), secrets.token_urlsafe(SECRET_BYTES)
    states = sorted(set(body.states))
    sealed = service.sealer.seal(secret, sender.tenant, f"webhook {webhook_id}")
    with service.database.write() as connection:
        require_not_revoked(connection, sender)
        count = select(func.count()).where(webhooks.c.tenant == sender.tenant)
        if connection.execute(count).scalar_one() >= WEBHOOKS_PER_TENANT_MAX:
            raise ApiProblem(409, f"the tenant has {WEBHOOKS_PER_TENANT_MAX} webhooks", hint="delete one")
        made = {"id": webhook_id, "url": body.url, "dropped": 0, "created_unix_ms": database_unix_ms(connection)}
        connection.execute(
            insert(webhooks).values(**made, tenant=sender.tenant, states=json.dumps(states), sealed=sealed)
        )
        record_change(connection, sender.tenant, sender.token, "webhook.make", webhook_id)
    response.headers["Cache-Control"] = "no-store"
    return {**made, "states": states, "secret": secret}


@router.get("", response_model=WebhookPage)
def list_webhooks(
    request: Request, cursor: Cursor = None, limit: Limit = PAGE_DEFAULT, sender: Sender = WEBHOOKS
) -> dict[str, Any]:
    """List the webhooks of the tenant, without their secrets."""
    query = select(webhooks).where(webhooks.c.tenant == sender.tenant, webhooks.c.id > (cursor or ""))
    with request.app.state.service.database.read() as connection:
        found = connection.execute(query.order_by(webhooks.c.id).limit(limit + 1)).mappings()
        rows = [{**row, "states": json.loads(row["states"])} for row in found]
    return {"webhooks": rows[:limit], "next": rows[limit - 1]["id"] if len(rows) > limit else None}


@router.delete("/{webhook_id}", status_code=204)
def remove(webhook_id: Id, request: Request, sender: Sender = WEBHOOKS) -> None:
    """Delete a webhook with its deliveries."""
    with request.app.state.service.database.write() as connection:
        _require(connection, sender, webhook_id)
        connection.execute(delete(deliveries).where(deliveries.c.webhook == webhook_id))
        connection.execute(delete(webhooks).where(webhooks.c.id == webhook_id))
        record_change(connection, sender.tenant, sender.token, "webhook.delete", webhook_id)


@router.get("/{webhook_id}/deliveries", response_model=DeliveryPage)
def list_deliveries(
    webhook_id: Id, request: Request, cursor: Cursor = None, limit: Limit = PAGE_DEFAULT, sender: Sender = WEBHOOKS
) -> dict[str, Any]:
    """List the deliveries of a webhook. Those that ended more than 7 days ago are removed."""
    query = select(deliveries).where(deliveries.c.webhook == webhook_id, deliveries.c.id > (cursor or ""))
    with request.app.state.service.database.read() as connection:
        _require(connection, sender, webhook_id)
        found = connection.execute(query.order_by(deliveries.c.id).limit(limit + 1)).mappings()
        rows = [{**row, "body": json.loads(row["body"])} for row in found]
    return {"deliveries": rows[:limit], "next": rows[limit - 1]["id"] if len(rows) > limit else None}


@router.post("/{webhook_id}/deliveries/{delivery_id}/replay", status_code=202, response_model=DeliveryView)
def replay(webhook_id: Id, delivery_id: Id, request: Request, sender: Sender = WEBHOOKS) -> dict[str, Any]:
    """Send an event again, with the same id and a new count of attempts."""
    this = (deliveries.c.id == delivery_id) & (deliveries.c.webhook == webhook_id)
    with request.app.state.service.database.write() as connection:
        _require(connection, sender, webhook_id)
        row = connection.execute(select(deliveries).where(this)).mappings().first()
        if row is None:
            raise ApiProblem(404, "no such delivery")
        if row["state"] == "pending":
            raise ApiProblem(409, "the delivery is pending")
        if pending_count(connection, sender.tenant) >= DELIVERIES_PENDING_MAX:
            raise ApiProblem(429, f"{DELIVERIES_PENDING_MAX:,} deliveries are pending", headers={"Retry-After": "60"})
        values = {"state": "pending", "attempts": 0, "next_unix_ms": database_unix_ms(connection)}
        connection.execute(update(deliveries).where(this).values(**values))
        record_change(connection, sender.tenant, sender.token, "webhook.replay", delivery_id)
    return {**row, **values, "body": json.loads(row["body"])}


def _require(connection: Connection, sender: Sender, webhook_id: str) -> None:
    """Raise ApiProblem 404 unless a webhook is of the sender's tenant."""
    query = select(webhooks.c.id).where(webhooks.c.id == webhook_id, webhooks.c.tenant == sender.tenant)
    if connection.execute(query).first() is None:
        raise ApiProblem(404, "no such webhook")
