"""The queue of events for webhooks. An event is queued in the transaction that changes the job, so none is lost."""

from __future__ import annotations

import json
import secrets

from sqlalchemy import Connection, func, insert, select, update

from tradewind.service.database import database_unix_ms
from tradewind.service.limits import DELIVERIES_PENDING_MAX
from tradewind.service.tables import deliveries, jobs, webhooks

__all__ = ["enqueue_event", "pending_count"]


def enqueue_event(connection: Connection, job_id: str, number: int, state: str, reason: str | None) -> None:
    """Queue a change of a job for the webhooks of its tenant. With a full queue the event is dropped and counted."""
    tenant = connection.execute(select(jobs.c.tenant).where(jobs.c.id == job_id)).scalar_one()
    found = connection.execute(select(webhooks.c.id, webhooks.c.states).where(webhooks.c.tenant == tenant)).all()
    wanted = [row.id for row in found if state in json.loads(row.states)]
    if not wanted:
        return
    now, left = database_unix_ms(connection), DELIVERIES_PENDING_MAX - pending_count(connection, tenant)
    event = {"job_id": job_id, "number": number, "state": state, "reason": reason, "at_unix_ms": now}
    for webhook in wanted[max(left, 0) :]:
        connection.execute(update(webhooks).where(webhooks.c.id == webhook).values(dropped=webhooks.c.dropped + 1))
    for webhook in wanted[: max(left, 0)]:
        delivery_id = secrets.token_hex(8)
        connection.execute(
            insert(deliveries).values(
                id=delivery_id,
                tenant=tenant,
                webhook=webhook,
                body=json.dumps({"id": delivery_id, "event": "job.state", **event}),
                state="pending",
                attempts=0,
                next_unix_ms=now,
                created_unix_ms=now,
            )
        )


def pending_count(connection: Connection, tenant: str) -> int:
    """Return the number of pending deliveries of a tenant."""
    query = select(func.count()).where(deliveries.c.tenant == tenant, deliveries.c.state == "pending")
    return int(connection.execute(query).scalar_one())
