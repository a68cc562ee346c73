"""Reactions of a fleet to refusals, lost answers and late listings, with real machines behind a faulty provider."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.faulty_provider import FaultyProvider
from tests.fleet.worlds import late_binary, living, plan_between, wait_until
from tradewind.engine.ledger import JobLedger
from tradewind.errors import GatewayError, MachineReclaimed, ProviderRefused, StateError
from tradewind.fleet.calls import InFlight
from tradewind.fleet.charges import Charges
from tradewind.fleet.fleet import Fleet, Replanner
from tradewind.fleet.fleet_records import Intent
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.launching import CHOICES_MAX, Launcher, choices_of, other_type
from tradewind.fleet.leases import Leases
from tradewind.fleet.machines import FleetMachines
from tradewind.fleet.provider import FLEET_TAG, Billing, LaunchOrder, LaunchResult, Lease, Offer, Quota, Refusal
from tradewind.fleet.providers import LOCAL, make_provider
from tradewind.fleet.settings import LEASE_S, FleetSettings
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.process import STOP_S
from tradewind.model.latch import Latch
from tradewind.model.ledger import JobPrices, Ledger, MachinePrice
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute
from tradewind.model.records import replace

PLAN = plan_between("cloud:a", "cloud:b")


class Meter:
    """Records the fleet's calls."""

    def __init__(self) -> None:
        self.living: dict[str, str] = {}
        self.events: list[tuple[str, str]] = []
        self.prices: dict[str, MachinePrice] = {}
        self.left_usd = self.room_s = float("inf")

    def launched(self, fleet: str, name: str, region: str) -> None:
        if name not in self.living:
            self.events.append(("launched", name))
        self.living[name] = region

    def reported(self, fleet: str, name: str, began_unix_s: float | None, price: MachinePrice | None) -> None:
        if price is not None:
            self.prices[name] = price

    def refused(self, fleet: str, names: Any) -> None:
        for name in names:
            self.events.append(("refused", name))
            self.living.pop(name, None)

    def ended(self, fleet: str, names: Any = None, ago_s: float = 0.0) -> None:
        for name in list(self.living) if names is None else names:
            if self.living.pop(name, None) is not None:
                self.events.append(("ended", name))

    def can_pay(self, usd: float) -> bool:
        return usd <= self.left_usd

    def left_s(self, most_s: float) -> float:
        return min(most_s, self.room_s)


class World:
    """A provider with faults, and the fleets started with it."""

    def __init__(self, folder: Path) -> None:
        self.journal, self.binary = FleetJournal(folder), find_gateway()
        self.provider = FaultyProvider(make_provider(LOCAL, self.binary, self.journal))
        self.meter = Meter()
        self.fleets: list[Fleet] = []

    def start(self, plan: Plan = PLAN, replan: Replanner | None = None, **settings: Any) -> Fleet:
        fleet = Fleet(
            self.provider,
            self.journal,
            plan,
            self.binary,
            purpose="a test",
            settings=FleetSettings(plain=True, **settings),
            meter=self.meter,
            replan=replan,
        )
        self.fleets.append(fleet)
        return fleet

    def refuse(self, name: str, *refusals: Refusal) -> None:
        self.provider.refusals[name].extend(refusals)

    def outcomes(self) -> list[tuple[str, str]]:
        ((fleet_id,),) = self.journal.database.rows("SELECT id FROM fleets")
        return [(attempt.name, attempt.outcome) for attempt in self.journal.attempts(fleet_id)]

    def living(self) -> set[str]:
        ids = [row[0] for row in self.journal.database.rows("SELECT id FROM fleets")]
        return {machine.name for fleet_id in ids for machine in living(self.provider.inner, fleet_id)}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr("tradewind.fleet.launching.BACKOFF_S", 0.02)
    monkeypatch.setattr("tradewind.fleet.ending.LIST_WAIT_S", 0.02)
    monkeypatch.setattr("tradewind.fleet.patience.RETRY_WAIT_S", 0.02)
    made = World(tmp_path)
    yield made
    for fleet in made.fleets:
        fleet.close(grace_s=0.0)
    assert made.living() == set(), "a machine outlived its fleet"


