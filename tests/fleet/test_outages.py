"""A provider whose API refuses every call for a while, at each time of a fleet's life, on a virtual clock."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.fleet.fake_gateways import FakeGateways, fake_gateways, lead_program
from tests.fleet.fake_provider import FakeProvider
from tests.fleet.test_reactions import Meter
from tests.fleet.worlds import plan_between
from tradewind.errors import GatewayError, ProviderRefused
from tradewind.fleet import launching, patience
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.launching import LAUNCH_OUTAGE_S
from tradewind.fleet.patience import HURRIED_S, OUTAGE_S, Patience
from tradewind.fleet.provider import CallRefused, Ended, LaunchOrder, LaunchResult, Machine, Refusal
from tradewind.fleet.settings import FleetSettings
from tradewind.model.latch import Latch
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute

PLAN = plan_between("site:a", "site:b")
#: Outages that a fleet must survive: more than a minute at its start, two minutes at its end.
START_S, END_S = 61.0, 120.0


class Clock:
    """Time that passes only while somebody waits on a latch."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Waiting(Latch):
    """A latch on which the test's own thread waits without time, but moves the clock."""

    clock: Clock

    def wait(self, timeout_s: float | None = None) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return super().wait(timeout_s)
        self.clock.now_s += timeout_s or 0.0
        return self.is_set()


class Flaky(FakeProvider):
    """Refuses every call until a time of the clock."""

    def __init__(self, clock: Clock, gateways: FakeGateways) -> None:
        super().__init__(random.Random(0), 0.0, gateways.control)
        self.clock, self.out_until_s = clock, 0.0
        self.refused = 0
        self.retry_after_s: float | None = None

    def out_for(self, seconds: float) -> None:
        self.out_until_s = self.clock.now_s + seconds

    def _check(self) -> None:
        if self.clock.now_s < self.out_until_s:
            self.refused += 1
            raise CallRefused(Refusal("transient", "503 Service Unavailable", retry_after_s=self.retry_after_s))

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        self._check()
        return super().launch(orders)

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        self._check()
        return super().machines(tags)

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        self._check()
        return super().terminate(ids, grace_s=grace_s)


class World:
    """A provider with outages and the fleet that it is for."""

    def __init__(self, folder: Path, clock: Clock, gateways: FakeGateways) -> None:
        self.clock, self.gateways, self.lead = clock, gateways, lead_program(gateways)
        self.provider = Flaky(clock, gateways)
        self.journal = FleetJournal(folder)
        self.said: list[str] = []

    def start(self, plan: Plan = PLAN, meter: Meter | None = None) -> Fleet:
        return Fleet(
            self.provider,
            self.journal,
            plan,
            self.lead,
            purpose="a test",
            settings=FleetSettings(plain=True),
            meter=meter,
            report=self.said.append,
            stopping=Waiting(),
        )

    def running(self) -> int:
        return len(self.provider.living)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    clock = Clock()
    monkeypatch.setattr(Waiting, "clock", clock, raising=False)
    for timed in (launching, patience):
        monkeypatch.setattr(timed, "time", clock)
    for module in ("tradewind.fleet.patience", "tradewind.fleet.fleet"):
        monkeypatch.setattr(f"{module}.Latch", Waiting)
    monkeypatch.setattr("tradewind.fleet.ending.LIST_WAIT_S", 0.001)
    with tempfile.TemporaryDirectory(prefix="tw-") as sockets, fake_gateways(Path(sockets), random.Random(0)) as made:
        yield World(tmp_path, clock, made)


def test_a_fleet_starts_although_the_api_is_out_for_a_minute(world: World) -> None:
    world.provider.out_for(START_S)
    fleet = world.start()
    assert fleet.living() == {"lead", "source", "sink"} and world.provider.refused > 3
    fleet.close(grace_s=0.0)
    assert world.running() == 0


