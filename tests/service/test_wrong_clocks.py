"""Servers whose clocks are an hour wrong: the times that servers compare are by the database's clock."""

import json
import time
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from tradewind.service.auth import Sender, ensure_admin
from tradewind.service.database import ServiceDatabase
from tradewind.service.jobs import JobQueue
from tradewind.service.settings import ServiceSettings
from tradewind.service.tables import deliveries
from tradewind.service.tables import webhooks as webhook_table

HOUR_S = 3600


@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
def test_an_event_is_due_by_the_clock_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    settings = ServiceSettings(tmp_path / "state")
    settings.state.mkdir(mode=0o700)
    database = ServiceDatabase(settings.state)
    database.require_current()
    ensure_admin(database, settings)
    with database.write() as connection:
        row = {"id": "w", "tenant": "default", "url": "https://example.org/", "sealed": "", "dropped": 0}
        connection.execute(insert(webhook_table).values(**row, states=json.dumps(["waiting"]), created_unix_ms=0))
    right_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + ahead_s * 10**9)
    sender = Sender("admin", "default", "service_admin", frozenset())
    JobQueue(database).submit(sender, "key", "digest", {"source": "/a", "destination": ["/b"]}, ["/b"])
    monkeypatch.undo()
    with database.read() as connection:
        due_ms = connection.execute(select(deliveries.c.next_unix_ms)).scalar_one()
    database.close()
    assert abs(due_ms / 1000 - time.time()) < HOUR_S / 2
