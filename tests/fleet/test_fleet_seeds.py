"""`Fleet` with a fake provider, with seeds: machines fail to start, are late, die, or are no longer wanted.

In every case no machine outlives the fleet's close, none is started twice, and none of another fleet is touched.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fleet.fake_gateways import FakeGateways, fake_gateways, lead_program
from tests.fleet.fake_provider import FakeProvider
from tradewind.errors import GatewayError
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import CallRefused, Ended, LaunchOrder, LaunchResult, Lease, Machine, Refusal
from tradewind.fleet.settings import LEASE_S, FleetSettings
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute

SEEDS = int(os.environ.get("TRADEWIND_SEEDS", "60"))
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


@pytest.fixture
def gateways(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGateways]:
    """Fake gateways that answer."""
    monkeypatch.setattr("tradewind.fleet.launching.BACKOFF_S", 0.001)
    monkeypatch.setattr("tradewind.fleet.ending.LIST_WAIT_S", 0.001)
    monkeypatch.setattr("tradewind.fleet.patience.RETRY_WAIT_S", 0.001)
    # Paths of Unix sockets must be short.
    with tempfile.TemporaryDirectory(prefix="tw-") as sockets, fake_gateways(Path(sockets), random.Random(0)) as made:
        yield made


def rented(plan: Plan) -> set[str]:
    return {gateway.name for gateway in plan.machines}


class Life:
    """One fleet, from its start to its end, with checks at each step."""

    def __init__(self, rng: random.Random, folder: Path, gateways: FakeGateways) -> None:
        self.rng, self.lead = rng, lead_program(gateways)
        self.journal = FleetJournal(folder)
        failing = rng.choice([0.0, 0.05, 0.3])
        gateways.unready = failing / 2
        self.provider = FakeProvider(rng, failing, gateways.control)
        self.other = LaunchOrder("other-fleet", "relay-0", "site:a", "other", 1, Lease(60, "other"))
        self.provider.living["other-fleet", "relay-0"] = self.other
        self.deaths = rng.random() < 0.5

    def start(self, plan: Plan) -> Fleet | None:
        settings = FleetSettings(plain=True)
        try:
            return Fleet(self.provider, self.journal, plan, self.lead, purpose="a test", settings=settings)
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
        assert self.mine(fleet.id) <= rented(plan), "an unwanted machine is still alive"
        recorded: Mapping[str, str] = self.journal.load(fleet.id).machines
        assert set(recorded) == rented(plan), "the record does not match the wanted machines"

    def mine(self, fleet_id: str) -> set[str]:
        return self.provider.names(fleet_id)


@pytest.mark.parametrize("block", range(5))
def test_no_machine_outlives_its_fleet(tmp_path: Path, gateways: FakeGateways, block: int) -> None:
    for seed in range(block, SEEDS, 5):
        rng = random.Random(seed)
        life = Life(rng, tmp_path / str(seed), gateways)
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
def test_a_close_from_another_thread_leaves_nothing(tmp_path: Path, gateways: FakeGateways, seed: int) -> None:
    """A signal's thread closes the fleet while replanning grows it."""
    rng = random.Random(seed)
    life = Life(rng, tmp_path, gateways)
    life.provider.failing = gateways.unready = 0.0
    fleet = life.start(plan_over([]))
    assert fleet is not None
    begin = threading.Barrier(2)

    def close() -> None:
        begin.wait()
        fleet.close(grace_s=0.0)

    closer = threading.Thread(target=close)
    closer.start()
    begin.wait()
    with suppress(GatewayError):  # The fleet is closed meanwhile.
        for _ in range(20):
            fleet.shrink(fleet.grow(plan_over(life.wanted())).plan)
    closer.join()
    assert list(life.provider.living) == [("other-fleet", "relay-0")]
    assert list(life.journal.records()) == []


def nothing() -> None:
    """Do nothing."""


class HookedProvider(FakeProvider):
    """Calls a hook when a machine of a given name is launched, and when it is ended with a grace period."""

    def __init__(self, name: str, control: Callable[[str], str]) -> None:
        super().__init__(random.Random(0), 0.0, control)
        self.name = name
        self.on_launch: Callable[[], None] = nothing
        self.on_terminate: Callable[[], None] = nothing

    def create(self, order: LaunchOrder) -> LaunchResult:
        if order.name == self.name:
            self.on_launch()
        return super().create(order)

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        if grace_s > 0 and any(machine_id.endswith(f"/{self.name}") for machine_id in ids):
            self.on_terminate()
        return super().terminate(ids, grace_s=grace_s)


def hooked(folder: Path, gateways: FakeGateways, name: str, relays: Sequence[str] = ()) -> tuple[HookedProvider, Fleet]:
    provider = HookedProvider(name, gateways.control)
    settings, plan = FleetSettings(plain=True), plan_over(relays)
    lead = lead_program(gateways)
    return provider, Fleet(provider, FleetJournal(folder), plan, lead, purpose="a test", settings=settings)


def test_a_launch_that_races_a_close_is_terminated(tmp_path: Path, gateways: FakeGateways) -> None:
    """The provider is slow, so the machine is no longer wanted when it is launched."""
    provider, fleet = hooked(tmp_path, gateways, "relay-0")
    closer = threading.Thread(target=lambda: fleet.close(grace_s=0.0))

    def close() -> None:
        closer.start()
        assert fleet._ended.wait(60.0)

    provider.on_launch = close
    with pytest.raises(GatewayError, match=r"is closed|no longer wanted"):
        fleet.grow(plan_over(["relay-0", "relay-1", "relay-2"]))
    closer.join()
    assert sorted(provider.started) == ["relay-0", "relay-1", "relay-2", "sink", "source"]
    assert provider.living == {}
    assert [name for name in os.listdir(tmp_path / "fleets") if "." not in name] == []


