"""Bytes of proxies are counted once each: also the last ones, and when an older answer arrives after a newer one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.test_acceleration_ends import FLOWS, placed_flows
from tradewind.acceleration.wiring import HOME, Wire
from tradewind.engine import acceleration_gateways
from tradewind.engine.acceleration_course import Close, DrainProxies, Replace, Rewire
from tradewind.engine.acceleration_gateways import AccelerationGateways
from tradewind.engine.acceleration_life import Acceleration
from tradewind.errors import GatewayLost
from tradewind.model.ledger import MachinePrice
from tradewind.model.plan import Deployment, GatewayAddress, Plan
from tradewind.model.records import replace
from tradewind.model.split import SplitProgram, SplitStatus

PROXY, REGION = "aws-a-1", "aws:a"
WIRE = Wire("backup", "192.0.2.1:80", "forward", "127.0.0.1:0", (PROXY,), 80.0, 20.0)


class World:
    """A fleet of one proxy, which sends bytes between any two requests."""

    id = "f"
    lead_lives = True

    def __init__(self) -> None:
        self.sent = dict.fromkeys((HOME, PROXY), 0)
        self.states = dict.fromkeys((HOME, PROXY), "running")
        self.lost: set[str] = set()
        self.programs: list[str] = []
        self.plan: Plan
        self.at_look: Callable[[], None] = lambda: None

    def deployment(self) -> Deployment:
        addresses = {name: GatewayAddress(f"unix:{name}", f"{name}:443", inbound=True) for name in self.sent}
        return Deployment(self.plan, addresses)

    def client(self, _deployment: Deployment, name: str) -> Any:
        def status() -> SplitStatus:
            if name in self.lost:
                raise GatewayLost(f"{name} does not answer")
            return SplitStatus(self.states[name], ("127.0.0.1:1",), 0, 0, 0, 0, 0, {}, 0, self.sent[name], (), {})  # type: ignore[arg-type]

        def split_status(_timeout_s: float) -> SplitStatus:
            looked = status()
            self.at_look()
            return looked

        def end_split(_drain_s: int, _timeout_s: float = 0.0) -> SplitStatus:
            self.states[name] = "ended"
            return status()

        def put_split(_program: SplitProgram, timeout_s: float = 0.0) -> SplitStatus:
            self.programs.append(name)
            return status()

        return SimpleNamespace(split_status=split_status, end_split=end_split, put_split=put_split)

    def shrink(self, _plan: Plan) -> None:
        """End the machine, and what it counted with it."""
        self.lost.add(PROXY)

    def grow(self, _plan: Plan) -> None:
        self.lost.discard(PROXY)
        self.sent[PROXY], self.states[PROXY] = 0, "running"

    def leaving(self) -> dict[str, float]:
        return {}

    def close(self, grace_s: float) -> None:
        self.lost |= self.sent.keys()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(acceleration_gateways, "GatewayClient", SimpleNamespace(of=made.client))
    return made


@pytest.fixture
def running(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Acceleration:
    monkeypatch.setattr(Acceleration, "_predict", lambda _: None)  # It has no placement.
    control: Any = SimpleNamespace(store=SimpleNamespace(state_dir=str(tmp_path)), gateway="")
    ground: Any = SimpleNamespace()
    placed = replace(
        placed_flows(),
        wires=(WIRE,),
        regions={PROXY: REGION},
        machines={REGION: MachinePrice(0.01)},
        egress_usd_per_gb={REGION: 0.08},
    )
    made = Acceleration(control, ground, FLOWS, placed, report=lambda _: None)
    world.plan = made._plan({PROXY: REGION})
    fleet: Any = world
    made._gateways = AccelerationGateways(fleet, ThreadPoolExecutor(4))
    made._addresses = {PROXY: f"{PROXY}:443"}
    made._enters_at_home = True
    return made


def counted_bytes(running: Acceleration) -> tuple[int, int]:
    """Return the bytes of the proxy by the ledger, and by its state."""
    (run,) = running._meter.ledger.runs
    (proxy,) = running.state().proxies
    return run.route_bytes.get(PROXY, 0), proxy.bytes_down


@pytest.mark.parametrize("is_alive", [True, False], ids=["alive", "dead"])
def test_a_machine_that_still_runs_is_counted_to_its_end_when_it_is_replaced(
    running: Acceleration, world: World, is_alive: bool
) -> None:
    """The cloud takes it back, or nothing can connect to it. Nobody waits for the answer of a dead one."""
    world.sent[PROXY] = 100
    running._look_at_all()
    world.sent[PROXY] = 130
    assert running._finish(Replace(PROXY, is_alive=is_alive)).error is None
    running._renew(PROXY)
    world.sent[PROXY] = 7
    running._look_at_all()
    total = 137 if is_alive else 107
    assert counted_bytes(running) == (total, total)


def test_proxies_are_counted_to_their_end_when_the_gateway_at_home_is_gone(running: Acceleration, world: World) -> None:
    world.sent[PROXY] = 100
    running._look_at_all()
    world.sent[PROXY] = 130
    world.lost.add(HOME)
    running._end(Close("the split proxy of this machine is gone"))
    assert counted_bytes(running) == (130, 130)
    assert running.state().phase == "failed"


def test_an_answer_that_is_older_than_the_last_one_is_not_that_of_another_machine(
    running: Acceleration, world: World
) -> None:
    """A proxy drains while it is looked at, and the answer to the look arrives after the final counts."""
    world.sent[PROXY] = 100
    running._leaving, running._placed = {PROXY: REGION}, replace(running._placed, regions={})
    has_ended = threading.Event()

    def drain() -> None:
        world.at_look = lambda: None
        world.sent[PROXY] = 130
        running._finish(DrainProxies(10.0))
        has_ended.set()

    def at_look() -> None:
        threading.Thread(target=drain).start()
        assert has_ended.wait(10.0)

    world.at_look = at_look
    running._look_at_all()
    running._placed = replace(running._placed, regions={PROXY: REGION})
    assert counted_bytes(running) == (130, 130)


def test_a_new_machine_gets_no_program_before_its_counts_begin(running: Acceleration, world: World) -> None:
    """Programs are sent at any time, because the health of others changes."""
    running._course.step, running._course.replacing = "replacing", PROXY
    running._wire()
    assert PROXY not in world.programs
    running._course.replacing = None
    running._carry_out(Rewire(PROXY))
    running._catch_up()
    assert PROXY in world.programs


def test_the_shown_path_is_the_one_that_the_entrance_has(running: Acceleration, world: World) -> None:
    running._wire()
    assert running.state().flows[0].through == (PROXY,)
    running._health.dead(PROXY, "it does not answer")
    world.lost.add(HOME)
    running._due = "route"
    running._catch_up()
    flow = running.state().flows[0]
    assert (flow.through, flow.reason) == ((PROXY,), None)
    world.lost.discard(HOME)
    running._catch_up()
    flow = running.state().flows[0]
    assert (flow.through, flow.reason) == ((), f"{PROXY}: it does not answer")