def test_throttling_and_transient_errors_are_retried(world: World) -> None:
    world.refuse("source", Refusal("throttled", "slow down", retry_after_s=0.3), Refusal("transient", "try again"))
    world.provider.calls_refused["launch"].append(Refusal("throttled", "too many requests"))
    began_s = time.monotonic()
    fleet = world.start()
    assert time.monotonic() - began_s >= 0.3, "the wait that the provider requested"
    assert fleet.living() == {"lead", "source", "sink"}
    outcomes = world.outcomes()
    assert [outcome for name, outcome in outcomes if name == "sink"] == ["throttled", "launched"]
    assert [outcome for name, outcome in outcomes if name == "source"] == [
        "throttled",
        "throttled",
        "transient",
        "launched",
    ]
    assert [order.name for order in world.provider.ordered].count("sink") == 1, (
        "an existing machine is not ordered again"
    )


def test_a_machine_that_is_always_throttled_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.fleet.launching.LAUNCH_OUTAGE_S", 0.5)
    world.refuse("sink", *[Refusal("throttled", "slow down")] * 1000)
    with pytest.raises(ProviderRefused, match="machine sink in cloud:b cannot be launched: throttled") as caught:
        world.start()
    assert caught.value.kind == "throttled" and caught.value.regions == {"sink": "cloud:b"}
    assert world.living() == set()
    assert list(world.journal.records()) == []
    assert ("ended", "source") in world.meter.events and ("refused", "sink") in world.meter.events
    assert world.meter.living == {}


def test_a_missing_permission_fails_at_once_and_is_named(world: World) -> None:
    world.refuse("source", Refusal("permission", "not authorised", action="ec2:CreateFleet"))
    with pytest.raises(ProviderRefused, match="permission: not authorised") as caught:
        world.start()
    assert caught.value.hint is not None and "ec2:CreateFleet" in caught.value.hint
    assert world.provider.calls.count("launch") == 1


def test_a_quota_is_respected_before_anything_is_ordered(world: World) -> None:
    world.provider.quotas["cloud:b"] = Quota(4, used=4)
    with pytest.raises(ProviderRefused, match="needs 1 machine in cloud:b, which has 0 left") as caught:
        world.start()
    assert caught.value.kind == "quota"
    assert "launch" not in world.provider.calls
    assert world.meter.events == []


def test_without_capacity_other_zones_and_then_other_types_are_tried(world: World) -> None:
    offers = [
        Offer("cloud:a", "big", usd_per_s=0.01, price_source="list", zones=("a-1", "a-2"), egress_gbps=10),
        Offer("cloud:a", "bigger", usd_per_s=0.012, price_source="list", zones=("a-1",), egress_gbps=20),
        Offer("cloud:a", "small", usd_per_s=0.001, price_source="list", zones=("a-1",), egress_gbps=1),
        Offer("cloud:a", "dear", usd_per_s=0.1, price_source="list", zones=("a-1",), egress_gbps=20),
    ]
    order = LaunchOrder("f", "source", "cloud:a", "k", 1, Lease(60, "o"), type="big")
    assert [(choice.type, choice.zone) for choice in choices_of(order, offers)] == [
        ("big", "a-1"),
        ("big", "a-2"),
        ("bigger", None),
    ]
    many = [Offer("cloud:a", f"t-{n}", usd_per_s=0.01, zones=("a-1",), egress_gbps=10) for n in range(30)]
    assert len(choices_of(order, [*offers, *many])) == CHOICES_MAX - 1


def test_a_spot_machine_may_be_replaced_by_one_on_demand_and_never_the_other_way_round() -> None:
    spot = Offer("cloud:a", "big", spot=True, usd_per_s=0.003, zones=("a-1",))
    demand = Offer("cloud:a", "big", usd_per_s=0.01, zones=("a-1",))
    order = LaunchOrder("f", "source", "cloud:a", "k", 1, Lease(60, "o"), type="big", spot=True)
    assert [choice.spot for choice in choices_of(order, [spot, demand])] == [False]
    on_demand = LaunchOrder("f", "source", "cloud:a", "k", 1, Lease(60, "o"), type="big")
    assert choices_of(on_demand, [spot, demand]) == []


