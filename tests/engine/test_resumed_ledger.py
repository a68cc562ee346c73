"""The charge for the machines of a killed run when its job is resumed."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.test_jobs import REQUEST, SPEC
from tests.engine.test_orphans import Cloud, change, cloud, killed
from tradewind.engine.fleets import Fleets
from tradewind.engine.job_control import JobControl
from tradewind.engine.jobs import LOCK_FILE, cancelling
from tradewind.engine.ledger import ALIVE_S_MAX
from tradewind.errors import Interrupted
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.owner import here
from tradewind.fleet.provider import Ended, Refusal
from tradewind.model.ledger import Ledger, MachinePrice, MachineUse
from tradewind.model.locks import FileLock
from tradewind.model.records import replace

__all__ = ["cloud"]

USD_PER_S = 0.01
SINCE_S = 30.0


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobControl:
    monkeypatch.setattr("tradewind.fleet.owner._host", lambda: "0123456789abcdef")
    return JobControl(state_dir=str(tmp_path), gateway=str(tmp_path / "missing"))


def killed_job(control: JobControl, cloud: Cloud, clock_ahead_s: float = 0.0) -> str:
    """Record a job that was killed SINCE_S after its only machine began, and just now; return the id of its fleet.

    The clock has been set back by `clock_ahead_s` since then.
    """
    control.store.make_folder("job-1")
    control.store.create("job-1", SPEC, REQUEST, None)
    fleet, now_s = killed(Path(control.store.state_dir), cloud, "job job-1"), time.time() + clock_ahead_s
    use = MachineUse.of(1, fleet, "one", "site:a", now_s - SINCE_S, MachinePrice(USD_PER_S, "a test"))
    control.book("job-1").write(Ledger(machines=(use,), heartbeat_s=now_s, alive_s_max=ALIVE_S_MAX))
    return fleet


def charged_s(control: JobControl, monkeypatch: pytest.MonkeyPatch) -> float:
    """Resume the job, and return for how long its first run's machine counts towards its ceiling [s]."""
    seen: list[Ledger] = []

    def run(*parts: Any, **_: Any) -> SimpleNamespace:
        seen.append(parts[5])
        return SimpleNamespace(remains=[])

    monkeypatch.setattr(JobControl, "_run", run)
    control.resume("job-1")
    return seen[0].total_usd(time.time()) / USD_PER_S


