"""Invoices, made from the charges of a month each time they are requested."""

from __future__ import annotations

import calendar
import csv
import io
import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, select

from tradewind.market.charge import Charge
from tradewind.market.invoice import invoices, month_of
from tradewind.model.document import to_document
from tradewind.service.database import database_unix_ms
from tradewind.service.limits import INVOICE_OPEN_S
from tradewind.service.money_tables import charges

__all__ = ["INVOICE_ID", "csv_of", "invoice_months", "invoice_of", "month_start_ms"]

#: Month and tenant.
INVOICE_ID = r"^[0-9]{4}-(0[1-9]|1[0-2])\.[a-z0-9][a-z0-9-]{0,62}$"
FIRST_YEAR = 1970
MONTHS = 12
#: First characters that make a spreadsheet read a cell as a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def invoice_months(connection: Connection, tenant: str) -> list[dict[str, Any]]:
    """Return the months in which a tenant was charged, newest first."""
    query = select(func.min(charges.c.at_unix_ms), func.max(charges.c.at_unix_ms)).where(charges.c.tenant == tenant)
    first_ms, last_ms = connection.execute(query).one()
    if first_ms is None:
        return []
    now_ms = database_unix_ms(connection)
    found, (year, month) = [], time.gmtime(last_ms / 1000)[:2]
    while month_start_ms(year, month + 1) > first_ms:
        text = f"{year:04}-{month:02}"
        if _charges(connection, tenant, year, month, limit=1):
            found.append(_entry(tenant, text, now_ms))
        year, month = (year, month - 1) if month > 1 else (year - 1, MONTHS)
    return found


def invoice_of(connection: Connection, tenant: str, month: str) -> dict[str, Any] | None:
    """Return the invoice of a month, `2026-11`; None without charges."""
    year, number = int(month[:4]), int(month[5:])
    if year < FIRST_YEAR:
        return None
    made = invoices(_charges(connection, tenant, year, number))
    return {**_entry(tenant, month, database_unix_ms(connection)), **to_document(made[0])} if made else None


def csv_of(invoice: Mapping[str, Any]) -> str:
    """Return an invoice as CSV: a line for each of its lines, and one for the total."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("invoice", "tenant", "month", "subject", "what", "usd_micros", "cents"))
    head = (invoice["number"], invoice["tenant"], invoice["month"])
    for line in invoice["lines"]:
        writer.writerow((*head, _cell(line["subject"]), _cell(line["what"]), line["usd_micros"], line["cents"]))
    total = sum(line["usd_micros"] for line in invoice["lines"])
    writer.writerow((*head, "", "total", total, invoice["total_cents"]))
    return text.getvalue()


def _entry(tenant: str, month: str, now_ms: int) -> dict[str, Any]:
    return {
        "id": f"{month}.{tenant}",
        "tenant": tenant,
        "month": month,
        "final": month < month_of(now_ms / 1000 - INVOICE_OPEN_S),
    }


def _charges(
    connection: Connection, tenant: str, year: int, month: int, limit: int | None = None
) -> tuple[Charge, ...]:
    query = (
        select(charges)
        .where(
            charges.c.tenant == tenant,
            charges.c.at_unix_ms >= month_start_ms(year, month),
            charges.c.at_unix_ms < month_start_ms(year, month + 1),
        )
        .order_by(charges.c.number)
        .limit(limit)
    )
    return tuple(
        Charge(tenant, row["at_unix_ms"] / 1000, row["job"] or row["bid"], row["what"], row["usd_micros"])
        for row in connection.execute(query).mappings()
    )


def month_start_ms(year: int, month: int) -> int:
    """Return the start of a month, in UTC; month 13 is the next January."""
    years, before = divmod(month - 1, MONTHS)
    return calendar.timegm((year + years, before + 1, 1, 0, 0, 0)) * 1000


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text