BIG = (
    Offer("cloud:a", "big", spot=True, usd_per_s=0.004, billing=Billing(least_s=60.0)),
    Offer("cloud:a", "big", usd_per_s=0.01, billing=Billing(least_s=60.0)),
    Offer("cloud:a", "bigger", usd_per_s=0.012, billing=Billing(least_s=60.0)),
)


@pytest.mark.parametrize(("left_usd", "kinds"), [(1.0, ["bigger"]), (0.11, [])])
def test_another_type_is_ordered_only_if_the_ceiling_can_pay_its_minimum(
    world: World, left_usd: float, kinds: list[str]
) -> None:
    """Each costs 0.12 USD more, and two machines need one."""
    world.meter.left_usd = left_usd
    charges = Charges("f", world.journal, world.meter, *[None] * 2, states_prices=False)  # type: ignore[arg-type]
    world.provider.full = {("big", None)}
    orders = [LaunchOrder("f", name, "cloud:a", name, 1, Lease(60, "o"), type="big") for name in ("one", "two")]
    launcher = Launcher(
        world.provider,
        world.journal,
        lambda _: True,
        Latch(),
        InFlight(),
        {"cloud:a": BIG},
        lambda planned, other, machines: charges.can_pay(planned, other, BIG, machines),
    )
    found = []
    try:
        found = [(order, machine) for order, machine in launcher.launch(orders)]
    except ProviderRefused as error:
        assert error.kind == "capacity" and kinds == []
    assert [order.type for order, _ in found] == kinds * 2
    world.provider.terminate([machine.id for _, machine in found])


def test_a_machine_of_another_type_is_charged_and_leased_at_its_own_price_before_it_is_ordered(world: World) -> None:
    """If the client dies before the answer, nobody renews the lease, and the ledger has the right price."""
    prices = JobPrices({"cloud:a": MachinePrice(0.004, billed_s_min=60.0)})
    ledger = JobLedger(Ledger(prices), None, usd_max=1.2, clock=lambda: 0.0, suspended=lambda: 0.0)
    world.provider.offered = BIG
    world.refuse("one", Refusal("capacity", "no spot machine is left"))
    settings, leases = FleetSettings(ready_s=5.0), Leases(lambda _: GatewayClient("unix:/nowhere"), print, print)
    machines = FleetMachines(
        "f",
        world.provider,
        world.journal,
        settings,
        leases,
        {},
        meter=ledger,
        taken=False,
        ended=Latch(),
        hurried=Latch(),
        dismiss=lambda _: None,
        report=lambda _: None,
    )
    world.journal.open("f", "a test", world.provider.document(), {"one": "cloud:a"})
    machines.look_up_offers([PlannedGateway("one", "cloud:a")])
    order = LaunchOrder("f", "one", "cloud:a", "k", 1, Lease(290, "o"), type="big", spot=True)
    assert machines.launch([order])
    first, second = world.provider.ordered
    assert (first.spot, first.lease.seconds) == (True, 290), "for 300 s at 0.004 USD"
    assert (second.spot, second.lease.seconds) == (False, 110), "for 120 s at 0.01 USD"
    (use,) = ledger.ledger.machines
    assert use.usd_per_s == 0.01
    machines.terminate(machines.alive())
    world.journal.close("f")


def test_no_other_machine_is_retried_or_waited_for_beyond_the_ceiling(world: World, tmp_path: Path) -> None:
    world.meter.room_s = 0.0
    world.refuse("sink", *[Refusal("throttled", "slow down")] * 1000)
    with pytest.raises(ProviderRefused, match="machine sink in cloud:b cannot be launched: throttled"):
        world.start()
    assert world.outcomes() == [("source", "launched"), ("sink", "throttled")]
    world.provider.refusals.clear()
    world.provider.inner = make_provider(LOCAL, late_binary(tmp_path, "sink"), world.journal)
    world.meter.room_s = 1.0
    with pytest.raises(GatewayError, match="machine sink in cloud:b did not answer within 1 s"):
        world.start()
    assert world.living() == set()


