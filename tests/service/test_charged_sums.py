"""Sums of money that do not fit into 63 bits, and invoices at the end of a month, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import insert

from tradewind.service import invoices
from tradewind.service.budgets import budget_view, write_budget
from tradewind.service.database import ServiceDatabase, database_unix_ms
from tradewind.service.money_tables import charges
from tradewind.service.prices import TariffUse, used_in_month
from tradewind.service.tables import tenants


@pytest.fixture
def database(url: str | None, tmp_path: Path) -> Iterator[ServiceDatabase]:
    with closing(ServiceDatabase(tmp_path, url)) as database:
        database.migrate()
        yield database


def test_an_invoice_is_final_a_while_after_its_month(
    database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that began before the end of the month may write its charge after it."""
    december_ms = 1_796_083_200_000
    with database.write() as connection:
        connection.execute(insert(tenants).values(name="lab", created_unix_ms=0))
        row = {"tenant": "lab", "what": "x", "usd_micros": 7, "run_ms": 0, "volume_bytes": 0, "job": None, "bid": "a-1"}
        connection.execute(insert(charges).values(**row, at_unix_ms=december_ms - 1))
    found = []
    for now_ms in (december_ms - 1, december_ms + 599_000, december_ms + 600_000):
        monkeypatch.setattr(invoices, "database_unix_ms", lambda _, now_ms=now_ms: now_ms)
        with database.read() as connection:
            invoice = invoices.invoice_of(connection, "lab", "2026-11")
            assert invoice is not None and invoice["lines"][0]["usd_micros"] == 7
            found += [invoice["final"], invoices.invoice_months(connection, "lab")[0]["final"]]
    assert found == [False] * 4 + [True] * 2


def test_sums_are_exact_beyond_63_bits(database: ServiceDatabase) -> None:
    with database.write() as connection:
        now_ms = database_unix_ms(connection)
        connection.execute(insert(tenants).values(name="vast", created_unix_ms=now_ms))
        assert used_in_month(connection, "vast", now_ms) == TariffUse(0, 0)
        for usd_micros, volume_bytes in ((1 << 62, 1 << 62), (-(1 << 33) - 7, 3), (1 << 62, 1 << 62)):
            row = {"tenant": "vast", "at_unix_ms": now_ms, "what": "x", "run_ms": 1}
            connection.execute(insert(charges).values(**row, usd_micros=usd_micros, volume_bytes=volume_bytes))
        assert used_in_month(connection, "vast", now_ms) == TariffUse((1 << 63) + 3, 3)
        write_budget(connection, "vast", 1, "month", now_ms)
        found = budget_view(connection, "vast", now_ms)
    assert found is not None
    assert (found["spent_usd_micros"], found["reserved_usd_micros"]) == ((1 << 63) - (1 << 33) - 7, 0)