def test_an_api_that_asks_to_wait_for_a_day_is_tried_again_before_the_time_is_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines would run for all that time, and the command would seem to hang."""
    monkeypatch.setattr("tradewind.fleet.ending.time", world.clock)
    world.provider.retry_after_s = 86400.0
    began_s = world.clock.now_s
    world.provider.out_for(START_S)
    fleet = world.start()
    assert START_S <= world.clock.now_s - began_s <= LAUNCH_OUTAGE_S
    began_s = world.clock.now_s
    world.provider.out_for(END_S)
    fleet.close(grace_s=0.0)
    assert END_S <= world.clock.now_s - began_s <= 2 * OUTAGE_S
    assert world.running() == 0 and list(world.journal.records()) == []


def test_a_launch_fails_after_an_outage_that_is_longer(world: World) -> None:
    world.provider.out_for(LAUNCH_OUTAGE_S + 1)
    with pytest.raises(ProviderRefused, match="cannot be launched: transient: 503"):
        world.start()
    assert world.running() == 0 and list(world.journal.records()) == []


@pytest.mark.parametrize("outage_s", [5.0, START_S, END_S])
def test_machines_are_ended_although_the_api_is_out_at_the_end(world: World, outage_s: float) -> None:
    fleet = world.start()
    world.provider.out_for(outage_s)
    fleet.close(grace_s=0.0)
    assert world.running() == 0 and list(world.journal.records()) == []
    assert [line.partition(" (")[0] for line in world.said] == ["cannot end 2 machines at present"]


def test_machines_that_cannot_be_ended_stay_on_record(world: World) -> None:
    fleet = world.start()
    world.provider.out_for(OUTAGE_S * 10)
    with pytest.raises(GatewayError, match="2 of 2 machines may still run: transient: 503"):
        fleet.close(grace_s=0.0)
    assert [record.id for record in world.journal.records()] == [fleet.id]
    world.provider.out_until_s = 0.0
    fleet.close(grace_s=0.0)
    assert world.running() == 0 and list(world.journal.records()) == []


def test_any_command_may_end_machines_that_their_own_could_not_end(world: World) -> None:
    """The process of that command may live on: a server, or a program that uses the library."""
    fleet = world.start()
    assert not next(world.journal.records()).abandoned
    world.provider.out_for(OUTAGE_S * 10)
    with pytest.raises(GatewayError, match="may still run"):
        fleet.close(grace_s=0.0)
    (record,) = world.journal.records()
    assert record.abandoned and FleetJournal(world.journal.folder.parent).claim(fleet.id)


def test_a_user_in_a_hurry_does_not_wait_for_the_api(world: World) -> None:
    fleet = world.start()
    world.provider.out_for(END_S)
    began_s = world.clock.now_s
    fleet.hurry()
    with pytest.raises(GatewayError, match="may still run"):
        fleet.close(grace_s=0.0)
    assert world.clock.now_s - began_s <= HURRIED_S and world.said == []
    world.provider.out_until_s = 0.0
    fleet.close(grace_s=0.0)


def test_a_call_that_is_throttled_once_is_repeated_even_in_a_hurry(world: World) -> None:
    fleet = world.start()
    world.provider.out_for(HURRIED_S / 2)
    fleet.hurry()
    fleet.close(grace_s=0.0)
    assert world.running() == 0


def test_machines_are_replaced_although_the_api_is_out_for_a_minute(world: World) -> None:
    """A change of the plan begins in an outage: the dead machine cannot be ended, and no other one launched."""
    fleet = world.start()
    gateways = [PlannedGateway("lead", "site:a"), PlannedGateway("source", "site:a"), PlannedGateway("other", "site:b")]
    hops, routes = (PlannedHop("source", "other", 1),), (PlannedRoute(("source", "other"), 1.0),)
    world.provider.out_for(START_S)
    fleet.grow(Plan(tuple(gateways), hops, routes), replaced=["sink"])
    assert {order.name for order in world.provider.living.values()} == {"source", "other"}
    fleet.close(grace_s=0.0)
    assert world.running() == 0


def test_each_outage_has_its_own_time_and_closing_ends_the_wait(world: World) -> None:
    refusal = Refusal("throttled", "slow down")
    own = Patience()
    while own.wait("end machines", refusal):
        pass
    own.answered()
    assert own.wait("end machines", refusal)
    assert not own.wait("end machines", Refusal("permission", "not authorised"))
    latch = Latch()
    threading.Timer(0.05, latch.set).start()
    hurried = Patience(latch)
    while hurried.wait("end machines", Refusal("throttled", "wait", retry_after_s=300.0)):
        pass
    assert latch.is_set()


class Uses(Meter):
    """Notes which machines are charged."""

    def ended(self, fleet: str, names: Collection[str] | None = None, ago_s: float = 0.0) -> None:
        for name in list(self.living) if names is None else names:
            self.living.pop(name, None)


def test_a_machine_that_a_list_omits_is_charged_as_long_as_its_gateway_answers(world: World) -> None:
    """It costs money, and it was never charged again when lists showed it again."""
    meter = Uses()
    fleet = world.start(meter=meter)
    omitted = next(key for key in world.provider.living if key[1] == "source")
    order = world.provider.living.pop(omitted)
    fleet._machines.charge_dead()
    assert meter.living.keys() == {"source", "sink"}
    world.provider.living[omitted] = order
    fleet.close()
    assert world.running() == 0 and not meter.living


def test_a_machine_that_is_gone_is_not_charged_any_more(world: World) -> None:
    meter = Uses()
    fleet = world.start(meter=meter)
    world.provider.living = {key: order for key, order in world.provider.living.items() if key[1] != "source"}
    gateway = world.gateways.servers.pop("source")
    gateway.shutdown()
    gateway.server_close()
    fleet._machines.charge_dead()
    assert meter.living.keys() == {"sink"}
    fleet.close()