def test_an_order_is_retried_while_no_machine_can_be_charged(world: World) -> None:

    def left_s(most_s: float) -> float:
        assert world.living(), "no machine runs"
        return most_s

    world.meter.left_s = left_s  # type: ignore[method-assign]
    world.provider.calls_refused["launch"].append(Refusal("throttled", "too many requests"))
    assert world.start().living() == {"lead", "source", "sink"}


def test_another_type_or_price_than_planned_is_said() -> None:
    spot = LaunchOrder("f", "one", "cloud:a", "k", 1, Lease(60, "o"), type="big", spot=True)
    said = "cloud:a has no capacity for a big spot machine: machine one is a big on demand, for $36.00 per hour"
    assert other_type(spot, replace(spot, spot=False), BIG) == said
    said = "cloud:a has no capacity for a big: machine one is a bigger, for $43.20 per hour"
    assert other_type(replace(spot, spot=False), replace(spot, spot=False, type="bigger"), BIG) == said
    assert other_type(spot, replace(spot, zone="a-1"), BIG) is None


def test_a_machine_of_another_zone_replaces_an_unavailable_one(world: World) -> None:
    world.provider.offered = (
        Offer("cloud:a", "any", zones=("a-1", "a-2", "a-3"), price_source="list"),
        Offer("cloud:b", "any", zones=("b-1",), price_source="list"),
    )
    world.provider.full = {(None, "a-1"), (None, "a-2")}
    world.refuse("source", Refusal("capacity", "none is left"))
    fleet = world.start()
    assert fleet.living() == {"lead", "source", "sink"}
    assert [(order.zone) for order in world.provider.ordered if order.name == "source"] == [None, "a-1", "a-2", "a-3"]


def test_a_region_without_capacity_fails_with_its_name(world: World) -> None:
    world.provider.offered = (Offer("cloud:b", "any", zones=("b-1", "b-2"), price_source="list"),)
    world.refuse("sink", *[Refusal("capacity", "none is left")] * 5)
    with pytest.raises(ProviderRefused, match="machine sink in cloud:b cannot be launched: capacity") as caught:
        world.start()
    assert (caught.value.kind, caught.value.regions) == ("capacity", {"sink": "cloud:b"})
    assert caught.value.hint is not None and "tradewind fleet explain" in caught.value.hint
    assert world.outcomes()[-3:] == [("sink", "capacity")] * 3


def test_machines_of_a_launch_whose_answer_is_lost_are_found_and_not_started_twice(world: World) -> None:
    world.provider.settles_s = 0.3
    world.provider.answers_lost["launch"] = 1
    fleet = world.start()
    assert fleet.living() == {"lead", "source", "sink"}
    assert len(world.provider.ordered) == 2, "they were ordered once"
    assert world.outcomes() == [("source", "launched"), ("sink", "launched")]


def test_a_late_listing_does_not_make_a_machine_dead(world: World) -> None:
    world.provider.settles_s = 2.0
    fleet = world.start()
    assert living(world.provider, fleet.id) == [], "none is listed yet"
    assert fleet.living() == {"lead", "source", "sink"}
    wait_until(lambda: len(living(world.provider, fleet.id)) == 2)
    fleet.crash("source")
    assert fleet.living() == {"lead", "sink"}, "the provider says that it has ended"


def test_a_slow_launch_is_ended_by_the_close_that_it_races(world: World) -> None:
    fleet = world.start()
    world.provider.delays_s["launch"] = 1.0
    more = plan_with_relay()
    failed: list[GatewayError] = []

    def grow() -> None:
        try:
            fleet.grow(more)
        except GatewayError as error:
            failed.append(error)

    growing = threading.Thread(target=grow)
    growing.start()
    wait_until(lambda: world.provider.calls.count("launch") == 2)
    fleet.close(grace_s=0.0)
    growing.join()
    assert failed and world.living() == set()
    assert world.meter.living == {}


