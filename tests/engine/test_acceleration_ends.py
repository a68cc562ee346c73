"""Ends of accelerations at awkward moments: a wish while it is taken over, and an interrupt while its machines end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind.engine.acceleration_life import GRACE_S, Acceleration
from tradewind.engine.acceleration_placing import PlacedFlows
from tradewind.engine.accelerations import Accelerations
from tradewind.model.acceleration import AccelerationWish
from tradewind.model.flows import flows_from_document
from tradewind.model.locks import FileLock
from tradewind.model.records import replace
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


@pytest.fixture
def acceleration(control: Any) -> Acceleration:
    flows = flows_from_document(parse_toml(FLOWS.encode(), "flows.toml"), "flows.toml")
    problem = problem_from_document({"regions": [], "rtt_ms": [], "flows": [], "budget_cents": 0}, "p")
    placed = PlacedFlows(flows, problem, place(problem, "f-fct"), (), "local:here", {}, {}, {})
    return Acceleration(control, SimpleNamespace(), FLOWS, placed, report=list[str]().append)  # type: ignore[arg-type]


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
