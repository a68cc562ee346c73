"""How the gateways of a run have changed their limits, as its events tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.test_jobs import make
from tradewind.engine import event_store
from tradewind.engine.event_store import EventStore, limit_changes
from tradewind.engine.jobs import JobStore

JOB = "job-1"


def line(now: int) -> bytes:
    change = {"gateway": "here", "stage": "read", "peer": "s3://b", "before": now - 1, "now": now, "reason": "waiting"}
    return (json.dumps({"event": "limit_changed", **change}) + "\n").encode()


def test_the_newest_changes_of_the_latest_run_are_returned_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_store, "LIMIT_CHANGES_MAX", 2)
    store = JobStore(str(tmp_path))
    make(store, JOB)
    for limits in ((90,), (17, 18, 19)):
        run = EventStore(store.database, JOB, store.path(JOB))
        for now in limits:
            run.append(line(now))
        run.append(b'{"event": "notice", "message": "\\"limit_changed\\""}\n')
        run.end("done", None)
    assert [change.now for change in limit_changes(store.database, JOB)] == [18, 19]
