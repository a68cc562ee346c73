"""`Fleet` against a fake provider, with seeds: machines fail to start, are late, die, and are wanted no more.

Whatever happens, no machine outlives the fleet's close, none is started twice, and none of another fleet is touched.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fake_provider import FakeProvider
from tradewind.errors import GatewayError
from tradewind.fleet.fleet import Fleet, FleetSettings
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Machine, MachineOrder
from tradewind.model.plan import GatewayAddress, Plan, PlannedGateway, PlannedHop, PlannedRoute

SEEDS = int(os.environ.get("TRADEWIND_SEEDS", "150"))
RELAYS = [f"relay-{number}" for number in range(6)]


def plan_over(relays: Sequence[str]) -> Plan:
    gateways = [PlannedGateway(name, "site:a") for name in ("lead", "source", "sink", *relays)]
    pairs = [pair for relay in relays for pair in (("source", relay), (relay, "sink"))] or [("source", "sink")]
    routes: list[tuple[str, ...]] = [("source", relay, "sink") for relay in relays]
    routes = routes or [("source", "sink")]
    return Plan(
        tuple(gateways),
        tuple(PlannedHop(*pair, 1) for pair in pairs),
        tuple(PlannedRoute(route, 1 / len(routes)) for route in routes),
    )


def names(plan: Plan) -> set[str]:
    return {gateway.name for gateway in plan.gateways}


class Life:
    """One fleet, from its start to its end, and what is known of it at each step."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng = rng
        self.journal = FleetJournal(folder)
        self.provider = FakeProvider(rng, rng.choice([0.0, 0.05, 0.3]))
        self.other = MachineOrder("other-fleet", "relay-0", "site:a", "other", lease_s=60)
        self.provider.living["other-fleet", "relay-0"] = self.other
        self.deaths = rng.random() < 0.5

    def start(self, plan: Plan) -> Fleet | None:
        settings = FleetSettings(plain=True, grows=True)
        try:
            return Fleet(self.provider, self.journal, plan, "/nowhere", purpose="a test", settings=settings)
        except GatewayError:
            return None

    def wanted(self) -> list[str]:
        return sorted(self.rng.sample(RELAYS, self.rng.randrange(4)))

    def step(self, fleet: Fleet) -> None:
        before, known = fleet.plan, self.mine(fleet.id)
        plan = plan_over(self.wanted())
        try:
            deployment = fleet.grow(plan)
        except GatewayError:
            assert fleet.plan == before
            assert self.mine(fleet.id) <= known | (names(before) & self.mine(fleet.id)), "a failed growth left machines"
            return
        assert names(plan) <= set(deployment.addresses)
        if self.deaths and self.rng.random() < 0.3:
            self.provider.die()
            self.provider.living["other-fleet", "relay-0"] = self.other
        fleet.shrink(plan)
        assert self.mine(fleet.id) <= names(plan), "a machine that nobody wants lives on"
        recorded: Mapping[str, str] = self.journal.load(fleet.id).machines
        assert set(recorded) == names(plan), "what is written down is not what is wanted"

    def mine(self, fleet_id: str) -> set[str]:
        return {machine.name for machine in self.provider.machines(fleet_id)}


@pytest.mark.parametrize("block", range(5))
def test_no_machine_outlives_its_fleet(tmp_path: Path, block: int) -> None:
    for seed in range(block, SEEDS, 5):
        rng = random.Random(seed)
        life = Life(rng, tmp_path / str(seed))
        fleet = life.start(plan_over(life.wanted()))
        if fleet is not None:
            for _ in range(rng.randrange(6)):
                life.step(fleet)
            fleet.close(grace_s=rng.choice([0.0, 10.0]))
            fleet.close()
            with pytest.raises(GatewayError, match="is closed"):
                fleet.grow(plan_over(RELAYS))
        assert list(life.provider.living) == [("other-fleet", "relay-0")], f"seed {seed}"
        assert list(life.journal.records()) == [] and life.journal.unreadable() == [], f"seed {seed}"


@pytest.mark.parametrize("seed", range(20))
def test_a_close_from_another_thread_leaves_nothing(tmp_path: Path, seed: int) -> None:
    """A signal's thread closes while the replanning grows."""
    rng = random.Random(seed)
    life = Life(rng, tmp_path)
    life.provider.failing = 0.0
    fleet = life.start(plan_over([]))
    assert fleet is not None
    begin = threading.Barrier(2)

    def close() -> None:
        begin.wait()
        fleet.close(grace_s=0.0)

    closer = threading.Thread(target=close)
    closer.start()
    begin.wait()
    with suppress(GatewayError):  # It is closed.
        for _ in range(20):
            fleet.shrink(fleet.grow(plan_over(life.wanted())).plan)
    closer.join()
    assert list(life.provider.living) == [("other-fleet", "relay-0")]
    assert list(life.journal.records()) == []


