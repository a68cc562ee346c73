"""Ends of accelerations at awkward moments: a wish while it is taken over, and an interrupt while its machines end."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.acceleration.health import FAILURES_UNTIL_UNHEALTHY, HOP_FAILURES
from tradewind.acceleration.wiring import HOME, Wire
from tradewind.engine.acceleration_course import RESERVE_S, Place
from tradewind.engine.acceleration_leaving import LeavingProxies
from tradewind.engine.acceleration_life import GRACE_S, Acceleration
from tradewind.engine.acceleration_placing import PlacedFlows
from tradewind.engine.accelerations import Accelerations
from tradewind.errors import ConfigError, GatewayError
from tradewind.model.acceleration import AccelerationWish
from tradewind.model.flows import flows_from_document
from tradewind.model.ledger import MachinePrice
from tradewind.model.locks import FileLock
from tradewind.model.records import replace
from tradewind.model.split import SplitHop, SplitStatus
from tradewind.model.toml import parse_toml
from tradewind.placement.place import place
from tradewind.placement.problem import problem_from_document

FLOWS = """\
budget = "1 USD"
[[flow]]
name = "backup"
source = "here"
destination = "192.0.2.1:8000"
size = "2 GB"
"""


class InterruptedFleet:
    """A fleet whose first end is interrupted."""

    def __init__(self) -> None:
        self.graces_s: list[float] = []

    def close(self, *, grace_s: float) -> None:
        self.graces_s.append(grace_s)
        if len(self.graces_s) == 1:
            raise KeyboardInterrupt


@pytest.fixture
def control(tmp_path: Path) -> Any:
    return SimpleNamespace(store=SimpleNamespace(state_dir=str(tmp_path)), gateway="")


def placed_flows() -> PlacedFlows:
    flows = flows_from_document(parse_toml(FLOWS.encode(), "flows.toml"), "flows.toml")
    problem = problem_from_document({"regions": [], "rtt_ms": [], "flows": [], "budget_cents": 0}, "p")
    return PlacedFlows(flows, problem, place(problem, "f-fct"), (), "local:here", {}, {}, {})


@pytest.fixture
def acceleration(control: Any) -> Acceleration:
    report = list[str]().append
    return Acceleration(control, SimpleNamespace(), FLOWS, placed_flows(), report=report)  # type: ignore[arg-type]


def test_a_ceiling_that_leaves_too_little_for_another_machine_ends_the_acceleration(control: Any) -> None:
    """Its only machine has ended, so nothing costs anything until there is another one. That costs 60 s at least."""
    placed = replace(placed_flows(), regions={"p": "aws:a"}, machines={"aws:a": MachinePrice(0.01, billed_s_min=60.0)})
    report = list[str]().append
    running = Acceleration(control, SimpleNamespace(), FLOWS, placed, usd_max=1.0, report=report)  # type: ignore[arg-type]
    fleet = SimpleNamespace(lead_lives=True, leaving=dict, close=lambda **_: None)
    running._gateways = SimpleNamespace(fleet=fleet, look_at=lambda _: {HOME: "it does not answer"})  # type: ignore[assignment]
    running._meter.launched("f", "p", "aws:a")
    assert running._look_at_all().left_s > RESERVE_S
    running._meter.ended("f", {"p"})
    running._meter.usd_max = 1.25
    assert running._look_at_all().left_s > RESERVE_S
    running._meter.usd_max = 1.15
    assert running._look_at_all().left_s <= RESERVE_S
    running.close()


@pytest.mark.parametrize("step_s", [-86400.0, 86400.0])
def test_an_acceleration_lasts_as_long_as_wanted_if_the_clock_is_set(
    control: Any, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    """A clock that is set back by a day must not let its machines run for another day."""
    report = list[str]().append
    running = Acceleration(control, SimpleNamespace(), FLOWS, placed_flows(), lasting_s=3600.0, report=report)  # type: ignore[arg-type]
    fleet = SimpleNamespace(lead_lives=True, leaving=dict, close=lambda **_: None)
    running._gateways = SimpleNamespace(fleet=fleet, look_at=lambda _: {HOME: "it does not answer"})  # type: ignore[assignment]
    unix_s, clock_s = time.time, time.clock_gettime
    monkeypatch.setattr(time, "time", lambda: unix_s() + step_s)
    assert not running._look_at_all().is_over
    ends_s = running.state().ends_unix_s
    assert ends_s is not None and 3000.0 < ends_s - time.time() <= 3601.0, "other processes see the same end"
    monkeypatch.setattr(time, "clock_gettime", lambda clock: clock_s(clock) + 3600.0)
    assert running._look_at_all().is_over
    running.close()


@pytest.mark.parametrize("why", ["the cloud takes its machine back", "nothing can connect to it"])
def test_the_ceiling_counts_another_machine_in_place_of_one_that_still_runs(control: Any, why: str) -> None:
    """Its replacement costs 60 s at least, while the present machine is charged until its end."""
    wire = Wire("w", "192.0.2.1:80", "forward", "127.0.0.1:0", ("p",), 80.0, 20.0)
    price = MachinePrice(0.01, billed_s_min=60.0)
    placed = replace(placed_flows(), wires=(wire,), regions={"p": "aws:a"}, machines={"aws:a": price})
    report = list[str]().append
    running = Acceleration(control, SimpleNamespace(), FLOWS, placed, usd_max=2.0, report=report)  # type: ignore[arg-type]
    leaving: dict[str, float] = {}
    fleet = SimpleNamespace(lead_lives=True, leaving=lambda: leaving, close=lambda **_: None)
    hops: dict[str, SplitHop] = {}
    looks = {HOME: _status(hops), "p": _status({})}
    running._gateways = SimpleNamespace(fleet=fleet, look_at=lambda _: looks)  # type: ignore[assignment]
    running._addresses = {"p": "p:443"}
    running._meter.launched("f", "p", "aws:a")
    running._meter.usd_max = 1.15
    assert running._look_at_all().left_s > RESERVE_S
    if why.startswith("the cloud"):
        leaving["p"] = 90.0
        running._taken_back = LeavingProxies(lambda: leaving)
    else:
        hops["p"] = SplitHop(0, 0.0, 0.0, failures=HOP_FAILURES, failure="no route to host")
    looked = [running._look_at_all() for _ in range(FAILURES_UNTIL_UNHEALTHY)][-1]
    assert looked.leaving or looked.blocked
    assert looked.left_s <= RESERVE_S
    running.close()


def test_looks_do_not_list_the_machines_of_the_provider(control: Any) -> None:
    """A list takes long, and clouds throttle lists."""

    def living() -> set[str]:
        raise AssertionError("a list of the provider, each second")

    report = list[str]().append
    running = Acceleration(control, SimpleNamespace(), FLOWS, placed_flows(), report=report)  # type: ignore[arg-type]
    fleet = SimpleNamespace(lead_lives=True, living=living, leaving=dict, close=lambda **_: None)
    for looks in ({}, {HOME: "it does not answer"}):
        running._gateways = SimpleNamespace(fleet=fleet, look_at=lambda _, looks=looks: looks)  # type: ignore[assignment]
        looked = running._look_at_all()
        assert looked.home_lives and looked.home == looks.get(HOME)
    fleet.lead_lives = False
    assert not running._look_at_all().home_lives
    running.close()


def _status(hops: dict[str, SplitHop]) -> SplitStatus:
    return SplitStatus("running", (), 0, 0, 0, 0, 0, {}, 0, 0, (), hops)


def test_an_end_that_the_provider_refuses_leaves_no_redirection(acceleration: Acceleration, control: Any) -> None:
    """Connections of this machine would fail, because the gateway at home has ended. `accelerate down` tries again."""

    def close(grace_s: float) -> None:
        raise GatewayError("1 of 1 machine may still run")

    closed: list[bool] = []
    acceleration._gateways = SimpleNamespace(fleet=SimpleNamespace(close=close))  # type: ignore[assignment]
    acceleration._transparent = SimpleNamespace(close=lambda: closed.append(True))  # type: ignore[assignment]
    with pytest.raises(GatewayError, match="may still run"):
        acceleration.close()
    assert closed
    Accelerations(control).hold(acceleration.id).release()


@pytest.mark.parametrize("failure", [None, "its machines were lost"])
def test_an_acceleration_whose_end_is_refused_has_not_ended_well(
    acceleration: Acceleration, control: Any, failure: str | None
) -> None:
    """It is recorded as failed while it is still held, and the next call, which ends nothing, does not change that."""

    def close(grace_s: float) -> None:
        raise GatewayError("1 of 1 machine may still run")

    acceleration._gateways = SimpleNamespace(fleet=SimpleNamespace(close=close))  # type: ignore[assignment]
    with pytest.raises(GatewayError, match="may still run"):
        acceleration.close(failure)
    written = Accelerations(control).state(acceleration.id)
    acceleration.close()
    for state in (written, acceleration.state(), Accelerations(control).state(acceleration.id)):
        assert (state.phase, state.reason) == ("failed", failure or "1 of 1 machine may still run")


def test_an_interrupt_while_machines_end_does_not_leave_them(acceleration: Acceleration) -> None:
    fleet = InterruptedFleet()
    acceleration._gateways = SimpleNamespace(fleet=fleet)  # type: ignore[assignment]
    assert acceleration.close().phase == "ended"
    assert fleet.graces_s == [GRACE_S, 0.0], "the second end does not wait"


def test_a_wish_for_a_resumed_acceleration_counts_once_it_is_taken_over(
    acceleration: Acceleration, control: Any
) -> None:
    state = acceleration.close("its machines were lost")
    book = Accelerations(control)
    book._put(state, AccelerationWish(0, down=True))
    with book.taken_over(state.id) as former:
        number = book._put(former.state, AccelerationWish(0, down=True))
        resumed = Acceleration(
            control,
            acceleration._ground,
            former.flows,
            acceleration._placed,
            former=former,
            report=list[str]().append,
        )
        assert resumed._course.wish == former.wish == number - 1, "the supervisor carries out the wish"
        resumed.close()


def test_down_ends_the_machines_that_were_recorded_before_it_had_the_lock(
    acceleration: Acceleration, control: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = acceleration.close("its machines were lost")
    book, hold = Accelerations(control), Accelerations.hold

    def after_a_resumption(book: Accelerations, acceleration_id: str) -> FileLock:
        book.write(replace(book.state(acceleration_id), usd_max=7.0))
        return hold(book, acceleration_id)

    monkeypatch.setattr(Accelerations, "hold", after_a_resumption)
    assert book.down(state.id, 0.0).usd_max == 7.0


def test_a_state_that_cannot_be_recorded_ends_nothing(acceleration: Acceleration, control: Any) -> None:
    """As on a full disk. Here a folder is where the new state is written."""
    fleet = SimpleNamespace(lead_lives=True, leaving=dict, close=lambda **_: None)
    acceleration._gateways = SimpleNamespace(fleet=fleet)  # type: ignore[assignment]
    lines: list[str] = []
    acceleration._report = lines.append
    obstacle = acceleration.folder / "state.json.new"
    obstacle.mkdir()
    for _ in range(2):
        assert acceleration._write().phase == "starting"
    (line,) = lines
    assert line.startswith("the state cannot be recorded, so `status` shows an old one: ")
    obstacle.rmdir()
    acceleration._phase = "running"
    acceleration._write()
    assert Accelerations(control).state(acceleration.id).phase == "running"
    obstacle.mkdir()
    assert acceleration.close().phase == "ended"
    Accelerations(control).hold(acceleration.id).release()


def test_a_replan_whose_flows_cannot_be_recorded_changes_nothing(acceleration: Acceleration, control: Any) -> None:
    """As on a full disk. Here a folder is where the new flows are written."""
    wired: list[bool] = []

    def wire(*, strict: bool = False) -> None:
        wired.append(strict)

    acceleration._wire = wire  # type: ignore[method-assign]
    before, acceleration._next = acceleration._placed, (placed_flows(), "other")
    obstacle = acceleration.folder / "flows.toml.new"
    obstacle.mkdir()
    assert "Is a directory" in (acceleration._switch() or "")
    assert (acceleration._placed, wired, Accelerations(control).flows(acceleration.id)) == (before, [], FLOWS)
    obstacle.rmdir()
    assert acceleration._switch() is None
    assert (acceleration._placed is before, wired, Accelerations(control).flows(acceleration.id)) == (
        False,
        [True],
        "other",
    )
    acceleration.close()


def test_a_damaged_copy_of_the_flows_ends_no_acceleration(acceleration: Acceleration, control: Any) -> None:
    acceleration._gateways = SimpleNamespace(fleet=SimpleNamespace(close=lambda **_: None))  # type: ignore[assignment]
    path = acceleration.folder / "flows.toml"
    for damage in (lambda: path.write_bytes(b"\xff"), path.unlink):
        damage()
        finished = acceleration._finish(Place(None))
        assert str(path) in (finished.error or "")
    acceleration.close("its machines were lost")
    with pytest.raises(ConfigError, match=r"flows\.toml"), Accelerations(control).taken_over(acceleration.id):
        raise AssertionError("it was taken over")
