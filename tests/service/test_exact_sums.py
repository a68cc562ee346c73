"""Sums that do not fit into 63 bits, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import insert

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


def test_sums_are_exact_beyond_63_bits(database: ServiceDatabase) -> None:
    with database.write() as connection:
        now_ms = database_unix_ms(connection)
        connection.execute(insert(tenants).values(name="lab", created_unix_ms=now_ms))
        assert used_in_month(connection, "lab", now_ms) == TariffUse(0, 0)
        for usd_micros, volume_bytes in ((1 << 62, 1 << 62), (-(1 << 33) - 7, 3), (1 << 62, 1 << 62)):
            row = {"tenant": "lab", "at_unix_ms": now_ms, "what": "x", "run_ms": 1}
            connection.execute(insert(charges).values(**row, usd_micros=usd_micros, volume_bytes=volume_bytes))
        assert used_in_month(connection, "lab", now_ms) == TariffUse((1 << 63) + 3, 3)
        write_budget(connection, "lab", 1, "month", now_ms)
        found = budget_view(connection, "lab", now_ms)
    assert found is not None
    assert (found["spent_usd_micros"], found["reserved_usd_micros"]) == ((1 << 63) - (1 << 33) - 7, 0)