def test_a_launch_without_an_answer_times_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.fleet.launching.LAUNCH_S", 0.2)
    monkeypatch.setattr("tradewind.fleet.launching.LAUNCH_OUTAGE_S", 0.1)
    monkeypatch.setattr("tradewind.fleet.fleet.LAUNCH_S", 5.0)
    world.provider.delays_s["launch"] = 0.8
    with pytest.raises(ProviderRefused, match=r"transient: launch: no answer within"):
        world.start()
    assert world.living() == set(), "the late machines were ended"
    assert world.meter.living == {}


def test_a_machine_whose_own_answer_is_lost_is_ended_with_the_fleet(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider answers the call, but not whether this machine was started, and lists it late."""
    monkeypatch.setattr("tradewind.fleet.launching.LAUNCH_OUTAGE_S", 0.0)
    world.provider.settles_s = 0.5
    launch = world.provider.launch

    def without_answer(orders: Sequence[LaunchOrder]) -> list[LaunchResult]:
        lost = Refusal("transient", "the connection was closed")
        return [
            result if result.order.name == "source" else LaunchResult(result.order, None, lost)
            for result in launch(orders)
        ]

    monkeypatch.setattr(world.provider, "launch", without_answer)
    with pytest.raises(ProviderRefused, match="transient: the connection was closed"):
        world.start()
    assert world.living() == set()
    assert ("ended", "sink") in world.meter.events and world.meter.living == {}


def test_machines_of_a_launch_that_fails_otherwise_are_ended_with_the_fleet(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machines run when the state database fails, and are listed late."""
    world.provider.settles_s = 0.5
    intent = world.journal.intent

    def broken(fleet_id: str) -> Intent:
        monkeypatch.setattr(world.journal, "intent", intent)
        raise StateError("the disk is full")

    monkeypatch.setattr(world.journal, "intent", broken)
    with pytest.raises(StateError, match="the disk is full"):
        world.start()
    assert world.living() == set() and world.meter.living == {}


def test_a_termination_is_repeated_until_the_provider_confirms_it(world: World) -> None:
    fleet = world.start()
    world.provider.calls_refused["terminate"].extend([Refusal("throttled", "slow down"), Refusal("transient", "again")])
    world.provider.answers_lost["terminate"] = 1
    fleet.close(grace_s=0.0)
    assert world.living() == set() and list(world.journal.records()) == []


def test_temporarily_refused_listings_are_retried(world: World) -> None:
    fleet = world.start()
    world.provider.calls_refused["machines"].extend([Refusal("throttled", "slow down"), Refusal("transient", "again")])
    fleet.crash("source")
    assert fleet.living() == {"lead", "sink"}
    world.provider.calls_refused["machines"].append(Refusal("throttled", "slow down"))
    fleet.close(grace_s=0.0)
    assert world.living() == set() and list(world.journal.records()) == []


def test_a_fleet_that_cannot_be_ended_stays_on_record(world: World) -> None:
    fleet = world.start()
    world.provider.calls_refused["terminate"].append(Refusal("permission", "not authorised", action="ec2:Terminate"))
    with pytest.raises(GatewayError, match="2 of 2 machines may still run: permission") as caught:
        fleet.close(grace_s=0.0)
    assert caught.value.hint == "the missing permission is ec2:Terminate"
    assert [record.id for record in world.journal.records()] == [fleet.id]


def test_a_machine_that_cannot_be_ended_neither_keeps_nor_charges_the_others(world: World) -> None:
    fleet = world.start()
    world.provider.ends_refused["source"].append(Refusal("permission", "not authorised", action="ec2:Terminate"))
    world.provider.ends_refused["sink"].append(Refusal("transient", "try again"))
    with pytest.raises(GatewayError, match="1 of 2 machines may still run: permission"):
        fleet.close(grace_s=0.0)
    assert world.living() == {"source"} and set(world.meter.living) == {"source"}


def test_machines_that_answer_are_ended_even_if_one_that_never_did_cannot_be(world: World, tmp_path: Path) -> None:
    world.provider.ends_refused["sink"].append(Refusal("permission", "not authorised", action="ec2:Terminate"))
    world.binary = late_binary(tmp_path, "sink")
    world.provider.inner = make_provider(LOCAL, world.binary, world.journal)
    with pytest.raises(GatewayError, match="1 of 1 machine may still run: permission"):
        world.start(ready_s=3.0)
    assert world.living() == {"sink"} and set(world.meter.living) == {"sink"}
    # No others: every gateway of this host would be listed.
    (fleet,) = {order.fleet_id for order in world.provider.ordered}
    world.provider.terminate([machine.id for machine in world.provider.machines({FLEET_TAG: fleet})])


def test_the_machines_of_a_fleet_whose_end_cannot_be_recorded_are_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full, for example. The record stays open, and `fleet down` closes it."""
    fleet = world.start()

    def broken(fleet_id: str) -> None:
        raise StateError("the disk is full")

    with monkeypatch.context() as patched, pytest.raises(StateError, match="the disk is full"):
        patched.setattr(world.journal, "dismiss", broken)
        fleet.close(grace_s=0.0)
    assert world.living() == set()
    assert [record.id for record in world.journal.records()] == [fleet.id]


def test_attempts_are_shown_after_the_end(world: World) -> None:
    world.refuse("source", Refusal("permission", "not authorised", action="ec2:CreateFleet"))
    with pytest.raises(ProviderRefused):
        world.start()
    assert list(world.journal.records()) == []
    ((fleet_id,),) = world.journal.database.rows("SELECT id FROM fleets")
    refused, launched = world.journal.attempts(fleet_id)
    assert (refused.outcome, refused.action, launched.outcome) == ("permission", "ec2:CreateFleet", "launched")


def plan_with_relay() -> Plan:
    names = (("lead", "cloud:a"), ("source", "cloud:a"), ("relay", "cloud:c"), ("sink", "cloud:b"))
    hops = (PlannedHop("source", "relay", 1), PlannedHop("relay", "sink", 1))
    return Plan(tuple(PlannedGateway(*each) for each in names), hops, (PlannedRoute(("source", "relay", "sink"), 1.0),))


class Planner:
    """Returns plans one after the other, and keeps its arguments. Their machines may run for `room_s`."""

    def __init__(self, *plans: Plan, room_s: float = 20.0) -> None:
        self.plans, self.told = list(plans), list[tuple[str, set[str], set[str]]]()
        self.room_s = room_s

    def __call__(
        self, refused: ProviderRefused | MachineReclaimed, running: Collection[str]
    ) -> tuple[Plan, float] | None:
        assert isinstance(refused, ProviderRefused)
        self.told.append((refused.kind, set(refused.regions), set(running)))
        return (self.plans.pop(0), self.room_s) if self.plans else None


NONE_LEFT = Refusal("quota", "four are allowed")


def test_machines_that_have_come_stay_if_another_one_is_refused(world: World) -> None:
    world.refuse("relay", NONE_LEFT)
    planner = Planner(PLAN)
    fleet = world.start(plan_with_relay(), planner)
    assert planner.told == [("quota", {"relay"}, {"source", "sink"})]
    assert fleet.living() == {"lead", "source", "sink"} == set(fleet.plan.names)
    assert [order.name for order in world.provider.ordered] == ["source", "relay", "sink"]
    assert world.meter.events == [
        ("launched", "source"),
        ("launched", "relay"),
        ("launched", "sink"),
        ("refused", "relay"),
    ]
    assert world.journal.intent(fleet.id).machines.keys() == {"source", "sink"}


def plan_with_other_sink() -> Plan:
    other = replace(PLAN.gateways[-1], name="sink-2")
    return replace(
        PLAN,
        gateways=(*PLAN.gateways[:-1], other),
        hops=tuple(replace(hop, end="sink-2") if hop.end == "sink" else hop for hop in PLAN.hops),
        routes=(replace(PLAN.routes[0], nodes=("source", "sink-2")),),
    )


def test_a_machine_that_another_plan_does_not_have_is_ended_and_one_that_it_adds_is_ordered(world: World) -> None:
    world.refuse("sink", NONE_LEFT)
    fleet = world.start(plan_with_relay(), Planner(plan_with_other_sink()))
    assert fleet.living() == {"lead", "source", "sink-2"} and world.living() == {"source", "sink-2"}
    assert [order.name for order in world.provider.ordered] == ["source", "relay", "sink", "sink-2"]
    assert world.meter.living.keys() == {"source", "sink-2"}


@pytest.mark.parametrize(("room_s", "lease_s"), [(300.0, 300 - STOP_S), (1e6, LEASE_S), (45.0, 45)])
def test_machines_of_another_plan_have_a_lease_that_its_cost_allows(
    world: World, room_s: float, lease_s: float
) -> None:
    """They may cost more than those of the first plan. A lease lasts until the machine must have started."""
    world.refuse("sink", NONE_LEFT)
    world.start(plan_with_relay(), Planner(plan_with_other_sink(), room_s=room_s))
    leases = {order.name: order.lease.seconds for order in world.provider.ordered}
    assert leases == {"source": LEASE_S, "relay": LEASE_S, "sink": LEASE_S, "sink-2": lease_s}


def test_machines_that_are_added_have_a_lease_that_the_cost_of_all_allows(world: World) -> None:
    fleet = world.start()
    world.meter.room_s = 400.0
    fleet.grow(plan_with_relay(), 300.0)
    assert [(order.name, order.lease.seconds) for order in world.provider.ordered][2:] == [("relay", 300 - STOP_S)]
    ends_s = world.journal.lease_ends(fleet.id)
    assert all(0 < ends_s[name] - time.time() <= 400 - STOP_S for name in ("source", "sink")), "they are renewed"


def test_a_second_refusal_is_planned_around_too_and_without_a_plan_nothing_runs(world: World) -> None:
    world.refuse("relay", NONE_LEFT)
    world.refuse("sink", NONE_LEFT)
    planner = Planner(plan_with_relay(), plan_with_relay())
    world.refuse("relay", NONE_LEFT, NONE_LEFT)
    with pytest.raises(ProviderRefused, match="machine relay in cloud:c"):
        world.start(plan_with_relay(), planner)
    assert [kind for kind, *_ in planner.told] == ["quota"] * 3
    assert planner.told[-1][2] == {"source", "sink"}
    assert world.living() == set() and world.meter.living == {}


def test_a_machine_whose_answer_is_lost_stays_too(world: World) -> None:
    """It is listed under its key."""
    world.provider.settles_s = 0.3
    world.refuse("relay", NONE_LEFT, NONE_LEFT)
    world.provider.answers_lost["launch"] = 1
    fleet = world.start(plan_with_relay(), Planner(PLAN))
    assert fleet.living() == {"lead", "source", "sink"}
    assert sorted(order.name for order in world.provider.ordered if order.name != "relay") == ["sink", "source"]
    assert world.meter.living.keys() == {"source", "sink"}


def test_a_fleet_that_is_closed_while_it_is_planned_again_leaves_nothing(world: World) -> None:
    world.refuse("relay", NONE_LEFT)
    stopping = Latch()

    def stopped(refused: ProviderRefused | MachineReclaimed, running: Collection[str]) -> tuple[Plan, float]:
        stopping.set()
        return PLAN, 20.0

    with pytest.raises(GatewayError, match="is closed"):
        Fleet(
            world.provider,
            world.journal,
            plan_with_relay(),
            world.binary,
            purpose="a test",
            settings=FleetSettings(plain=True),
            meter=world.meter,
            stopping=stopping,
            replan=stopped,
        )
    assert world.living() == set() and world.meter.living == {}