def test_a_launch_that_races_an_end_by_another_process_is_terminated(tmp_path: Path, gateways: FakeGateways) -> None:
    provider, fleet = hooked(tmp_path, gateways, "relay-0")
    journal = FleetJournal(tmp_path)
    provider.on_launch = lambda: journal.dismiss(fleet.id)
    with pytest.raises(GatewayError, match="no longer wanted"):
        fleet.grow(plan_over(["relay-0"]))
    assert provider.names(fleet.id) == {"source", "sink"}
    with pytest.raises(GatewayError, match="was ended by another process"):
        fleet.grow(plan_over(["relay-1"]))
    fleet.close()
    assert provider.living == {}


def test_a_new_machine_that_cannot_be_ended_is_not_taken_for_one_of_the_plan(
    tmp_path: Path, gateways: FakeGateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not answer. It is ended with the fleet, and until then the fleet grows without it."""
    provider, fleet = hooked(tmp_path, gateways, "relay-0")
    before, gateways.unready = fleet.plan, 1.0

    def refuse(ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        return [Ended(each, refusal=Refusal("bad request", "it is locked")) for each in ids]

    with monkeypatch.context() as patched:
        patched.setattr(provider, "terminate", refuse)
        with pytest.raises(GatewayError, match="may still run: bad request: it is locked"):
            fleet.grow(plan_over(["relay-0"]))
    assert fleet.plan == before
    gateways.unready = 0.0
    assert "relay-1" in fleet.grow(plan_over(["relay-1"])).addresses
    fleet.close()
    assert provider.living == {}


def test_growing_a_fleet_that_is_closed_meanwhile_leaves_no_record(tmp_path: Path, gateways: FakeGateways) -> None:
    provider, fleet = hooked(tmp_path, gateways, "relay-0")
    closer = threading.Thread(target=lambda: fleet.close(grace_s=0.0))

    def close(name: str) -> None:
        if name == "relay-0":
            closer.start()
            assert fleet._ended.wait(60.0)

    gateways.on_version = close
    gateways.unready = 1.0
    with pytest.raises(GatewayError):
        fleet.grow(plan_over(["relay-0"]))
    closer.join()
    assert provider.living == {}
    assert os.listdir(tmp_path / "fleets") == []


def test_a_machine_that_ends_slowly_does_not_delay_a_close(tmp_path: Path, gateways: FakeGateways) -> None:
    provider, fleet = hooked(tmp_path, gateways, "relay-0", ["relay-0"])
    ending, may_end = threading.Event(), threading.Event()

    def hang() -> None:
        ending.set()
        assert may_end.wait(60.0)

    provider.on_terminate = hang
    shrinker = threading.Thread(target=fleet.shrink, args=(plan_over([]),))
    shrinker.start()
    assert ending.wait(60.0)
    closer = threading.Thread(target=lambda: fleet.close(grace_s=0.0))
    closer.start()
    end_s = time.monotonic() + 30.0
    while provider.living:
        assert time.monotonic() < end_s, "its machines wait for another machine"
        time.sleep(0.01)
    may_end.set()
    shrinker.join()
    closer.join()
    assert os.listdir(tmp_path / "fleets") == []


def test_a_machine_that_never_answered_gets_no_grace(tmp_path: Path, gateways: FakeGateways) -> None:
    provider, fleet = hooked(tmp_path, gateways, "relay-0")
    graced: list[str] = []
    provider.on_terminate = lambda: graced.append("relay-0")
    gateways.unready = 1.0
    with pytest.raises(GatewayError, match="too busy"):
        fleet.grow(plan_over(["relay-0"]))
    gateways.unready = 0.0
    assert provider.names(fleet.id) == {"source", "sink"}
    fleet.close()
    assert graced == []


def test_known_machines_are_ended_even_if_the_provider_cannot_list_them(tmp_path: Path, gateways: FakeGateways) -> None:
    provider, fleet = hooked(tmp_path, gateways, "relay-0")
    assert len(provider.living) == 2

    def unreadable(tags: Mapping[str, str]) -> tuple[Machine, ...]:
        raise GatewayError("the provider cannot say")

    provider.machines = unreadable  # type: ignore[method-assign]
    with pytest.raises(GatewayError, match="cannot say"):
        fleet.close()
    assert provider.living == {}
    assert [record.id for record in FleetJournal(tmp_path).records()] == [fleet.id], "other machines may run"


def test_a_machine_that_cannot_be_listed_lives_until_its_lease_expires(
    tmp_path: Path, gateways: FakeGateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that cannot be reached is not dead."""
    provider, fleet = hooked(tmp_path, gateways, "relay-0")
    machines = provider.machines

    def unreachable(tags: Mapping[str, str]) -> tuple[Machine, ...]:
        raise CallRefused(Refusal("transient", "no answer"))

    monkeypatch.setattr(provider, "machines", unreachable)
    assert fleet.living() == {"lead", "source", "sink"}
    monkeypatch.setattr(fleet._leases, "_clock", lambda: time.monotonic() + 2 * LEASE_S)
    assert fleet.living() == {"lead"}
    monkeypatch.setattr(provider, "machines", machines)
    assert fleet.living() == {"lead", "source", "sink"}, "the provider says that they live"
    fleet.close()
