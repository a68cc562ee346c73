"""Pages of lists: the number of their entries, and cursors that do not show how many rows other tenants have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import Query

from tradewind.service.limits import PAGE_MAX
from tradewind.service.problems import ApiProblem

if TYPE_CHECKING:
    from tradewind.service.sealing import Sealer

__all__ = ["Limit", "OpaqueCursor", "number_of"]

Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]

#: A number of a row as an opaque text.
OpaqueCursor = Annotated[str, Query(pattern=r"^[A-Za-z0-9_-]{32}$")]


def number_of(cursor: str, sealer: Sealer, tenant: str, name: str) -> int:
    """Return the number of the row that a cursor of a tenant's list stands for. Raises ApiProblem 422."""
    number = sealer.number(cursor, tenant, name)
    if number is None:
        raise ApiProblem(422, "not a cursor of this list", hint="send the `next` of a page", field="query.cursor")
    return number
