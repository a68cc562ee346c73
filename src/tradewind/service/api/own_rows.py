"""Rows of a tenant by their ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Request
from sqlalchemy import Table, select

from tradewind.service.auth import Sender
from tradewind.service.problems import ApiProblem

__all__ = ["own_row"]


def own_row(request: Request, sender: Sender, table: Table, row_id: str, what: str) -> Mapping[Any, Any]:
    """Return a row of the sender's tenant. Raises ApiProblem 404, which names `what`, also for those of others."""
    query = select(table).where(table.c.id == row_id, table.c.tenant == sender.tenant)
    with request.app.state.service.database.read() as connection:
        row: Mapping[Any, Any] | None = connection.execute(query).mappings().first()
    if row is None:
        raise ApiProblem(404, f"no such {what}")
    return row
