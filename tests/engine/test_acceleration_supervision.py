"""Supervisors that were killed, stopped or hang: what is found, what is shown, and what a resumed one has spent."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tradewind.engine.acceleration_cost import AccelerationMeter
from tradewind.engine.acceleration_course import Course, Looked
from tradewind.engine.acceleration_supervision import SILENT_S, supervision_of
from tradewind.engine.accelerations import Accelerations
from tradewind.engine.engine import Engine
from tradewind.errors import JobUnreadable
from tradewind.fleet.owner import pid_namespace
from tradewind.fleet.running import find_process
from tradewind.model.acceleration import AccelerationState, AccelerationWish, SupervisorProcess
from tradewind.model.ledger import MachinePrice
from tradewind.model.records import replace
from tradewind.render.acceleration import acceleration_lines
from tradewind.render.acceleration_metrics import prometheus_lines

PATIENCE_S = 30.0


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def state_of(pid: int, updated_s: float = 0.0) -> AccelerationState:
    found = find_process(pid)
    process = SupervisorProcess(pid, found.started, pid_namespace())
    return AccelerationState("a", "running", 0.0, updated_s, process=process)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_supervisor_is_working_silent_stopped_or_gone(other: subprocess.Popen[bytes]) -> None:
    state = state_of(other.pid)
    assert supervision_of(state, held=True, now_s=1.0) == "working"
    assert supervision_of(state, held=True, now_s=SILENT_S) == "silent"
    assert supervision_of(replace(state, phase="starting"), held=True, now_s=SILENT_S) == "working"
    assert supervision_of(replace(state, phase="ended"), held=False, now_s=1.0) is None
    assert supervision_of(state, held=False, now_s=1.0) == "gone"

    other.send_signal(signal.SIGSTOP)
    end = time.monotonic() + PATIENCE_S
    while supervision_of(state, held=True, now_s=1.0) != "stopped":
        assert time.monotonic() < end
        time.sleep(0.01)
    elsewhere = replace(state, process=SupervisorProcess(other.pid, None, 1))
    assert supervision_of(elsewhere, held=True, now_s=1.0) == "working", "its process id means nothing here"

    other.kill()
    other.wait()
    assert supervision_of(state, held=True, now_s=1.0) == "gone", "another process holds it, to end or resume it"


def test_the_status_says_what_to_do() -> None:
    state = replace(state_of(os.getpid(), time.time()), supervision="stopped")
    shown = "\n".join(acceleration_lines(state))
    assert f"its supervisor, process {os.getpid()}, is stopped" in shown
    assert f"`kill -CONT {os.getpid()}` continues it" in shown and "`tradewind accelerate up --resume a`" in shown
    silent = "\n".join(acceleration_lines(replace(state, supervision="silent")))
    assert "is running, but reports nothing" in silent and "-CONT" not in silent
    gone = "\n".join(acceleration_lines(replace(state, phase="failed", supervision="gone")))
    assert "`tradewind accelerate up --resume a` ends what is left" in gone
    assert "supervisor" not in "\n".join(acceleration_lines(replace(state, supervision="working")))
    metric = 'tradewind_acceleration_supervised{acceleration="a"} '
    assert metric + "0" in list(prometheus_lines([state]))
    assert metric + "1" in list(prometheus_lines([replace(state, supervision="working")]))


def test_the_ceiling_counts_what_a_former_supervisor_has_spent() -> None:
    now_s = [0.0]
    price = {"r": MachinePrice(0.01)}
    former = AccelerationMeter(price, {"r": 1.0}, 10.0, clock=lambda: now_s[0])
    former.launched("f1", "r-1", "r")
    former.sent("r-1", "r", 2_000_000_000)
    now_s[0] = 100.0
    former.ended("f1")
    assert former.machines_usd + former.egress_usd == pytest.approx(3.0)

    meter = AccelerationMeter(price, {"r": 2.0}, 10.0, clock=lambda: now_s[0], former=former.ledger)
    assert meter.machines_usd == pytest.approx(1.0) and meter.egress_usd == pytest.approx(2.0)
    meter.launched("f2", "r-1", "r")
    assert meter.left_s(1e6) == pytest.approx(700.0), "old egress is no present rate"
    # The price of egress has risen. It never understates the cost, so all bytes have the higher one.
    now_s[0] += 10.0
    meter.sent("r-1", "r", 1_000_000_000)
    assert meter.egress_usd == pytest.approx(6.0)
    assert meter.left_s(1e6) == pytest.approx((10.0 - 1.1 - 6.0) / (0.01 + 0.2)), "only new bytes are a present rate"
    assert [use.fleet for use in meter.ledger.machines] == ["f1", "f2"]


def test_a_resumed_course_ignores_wishes_of_before() -> None:
    course = Course(0.0, 3)
    assert course.handle(Looked(1e6, wish=AccelerationWish(3, down=True)), 1.0) == []
    assert course.handle(Looked(1e6, wish=AccelerationWish(4, down=True)), 2.0)


def test_a_damaged_state_hides_no_other_and_what_is_left_can_be_ended(tmp_path: Path) -> None:
    with Engine(state_dir=str(tmp_path)) as engine:
        book = Accelerations(engine.control)
        for name in ("one", "two"):
            book.make(name, "")
            book.write(AccelerationState(name, "running", 0.0, 0.0))
        (book.folder / "one" / "state.json").write_text("")
        damaged: list[JobUnreadable] = []
        assert [state.id for state in book.states(damaged.append)] == ["two"]
        assert "`tradewind accelerate down one`" in (damaged[0].hint or "")
        with pytest.raises(JobUnreadable):
            book.one(None)
        assert book.down("one", 0.0).phase == "ended"
        assert [(state.id, state.phase) for state in book.states()] == [("two", "failed"), ("one", "ended")]