def nothing() -> None:
    """A hook that does nothing."""


class HookedProvider(FakeProvider):
    """Calls a hook when a machine of this name is created, waited for or ended with a grace."""

    def __init__(self, name: str) -> None:
        super().__init__(random.Random(0), 0.0)
        self.name = name
        self.on_create: Callable[[], None] = nothing
        self.on_wait: Callable[[], None] = nothing
        self.on_delete: Callable[[], None] = nothing

    def create(self, order: MachineOrder) -> Machine:
        if order.name == self.name:
            self.on_create()
        return super().create(order)

    def wait_ready(self, machine: Machine, timeout_s: float) -> GatewayAddress:
        if machine.name == self.name:
            self.on_wait()
            if (machine.fleet_id, machine.name) not in self.living:
                raise GatewayError(f"{machine.name} is gone")
        return super().wait_ready(machine, timeout_s)

    def delete(self, machines: Sequence[Machine], **how: Any) -> None:
        if how.get("grace_s", 10.0) > 0 and self.name in {machine.name for machine in machines}:
            self.on_delete()
        super().delete(machines, **how)


def hooked(folder: Path, name: str, relays: Sequence[str] = ()) -> tuple[HookedProvider, Fleet]:
    provider = HookedProvider(name)
    settings = FleetSettings(plain=True, grows=True)
    plan = plan_over(relays)
    return provider, Fleet(provider, FleetJournal(folder), plan, "/nowhere", purpose="a test", settings=settings)


def test_a_fleet_that_is_closed_orders_no_further_machine(tmp_path: Path) -> None:
    provider, fleet = hooked(tmp_path, "relay-0")
    closer = threading.Thread(target=lambda: fleet.close(grace_s=0.0))

    def close() -> None:
        closer.start()
        assert fleet._ended.wait(60.0)

    provider.on_create = close
    with pytest.raises(GatewayError, match="is closed"):
        fleet.grow(plan_over(["relay-0", "relay-1", "relay-2"]))
    closer.join()
    assert [token.partition("/")[2] for token in provider.started] == ["lead", "source", "sink", "relay-0"]
    assert provider.living == {}
    assert os.listdir(tmp_path / "fleets") == []


def test_a_growth_that_a_close_ends_leaves_no_record(tmp_path: Path) -> None:
    provider, fleet = hooked(tmp_path, "relay-0")
    provider.on_wait = lambda: fleet.close(grace_s=0.0)
    with pytest.raises(GatewayError, match="is gone"):
        fleet.grow(plan_over(["relay-0"]))
    assert provider.living == {}
    assert os.listdir(tmp_path / "fleets") == []


def test_a_machine_that_is_slow_to_end_does_not_hold_up_a_close(tmp_path: Path) -> None:
    provider, fleet = hooked(tmp_path, "relay-0", ["relay-0"])
    ending, may_end = threading.Event(), threading.Event()

    def hang() -> None:
        ending.set()
        assert may_end.wait(60.0)

    provider.on_delete = hang
    shrinker = threading.Thread(target=fleet.shrink, args=(plan_over([]),))
    shrinker.start()
    assert ending.wait(60.0)
    fleet.close(grace_s=0.0)
    assert provider.living == {}
    may_end.set()
    shrinker.join()
    assert os.listdir(tmp_path / "fleets") == []


def test_a_machine_that_never_answered_gets_no_time_to_end(tmp_path: Path) -> None:
    provider, fleet = hooked(tmp_path, "relay-0")
    graced: list[str] = []
    provider.on_delete = lambda: graced.append("relay-0")

    def fail() -> None:
        raise GatewayError("it is late")

    for on_wait, error in ((fail, "is late"), (fleet.close, "is gone")):
        provider.on_wait = on_wait
        with pytest.raises(GatewayError, match=error):
            fleet.grow(plan_over(["relay-0"]))
    assert graced == []


def test_machines_that_are_known_end_though_the_provider_cannot_say_which_live(tmp_path: Path) -> None:
    provider, journal = FakeProvider(random.Random(0), 0.0), FleetJournal(tmp_path)
    settings = FleetSettings(plain=True)
    fleet = Fleet(provider, journal, plan_over([]), "/nowhere", purpose="a test", settings=settings)
    assert len(provider.living) == 3

    def unreadable(fleet_id: str) -> tuple[Machine, ...]:
        raise GatewayError("a record cannot be used")

    provider.machines = unreadable  # type: ignore[method-assign]
    with pytest.raises(GatewayError, match="cannot be used"):
        fleet.close()
    assert provider.living == {}
    assert [record.id for record in journal.records()] == [fleet.id], "there may be others"
