"""Machines of killed commands and servers that a server ends: at its start, and while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.test_orphans import Cloud, cloud, killed
from tests.service.local import job_runner, new_database
from tests.service.server import eventually
from tradewind.engine.engine import Engine
from tradewind.fleet.journal import FleetJournal
from tradewind.service.orphans import Orphans
from tradewind.service.runner import JobRunner

__all__ = ["cloud"]


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[JobRunner]:
    database = new_database(tmp_path)
    made = job_runner(database, tmp_path)
    yield made
    made.close()
    database.close()


def test_a_server_ends_them_at_its_start_and_while_it_runs(
    runner: JobRunner, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.service.runner.ORPHANS_EVERY_S", 0.05)
    folder = Path(runner.engine.control.store.state_dir)
    killed(folder, cloud)
    runner.start()
    assert runner.is_alive
    eventually(lambda: cloud.living == {})
    killed(folder, cloud, "job j2")
    eventually(lambda: cloud.living == {})


def test_a_failure_is_logged_once_and_an_acceleration_is_only_named(
    tmp_path: Path, cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    fleet, acceleration = killed(tmp_path, cloud), killed(tmp_path, cloud, "acceleration a1")
    FleetJournal(tmp_path).leased(acceleration, "one", -1)
    cloud.answers = False
    with Engine(state_dir=str(tmp_path), gateway="no-binary") as engine:
        orphans = Orphans(engine)
        orphans.step()
        orphans.step()
        assert {record.getMessage() for record in caplog.records} == {
            f"fleet {fleet}, whose command was killed, may still have machines: no credentials;"
            f" `tradewind fleet down {fleet}` ends it",
            f"fleet {acceleration} of acceleration a1, whose command was killed, may still have machines;"
            f" `tradewind fleet down {acceleration}` ends it",
        }
        assert len(caplog.records) == 2
        cloud.answers = True
        orphans.step()
    assert caplog.records[-1].getMessage() == f"ended 1 machine of fleet {fleet}, whose command was killed"
    assert len(cloud.living) == 1
