"""Costs of the machines of a killed server whose clock was wrong: their times are by the database's clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.test_jobs import REQUEST, SPEC
from tests.engine.test_orphans import RENTED, Cloud, cloud, killed
from tests.service.local import LEASE_MS, job_runner, new_database
from tradewind.engine.job_control import JobControl
from tradewind.engine.ledger import JobLedger
from tradewind.fleet.journal import FleetJournal, new_fleet_id
from tradewind.model.ledger import JobPrices, Ledger, MachinePrice
from tradewind.model.locks import FileLock
from tradewind.service import clock as clock_module
from tradewind.service.claims import ClaimTable
from tradewind.service.clock import READING_S_MAX, DatabaseClock
from tradewind.service.database import ServiceDatabase
from tradewind.service.orphans import Orphans
from tradewind.service.runner import JobRunner

__all__ = ["cloud"]

STEP_S = 600
USD_PER_S = 0.01
#: Far above what the machine costs, and far below what it would cost for STEP_S.
CEILING_USD = 0.5
both_ways = pytest.mark.parametrize("ahead_s", [STEP_S, -STEP_S], ids=["ahead", "behind"])


class Starter:
    """Takes the place of a run that starts: it keeps the ledger, and its process is killed at once."""

    ledgers: list[JobLedger]

    def __init__(self, *parts: Any, **_: Any) -> None:
        (ledger,) = (part for part in parts if isinstance(part, JobLedger))
        self.ledgers.append(ledger)

    def start(self, lock: FileLock, *, keep_logs: bool) -> SimpleNamespace:
        lock.release()
        return SimpleNamespace()


class Servers:
    """Servers on one database and one state folder, each with connections of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        new_database(folder).close()

    def start(self, name: str) -> JobRunner:
        """Return the runner of a server that has renewed its leases once."""
        database = ServiceDatabase(self._folder / "state")
        self._stack.callback(database.close)
        ClaimTable(database, name, 1, LEASE_MS).renew()
        return job_runner(database, self._folder)


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    monkeypatch.setattr("tradewind.fleet.owner._host", lambda: "0123456789abcdef")
    monkeypatch.setattr("tradewind.engine.job_control.RunStarter", Starter)
    monkeypatch.setattr(Starter, "ledgers", [], raising=False)
    monkeypatch.setattr(JobControl, "gateway", "no program")
    with ExitStack() as stack:
        yield Servers(tmp_path, stack)


def begin(control: JobControl) -> None:
    """Make a job with a ceiling, which has no machines yet."""
    control.store.make_folder("job-1")
    control.store.create("job-1", SPEC, {**REQUEST, "ceiling": {"usd": CEILING_USD}}, None)
    control.book("job-1").write(Ledger(JobPrices({"site:a": MachinePrice(USD_PER_S, "a test")})))


def run(control: JobControl) -> JobLedger:
    """Begin a run of the job, and return its ledger."""
    control.resume("job-1")
    ledger = Starter.ledgers.pop()
    ledger.begin_run()
    return ledger


def run_and_be_killed(control: JobControl, cloud: Cloud) -> None:
    """Run the job on a machine until the server is killed."""
    ledger = run(control)
    ledger.launched(killed(Path(control.store.state_dir), cloud, "job job-1"), "one", "site:a")


@both_ways
@pytest.mark.parametrize("ends", ["the resumed job", "the server's start", "a pause"])
def test_a_job_of_a_killed_server_with_a_wrong_clock_is_charged_for_the_time_of_its_machines(
    servers: Servers, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, ahead_s: int, ends: str
) -> None:
    right_s = time.time
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time", lambda: right_s() + ahead_s)
        control = servers.start("killed").engine.control
        begin(control)
        run_and_be_killed(control, cloud)
    assert len(cloud.living) == 1
    engine = servers.start("next").engine
    if ends == "the server's start":
        Orphans(engine).step()
    elif ends == "a pause":
        engine.control.end_machines("job-1")
    engine.control.resume("job-1")
    assert cloud.living == {}
    (use,) = Starter.ledgers[0].ledger.machines
    assert use.ended_s is not None and 0 <= use.ended_s - use.launched_s < 30
    assert abs(use.ended_s - right_s()) < 30


@both_ways
def test_a_server_whose_own_clock_is_wrong_ends_the_machines_by_the_clock_of_the_database(
    servers: Servers, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    control = servers.start("killed").engine.control
    begin(control)
    run_and_be_killed(control, cloud)
    assert len(cloud.living) == 1
    right_s = time.time
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time", lambda: right_s() + ahead_s)
        control = servers.start("next").engine.control
        control.resume("job-1")
        assert control.job("job-1").progress.cost_usd < CEILING_USD
    (use,) = Starter.ledgers[0].ledger.machines
    assert use.ended_s is not None and 0 <= use.ended_s - use.launched_s < 30


@both_ways
def test_an_order_that_a_killed_server_with_a_wrong_clock_did_not_send_costs_nothing(
    servers: Servers, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    """Its lease of a minute cannot have expired, so the provider has not forgotten a machine."""
    right_s, fleet = time.time, new_fleet_id()
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time", lambda: right_s() + ahead_s)
        control = servers.start("killed").engine.control
        begin(control)
        ledger = run(control)
        journal = FleetJournal(control.store.state_dir, control.store.unix_s)
        journal.open(fleet, "job job-1", RENTED, {"one": "site:a"})
        journal.launched(fleet, "one", "site:a", lease_s=60)
        journal.give_back(fleet)
        ledger.launched(fleet, "one", "site:a")
    servers.start("next").engine.control.resume("job-1")
    assert Starter.ledgers[0].ledger.machines == ()


class Elapsed:
    """The seconds that have elapsed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(clock_module, "elapsed_s", lambda: self.now_s)

    def answer(self, unix_s: float, took_s: float) -> int:
        """Answer the question for the time in the middle of the time that this takes."""
        self.now_s += took_s
        return round((unix_s - took_s / 2) * 1000)


def test_the_clock_of_the_database_goes_on_between_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    elapsed = Elapsed(monkeypatch)
    clock = DatabaseClock()
    assert clock.unix_s() == pytest.approx(time.time(), abs=5)
    assert clock.read(lambda: elapsed.answer(5000.0, 0.5)) == 4_999_750
    assert clock.unix_s() == pytest.approx(5000.0)
    elapsed.now_s += 20
    assert clock.unix_s() == pytest.approx(5020.0)


def test_a_reading_during_which_the_process_was_frozen_does_not_set_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    elapsed = Elapsed(monkeypatch)
    clock = DatabaseClock()
    clock.read(lambda: elapsed.answer(5000.0, 2 * READING_S_MAX))
    assert clock.unix_s() == pytest.approx(5000.0), "the first one is better than none"
    clock.read(lambda: elapsed.answer(9000.0, 2 * READING_S_MAX))
    assert clock.unix_s() == pytest.approx(5000.0 + 2 * READING_S_MAX)
    clock.read(lambda: elapsed.answer(9000.0, 0.1))
    assert clock.unix_s() == pytest.approx(9000.0)


def test_the_clock_needs_no_database_once_it_was_read(tmp_path: Path) -> None:
    database = new_database(tmp_path)
    with database.read() as connection:
        database.read_clock(connection)
    database.close()
    for file in (tmp_path / "state").glob("service.sqlite*"):
        file.unlink()
    assert database.clock.unix_s() == pytest.approx(time.time(), abs=5)
