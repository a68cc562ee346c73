"""Tenants that a request names in its body."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, select

from tradewind.service.problems import ApiProblem
from tradewind.service.tables import tenants

__all__ = ["require_tenants"]


def require_tenants(connection: Connection, named: Mapping[str, str]) -> None:
    """Raise ApiProblem 422 if a tenant does not exist. `named` has tenants by the fields that name them."""
    known = set(connection.execute(select(tenants.c.name).where(tenants.c.name.in_(set(named.values())))).scalars())
    for field, name in named.items():
        if name not in known:
            raise ApiProblem(422, f"no tenant {name}", hint="GET /v1/tenants lists them", field=field)
