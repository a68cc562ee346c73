"""Imports refuse dates to come and count ages: here they have a day of their own, whatever the machine's clock says."""

from __future__ import annotations

import datetime

import pytest

from tradewind.catalog import tables

NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.timezone.utc)


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "present", lambda: NOON)
