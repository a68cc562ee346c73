"""Budgets of tenants: a limit for each day or month. Spent plus reserved never exceeds it.

Each function works within the caller's transaction. It locks the budget's row first, so concurrent submissions are
checked one after another, also by several servers.
"""

from __future__ import annotations

import calendar
import time
from typing import Any, Literal

from sqlalchemy import Connection, delete, insert, select, update

from tradewind.errors import BudgetExceeded
from tradewind.market.budget import TenantBudget
from tradewind.service.auction_tables import bids
from tradewind.service.exact_sums import exact_sums, sum_parts
from tradewind.service.money_tables import accounts, budgets, charges
from tradewind.service.problems import ApiProblem

__all__ = ["Period", "budget_view", "has_budget", "period_start_ms", "require_room", "write_budget"]

Period = Literal["day", "month"]
#: Id of all open reservations together, in the record that decides.
OTHERS = "others"


def period_start_ms(period: str, now_ms: int) -> int:
    """Return the start of the day or month of a Unix time, in UTC [ms]."""
    now = time.gmtime(now_ms / 1000)
    day = 1 if period == "month" else now.tm_mday
    return calendar.timegm((now.tm_year, now.tm_mon, day, 0, 0, 0)) * 1000


def write_budget(connection: Connection, tenant: str, limit_usd_micros: int | None, period: str, now_ms: int) -> None:
    """Set the budget of a tenant; with None, remove it.

    A row that exists is changed and not replaced: who waits for its lock on PostgreSQL would find the old one gone, not
    see the new one, and take the tenant for one without a budget.
    """
    mine = budgets.c.tenant == tenant
    if limit_usd_micros is None:
        connection.execute(delete(budgets).where(mine))
        return
    values = {"period": period, "limit_usd_micros": limit_usd_micros, "updated_unix_ms": now_ms}
    if connection.execute(update(budgets).where(mine).values(**values)).rowcount == 0:
        connection.execute(insert(budgets).values(tenant=tenant, **values))


def has_budget(connection: Connection, tenant: str) -> bool:
    """Return whether a tenant has a budget."""
    return _row(connection, tenant) is not None


def require_room(connection: Connection, tenant: str, subject: str, usd_micros: int, now_ms: int) -> None:
    """Return if an amount can be reserved for a subject, such as `job ID`.

    Raises ApiProblem 402, which says how much is left. The caller records the reservation in the same transaction.
    """
    row = _row(connection, tenant)
    if row is None:
        return
    try:
        _budget(connection, row, now_ms).reserve(subject, usd_micros)
    except BudgetExceeded as error:
        raise ApiProblem(
            402, str(error), hint=f"wait for running jobs and bids to settle or for the next {row['period']}"
        ) from None


def budget_view(connection: Connection, tenant: str, now_ms: int) -> dict[str, Any] | None:
    """Return a tenant's budget in this period, in micro-dollars; None without one."""
    row = _row(connection, tenant)
    if row is None:
        return None
    budget = _budget(connection, row, now_ms)
    return {
        "tenant": tenant,
        "period": row["period"],
        "period_start_unix_ms": period_start_ms(row["period"], now_ms),
        "limit_usd_micros": budget.limit_usd_micros,
        "spent_usd_micros": budget.spent_usd_micros,
        "reserved_usd_micros": budget.reserved_usd_micros,
        "left_usd_micros": max(0, budget.free_usd_micros),
    }


def _row(connection: Connection, tenant: str) -> Any:
    # SQLite ignores FOR UPDATE: there a transaction that writes excludes all others.
    return connection.execute(select(budgets).where(budgets.c.tenant == tenant).with_for_update()).mappings().first()


def _budget(connection: Connection, row: Any, now_ms: int) -> TenantBudget:
    tenant, start_ms = row["tenant"], period_start_ms(row["period"], now_ms)
    found = (
        (charges.c.usd_micros, charges.c.tenant == tenant, charges.c.at_unix_ms >= start_ms),
        (accounts.c.reserved_usd_micros, accounts.c.tenant == tenant, accounts.c.is_open == 1),
        (bids.c.reserved_usd_micros, bids.c.tenant == tenant, bids.c.state == "open"),
    )
    # One statement: a charge moves money from reserved to spent, and must not do so between two reads.
    sums = select(
        *(select(part).where(*mine).scalar_subquery() for column, *mine in found for part in sum_parts(column))
    )
    spent_micros, reserved_micros, bid_micros = exact_sums(connection.execute(sums).one())
    return TenantBudget(row["limit_usd_micros"], spent_micros, {OTHERS: reserved_micros + bid_micros})
