"""Imports refuse future dates and count ages, so these tests have a fixed date, independent of the machine's clock."""

from __future__ import annotations

import datetime

import pytest

from tradewind.catalog import tables

NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.timezone.utc)


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "present", lambda: NOON)