def test_machines_that_were_ended_are_charged_until_now(
    control: JobControl, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_job(control, cloud)
    assert charged_s(control, monkeypatch) == pytest.approx(SINCE_S, abs=5)
    assert cloud.living == {}


def test_a_machine_that_was_never_launched_costs_nothing_although_another_command_ended_the_fleet(
    control: JobControl, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That command cannot change the ledger while the job is about to be resumed."""
    fleet, journal = killed_job(control, cloud), FleetJournal(control.store.state_dir)
    journal.launched(fleet, "ghost", "site:a", 900)
    book = control.book("job-1")
    ledger = book.read()
    assert ledger is not None
    ghost = replace(ledger.machines[0], name="ghost")
    book.write(replace(ledger, machines=(*ledger.machines, ghost)))
    lock = control.store.hold("job-1")
    (ended,) = Fleets(control.store, None).end_unused()
    lock.release()
    assert ended.error is None and cloud.living == {}
    assert charged_s(control, monkeypatch) == pytest.approx(SINCE_S, abs=5)
    (attempt,) = journal.attempts(fleet)
    assert (attempt.name, attempt.region, attempt.outcome) == ("ghost", "site:a", "never launched")


@pytest.mark.parametrize("changes", [{"boot": "earlier"}, {"boot": "earlier", "host": "fedcba9876543210"}])
def test_machines_that_may_not_be_ended_here_are_charged_until_their_leases_must_have_expired(
    control: JobControl, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """After a reboot, another host with a copy of this disk may use them. Until then they are billed."""
    fleet = killed_job(control, cloud)
    change(Path(control.store.state_dir), fleet, owner=json.dumps({**here().document(), **changes}))
    assert charged_s(control, monkeypatch) == pytest.approx(SINCE_S + ALIVE_S_MAX, abs=5)
    assert len(cloud.living) == 1


@pytest.mark.parametrize("ends", ["resume", "another command"])
def test_machines_are_charged_until_their_leases_must_have_expired_if_the_clock_was_set_back(
    control: JobControl, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Nobody knows for how long they have run since the last write of the ledger."""
    killed_job(control, cloud, 3600.0)
    if ends == "another command":
        (end,) = Fleets(control.store, None).end_abandoned()
        assert end.error is None and end.unbooked is None
    assert charged_s(control, monkeypatch) == pytest.approx(SINCE_S + ALIVE_S_MAX, abs=5)
    assert cloud.living == {}


def test_a_resumed_job_that_waits_for_its_killed_run_can_be_stopped(control: JobControl, cloud: Cloud) -> None:
    killed_job(control, cloud)
    lead = FileLock.take(os.path.join(control.store.path("job-1"), LOCK_FILE))
    assert lead is not None
    with ExitStack() as held:
        held.callback(lead.release)
        with pytest.raises(Interrupted, match="stopped before its machines had started"):
            control.resume("job-1", is_to_stop=lambda: True)
    assert len(cloud.living) == 1 and not control.store.is_owned("job-1")


@pytest.mark.parametrize(
    ("was_paused", "stops", "says"),
    [
        (False, "the caller", "stopped before its machines had started"),
        (False, "jobs pause", "job job-1 is paused"),
        (False, "jobs cancel", "job job-1 was cancelled"),
        (True, "the caller", "job job-1 is paused"),
        (True, "jobs cancel", "job job-1 was cancelled"),
    ],
)
def test_a_resumed_job_that_waits_for_another_command_can_be_stopped(
    control: JobControl, cloud: Cloud, was_paused: bool, stops: str, says: str
) -> None:
    fleet, other = killed_job(control, cloud), FleetJournal(control.store.state_dir)
    assert other.claim(fleet)
    control.store.set_paused("job-1", was_paused)
    asked, stopped = threading.Event(), threading.Event()

    def is_asked() -> bool:
        asked.set()
        return stopped.is_set()

    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        resumed = pool.submit(control.resume, "job-1", is_to_stop=is_asked)
        assert asked.wait(10) and not resumed.done()
        if stops == "the caller":
            stopped.set()
        elif stops == "jobs pause":
            control.store.set_paused("job-1", True)
        elif stops == "jobs cancel":
            stack.enter_context(cancelling(control.store.path("job-1")))
        with pytest.raises(Interrupted, match=says):
            resumed.result(10)
    assert len(cloud.living) == 1 and not control.store.is_owned("job-1")


@pytest.mark.parametrize("what", ["end", "plan"])
def test_ends_of_machines_and_plans_that_wait_for_another_command_can_be_stopped(
    control: JobControl, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    fleet, other, asked = killed_job(control, cloud), FleetJournal(control.store.state_dir), threading.Event()
    assert other.claim(fleet)
    monkeypatch.setattr(JobControl, "plan_of", lambda *_, **__: SimpleNamespace(overlay="some"))
    closed: Any = SimpleNamespace(used_by=lambda _: True)
    call = {
        "end": lambda: control.end_machines("job-1", asked.is_set),
        "plan": lambda: control.plan_around("job-1", closed, asked.is_set),
    }[what]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call)
        with pytest.raises(TimeoutError):
            waiting.result(0.5)
        asked.set()
        with pytest.raises(Interrupted, match="stopped before its machines had started"):
            waiting.result(10)
    assert len(cloud.living) == 1 and not control.store.is_owned("job-1")


def test_an_end_of_machines_that_is_to_stop_waits_out_no_outage(
    control: JobControl, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_job(control, cloud)
    busy = Refusal("throttled", "slow down")
    monkeypatch.setattr(cloud, "terminate", lambda ids, **_: [Ended(one, refusal=busy) for one in ids])
    asked = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(control.end_machines, "job-1", asked.is_set)
        with pytest.raises(TimeoutError):
            waiting.result(1)
        asked.set()
        with pytest.raises(Interrupted):
            waiting.result(20)
    assert len(cloud.living) == 1
