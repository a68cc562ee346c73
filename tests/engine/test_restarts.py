"""A job that is killed while its lead is restarted: machines that start meanwhile must not be left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.engine import running
from tradewind.engine.event_log import EventLog
from tradewind.engine.ledger import JobLedger
from tradewind.engine.running import RunningJob
from tradewind.errors import GatewayError, Interrupted
from tradewind.fleet.remains import Remains
from tradewind.model.job import JobSpec, ObjectSelection, Target
from tradewind.model.ledger import Ledger
from tradewind.model.plan import Deployment, GatewayAddress, Plan, local_plan
from tradewind.model.store import StoreSpec

SPEC = JobSpec(StoreSpec("s3://s"), ObjectSelection("k"), (Target(StoreSpec("s3://d"), "k"),))
WAIT_S = 20.0


class Gateways:
    """Gateways whose lead has died."""

    fleet_id, names = "fleet-1", ("local",)

    def __init__(self) -> None:
        self.kills = 0

    def deployment(self) -> Deployment:
        return Deployment(local_plan(), {"local": GatewayAddress("unix:/nowhere", None)}, {})

    def ending(self, name: str, timeout_s: float) -> str:
        return "killed by signal 9"

    def kill(self) -> None:
        self.kills += 1

    def hurry(self) -> None:
        pass

    def remove(self) -> None:
        pass

    def look_for_remains(self) -> None:
        return None


def job_that_restarts(
    restart: Callable[..., Any], release: Callable[[], None] = lambda: None, **more: Any
) -> RunningJob:
    gateways: Any = Gateways()
    other: Any = SimpleNamespace(release=release)
    return RunningJob(
        "job-1",
        SPEC,
        local_plan(),
        gateways,
        EventLog(),
        restart=restart,
        keep_logs=False,
        ledger=JobLedger(Ledger(), None),
        lock=other,
        store=other,
        **more,
    )


@pytest.mark.parametrize("comes", [False, True], ids=["stopped", "too late to stop"])
def test_a_restart_under_way_ends_with_the_job(comes: bool) -> None:
    started, fresh = threading.Event(), Gateways()
    outcomes: list[str] = []

    def restart(_: JobSpec, __: Plan, is_left: Callable[[], bool]) -> Any:
        started.set()
        pause = threading.Event()
        while not is_left():
            pause.wait(0.01)
        outcomes.append("left")
        if comes:
            return fresh
        raise Interrupted("stopped before its machines had started")

    job = job_that_restarts(restart)
    assert started.wait(WAIT_S)
    job.kill()
    assert job.is_over and outcomes == ["left"]
    assert bool(fresh.kills) == comes


def test_gateways_that_come_while_the_job_ends_do_not_outlive_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The restart takes longer than a killed job waits for it, and its gateways come just after the former ones have
    been ended.
    """
    monkeypatch.setattr(running, "KILLED_RESTART_S", 0.01)
    started, releasing, fresh = threading.Event(), threading.Event(), Gateways()

    def restart(_: JobSpec, __: Plan, is_left: Callable[[], bool]) -> Any:
        started.set()
        assert releasing.wait(WAIT_S)
        return fresh

    def release() -> None:
        releasing.set()
        restarting = job._restarting
        assert restarting is not None
        restarting.join()

    job = job_that_restarts(restart, release)
    assert started.wait(WAIT_S)
    job.kill()
    assert job.is_over and fresh.kills == 1


def test_an_end_that_fails_after_a_late_restart_is_said() -> None:
    started, fresh = threading.Event(), Gateways()

    def kill() -> None:
        fresh.kills += 1
        if fresh.kills == 1:
            raise GatewayError("1 of 1 machine may still run")

    fresh.kill = kill  # type: ignore[method-assign]

    def restart(_: JobSpec, __: Plan, is_left: Callable[[], bool]) -> Any:
        started.set()
        pause = threading.Event()
        while not is_left():
            pause.wait(0.01)
        return fresh

    job = job_that_restarts(restart)
    assert started.wait(WAIT_S)
    job.kill()
    assert [*job._log.late()] == ["1 of 1 machine may still run"]


def test_the_end_of_a_job_records_what_earlier_runs_have_left() -> None:
    ends: list[Any] = []
    events: Any = SimpleNamespace(end=lambda *end: ends.append(end))

    def restart(_: JobSpec, __: Plan, is_left: Callable[[], bool]) -> Any:
        while not is_left():
            time.sleep(0.01)
        raise Interrupted("stopped before its machines had started")

    left = Remains("fleet-0", left=("address a",))
    job = job_that_restarts(restart, events=events, remains=[left])
    job.kill()
    assert job.is_over and job.remains == [left] and ends[0][2] == [left.document()]
