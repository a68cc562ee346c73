"""Replanning against a fake provider and fake gateways, with seeds: machines fail to start, gateways refuse routes.

A change is applied completely or rolled back. The far end of a route gets new routes before the near end, and the lead
last. No machine stays alive that no plan wants.
"""

from __future__ import annotations

import os
import random
import re
import tempfile
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tests.engine.test_replan import HERE, THERE, catalog
from tests.fleet.fake_gateways import FakeGateways, fake_gateways, lead_program
from tests.fleet.fake_provider import FakeProvider
from tradewind.engine.adapt import REPLANS_MAX, Adaptation
from tradewind.engine.closed import MOVE_PAUSE_S, MOVES_MAX, ClosedPlaces
from tradewind.engine.compile import RunSettings, push_order
from tradewind.engine.gateways import JobGateways
from tradewind.engine.launch_spec import plan_prices
from tradewind.engine.ledger import JobLedger
from tradewind.engine.provisioning import plan_gateways
from tradewind.engine.replan import PlanRequest, TransferState, with_names_of, with_types_of
from tradewind.errors import ProviderRefused
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import CallRefused, Ended, LaunchOrder, LaunchResult, Refusal
from tradewind.fleet.settings import FleetSettings
from tradewind.model.goal import Fastest, MaxCost, MinThroughput
from tradewind.model.job import JobSpec, ObjectSelection, Target
from tradewind.model.ledger import Ledger
from tradewind.model.plan import Deployment, Plan
from tradewind.model.records import replace
from tradewind.model.region import Region
from tradewind.model.store import StoreSpec
from tradewind.planner.network import PlanningLimits

SEEDS = int(os.environ.get("TRADEWIND_SEEDS", "20"))
SPEC = JobSpec(StoreSpec("s3://s"), ObjectSelection("k"), (Target(StoreSpec("s3://d"), "k"),))
MBIT_BYTES = 125_000
DIRECT_MBPS = 15
"""Rate of the slowed direct link: a third of its original rate."""
RELAY_MBPS = 100


@pytest.fixture(scope="module")
def direct() -> Plan:
    plan = plan_gateways(catalog(), HERE, THERE, 0.5, MinThroughput(0.04), PlanningLimits(machines_per_region=1))
    assert [len(route.nodes) for route in plan.routes] == [2], "the first plan has only the direct route"
    return plan


class Transfer:
    """A running transfer: an `Adaptation`, a real `Fleet`, and the lead's progress as the test defines it."""

    def __init__(
        self, folder: Path, plan: Plan, gateways: FakeGateways, rng: random.Random, usd_max: float | None = None
    ) -> None:
        self.provider = FakeProvider(rng, 0.0, gateways.control)
        prices = plan_prices(plan, catalog())
        # The ledger uses the transfer's clock, so that its sums are exact.
        self.now_s = 0.0
        self.ledger = ledger = JobLedger(Ledger(prices), None, usd_max=usd_max, clock=lambda: self.now_s, unix_s=0.0)
        self.ledger.begin_run()
        self.fleet = Fleet(
            self.provider,
            FleetJournal(folder),
            plan,
            lead_program(gateways),
            purpose="a test",
            settings=FleetSettings(plain=True),
            meter=ledger,
        )
        self.changes: list[Plan] = []
        plan_request = PlanRequest(
            catalog(), HERE, THERE, Fastest(), PlanningLimits(machines_per_region=1), 1 << 17, None, None
        )
        self.adaptation = Adaptation(
            plan_request, plan, SPEC, replan=True, on_change=lambda plan, _: self.changes.append(plan), ledger=ledger
        )
        # A change uses only those members of `JobGateways` that the fleet has too.
        self.adaptation.begin(cast(JobGateways, self.fleet), RunSettings("job-1"))
        self.bytes: dict[tuple[str, ...], float] = {}
        self.relay_mbps = RELAY_MBPS
        self.in_flight = 0
        self.left_s: float | None = None
        """Time that the rest takes at the rate of the direct link; None for a long one."""
        self.seconds = 0.0
        """Cost of machines as counted by the provider."""

    def run(self, lasting_s: float) -> None:
        """Report progress twice a second: the direct link is slow, relays are as planned. Wait for each change."""
        for _ in range(round(lasting_s * 2)):
            self.now_s += 0.5
            self.seconds += 0.5 * len(self.provider.names(self.fleet.id))
            for route in self.adaptation.plan.routes:
                mbps = DIRECT_MBPS if len(route.nodes) == 2 else self.relay_mbps
                self.bytes[route.nodes] = self.bytes.get(route.nodes, 0.0) + mbps * MBIT_BYTES / 2
            self.adaptation.see(self.progress())
            if self.adaptation._thread is not None:
                self.adaptation._thread.join()

    def progress(self) -> dict[str, Any]:
        ids = self.adaptation._ids
        hops = [
            {"id": ids[nodes], "bytes": int(count), "up": True, "requests_in_flight": self.in_flight}
            for nodes, count in self.bytes.items()
            if nodes in ids
        ]
        done = int(sum(self.bytes.values()))
        left_bytes = 4_000_000_000 - done if self.left_s is None else int(self.left_s * DIRECT_MBPS * MBIT_BYTES)
        return {
            "elapsed_s": self.now_s,
            "listed": True,
            "bytes_done": done,
            "bytes_total": done + left_bytes,
            "cost_usd": 0.0,
            "hops": hops,
        }

    def living(self) -> set[str]:
        return {"lead", *self.provider.names(self.fleet.id)}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_change_of_the_plan_is_atomic(tmp_path: Path, direct: Plan, seed: int) -> None:
    rng = random.Random(seed)
    # Paths of Unix sockets must be short.
    with tempfile.TemporaryDirectory(prefix="tw-") as sockets, fake_gateways(Path(sockets), rng) as gateways:
        transfer = Transfer(tmp_path, direct, gateways, rng)
        transfer.provider.failing = rng.choice([0.0, 0.0, 0.3])
        gateways.failing = rng.choice([0.0, 0.0, 0.2, 0.6])
        transfer.run(rng.uniform(40, 150))
        failing = transfer.provider.failing or gateways.failing
        notices = transfer.adaptation.notices()
        changed = [line for line in notices if "replanned, now" in line]
        refused = [line for line in notices if "could not be changed" in line]
        assert len(changed) == len(transfer.changes)
        assert len(changed) + len(refused) <= REPLANS_MAX
        if not failing:
            assert len(changed) == 1 and not refused, notices
        present = {gateway.name for gateway in transfer.adaptation.plan.gateways}
        retired = {gateway.name for gateway in direct.gateways}
        assert present <= transfer.living(), "a machine of the present plan is gone"
        assert transfer.living() <= present | retired, "a machine that no plan wants is still alive"
        if changed and not failing:
            pushed_in_order(transfer.adaptation.plan, gateways)
        transfer.adaptation.end()
        transfer.fleet.close()
        assert transfer.provider.names(transfer.fleet.id) == set()
        machines = transfer.ledger.ledger.machines
        assert all(use.ended_s is not None for use in machines)
        lived_s = sum(use.ended_s - use.launched_s for use in machines if use.ended_s is not None)
        assert lived_s == pytest.approx(transfer.seconds)
        paid = {use.usd_per_s for use in machines}
        assert 0.0 not in paid, "a machine of another plan has no price"


@contextmanager
def transfer_of(folder: Path, plan: Plan, usd_max: float | None = None) -> Iterator[tuple[Transfer, FakeGateways]]:
    """Run a transfer without failures, which ends with the context."""
    rng = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="tw-") as sockets, fake_gateways(Path(sockets), rng) as gateways:
        transfer = Transfer(folder, plan, gateways, rng, usd_max)
        try:
            yield transfer, gateways
        finally:
            transfer.fleet.close()


def test_a_job_that_ends_while_the_planner_works_starts_no_machine(tmp_path: Path, direct: Plan) -> None:
    with transfer_of(tmp_path, direct) as (transfer, _):
        living, started = transfer.fleet.living, list(transfer.provider.started)

        def ended_meanwhile() -> set[str]:
            transfer.adaptation.stop()
            return living()

        transfer.fleet.living = ended_meanwhile  # type: ignore[method-assign]
        transfer.run(60)
        assert transfer.provider.started == started
        assert transfer.changes == []


def test_a_job_that_ends_while_machines_start_keeps_its_plan(tmp_path: Path, direct: Plan) -> None:
    with transfer_of(tmp_path, direct) as (transfer, _):
        launch = transfer.provider.launch

        def ended_meanwhile(orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
            transfer.adaptation.stop()
            return launch(orders)

        transfer.provider.launch = ended_meanwhile  # type: ignore[method-assign]
        transfer.run(60)
        assert transfer.adaptation.plan == direct and transfer.changes == []
        assert transfer.living() == {gateway.name for gateway in direct.gateways}
        assert transfer.adaptation.notices() == []


def test_a_machine_that_dies_while_the_api_is_out_is_replaced_after_that(
    tmp_path: Path, direct: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call of the provider is refused for more than a minute of the transfer."""
    monkeypatch.setattr("tradewind.fleet.ending.LIST_WAIT_S", 0.001)
    monkeypatch.setattr("tradewind.fleet.launching.BACKOFF_S", 0.001)
    with transfer_of(tmp_path, direct) as (transfer, _):
        provider, began, out_until_s = transfer.provider, transfer.progress, 65.0
        transfer.adaptation._replan = False
        dead, asked = direct.routes[0].nodes[-1], list[float]()

        def refused(call: Any) -> Any:
            def answer(*arguments: Any, **more: Any) -> Any:
                is_of_the_test = threading.current_thread() is threading.main_thread()
                if transfer.now_s < out_until_s and not is_of_the_test:
                    asked.append(transfer.now_s)
                    raise CallRefused(Refusal("transient", "503 Service Unavailable"))
                return call(*arguments, **more)

            return answer

        def with_a_route_down() -> dict[str, Any]:
            found = began()
            ids = {transfer.adaptation._ids[route.nodes] for route in transfer.adaptation.plan.routes}
            is_dead = any(dead in route.nodes for route in transfer.adaptation.plan.routes)
            return {**found, "hops": [{**hop, "up": not (is_dead and hop["id"] in ids)} for hop in found["hops"]]}

        with monkeypatch.context() as patched:
            for name in ("machines", "launch", "terminate"):
                patched.setattr(provider, name, refused(getattr(provider, name)))
            patched.setattr(transfer, "progress", with_a_route_down)
            del provider.living[transfer.fleet.id, dead]
            transfer.run(64)
            during = transfer.adaptation.plan, list(transfer.changes)
            transfer.run(20)
        assert asked and during == (direct, [])
        (line,) = [line for line in transfer.adaptation.notices() if "takes its place" in line]
        assert line.startswith(f"machine {dead} ended; ")
        assert {gateway.name for gateway in transfer.adaptation.plan.gateways} <= transfer.living()


def test_a_replacement_that_did_not_come_leaves_its_name_to_nobody(
    tmp_path: Path, direct: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may run, if its end failed, too. Another machine of its name would be taken for it."""
    with transfer_of(tmp_path, direct) as (transfer, gateways):
        provider, began, dead = transfer.provider, transfer.progress, direct.routes[0].nodes[-1]
        transfer.adaptation._replan = False

        def with_a_route_down() -> dict[str, Any]:
            found, plan = began(), transfer.adaptation.plan
            down = {transfer.adaptation._ids[route.nodes] for route in plan.routes if dead in route.nodes}
            return {**found, "hops": [{**hop, "up": hop["id"] not in down} for hop in found["hops"]]}

        def refuse(ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
            locked = Refusal("bad request", "it is locked")
            return [Ended(each, refusal=None if each.endswith(f"/{dead}") else locked) for each in ids]

        monkeypatch.setattr(transfer, "progress", with_a_route_down)
        del provider.living[transfer.fleet.id, dead]
        gateways.unready = 1.0
        with monkeypatch.context() as patched:
            patched.setattr(provider, "terminate", refuse)
            transfer.run(2)
        (late,) = set(provider.started) - direct.names
        gateways.unready = 0.0
        transfer.run(6)
        (fresh,) = transfer.adaptation.plan.names - direct.names
        assert fresh != late and provider.started.count(late) == 1
        assert transfer.adaptation.notices()[-1] == f"machine {dead} ended; {fresh} takes its place"
    assert provider.living == {}


def test_a_relay_that_hangs_does_not_hold_up_its_replacement(
    tmp_path: Path, direct: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.engine.adapt.ROUTES_S", 0.5)
    with transfer_of(tmp_path, direct) as (transfer, gateways):
        transfer.run(40)
        (relayed,) = transfer.changes
        (relay,) = {gateway.name for gateway in relayed.gateways} - {gateway.name for gateway in direct.gateways}
        assert [len(route.nodes) for route in relayed.routes] == [3]
        gateways.hanging.add(relay)
        transfer.relay_mbps = 1
        transfer.run(40)
        assert [len(route.nodes) for route in transfer.adaptation.plan.routes] == [2]
        assert relay not in transfer.living()


def test_a_machine_that_the_cloud_takes_back_works_until_another_one_carries_bytes(
    tmp_path: Path, direct: Plan
) -> None:
    with transfer_of(tmp_path, direct) as (transfer, _):
        sink = direct.routes[0].nodes[-1]
        transfer.in_flight = 3
        transfer.fleet.leaving = lambda: {sink: 100.0}  # type: ignore[method-assign]
        transfer.run(3)
        (changed,) = transfer.changes
        (fresh,) = changed.names - direct.names
        assert {sink, fresh} <= transfer.living(), "the sink carries what is in flight"
        transfer.in_flight = 0
        transfer.run(3)
        assert transfer.living() == changed.names and len(transfer.changes) == 1
        assert transfer.adaptation.notices() == [
            f"the cloud takes machine {sink} back: it works for another 100 s, and another one is ordered",
            f"machine {sink} is about to end; {fresh} takes its place",
        ]


def test_a_machine_that_the_cloud_takes_back_and_nothing_replaces_works_on(tmp_path: Path, direct: Plan) -> None:
    with transfer_of(tmp_path, direct) as (transfer, _):
        sink = direct.routes[0].nodes[-1]
        transfer.fleet.leaving = lambda: {sink: 100.0}  # type: ignore[method-assign]
        transfer.provider.failing = 1.0
        transfer.run(3)
        assert transfer.changes == [] and transfer.living() == direct.names
        ordered, refused = transfer.adaptation.notices()
        assert "another one is ordered" in ordered
        assert refused.startswith(f"nothing replaces {sink} before the cloud takes it back: ")
        transfer.run(3)
        assert transfer.adaptation.notices() == [], "once it has ended, it is replaced as any other"


def test_new_machines_live_no_longer_than_the_ceiling_allows(tmp_path: Path, direct: Plan) -> None:
    prices = plan_prices(direct, catalog()).machines
    usd_per_s = max(price.usd_per_s for price in prices.values())
    # The ceiling pays three machines for 30 s, some of which have passed when the third one is ordered.
    with transfer_of(tmp_path, direct, 30 * 3 * usd_per_s) as (transfer, _):
        given_s: list[float] = []
        grow = transfer.fleet.grow

        def counted(plan: Plan, ready_s_max: float = float("inf"), replaced: Collection[str] = ()) -> Deployment:
            given_s.append(ready_s_max)
            return grow(plan, ready_s_max, replaced)

        transfer.fleet.grow = counted  # type: ignore[method-assign]
        transfer.run(40)
        assert transfer.changes, transfer.adaptation.notices()
        assert max(given_s) < 30.0


def test_an_unavailable_relay_is_planned_around_before_the_job_begins(tmp_path: Path) -> None:
    limits = PlanningLimits(machines_per_region=1)
    relayed = plan_gateways(catalog(), HERE, THERE, 0.5, Fastest(), limits)
    relays = {gateway.name: gateway.region for gateway in relayed.machines}
    relays = {name: region for name, region in relays.items() if region not in (str(HERE), str(THERE))}
    assert relays, "the fastest plan uses a relay"
    changes: list[Plan] = []
    ledger = JobLedger(Ledger(plan_prices(relayed, catalog())), None)
    ledger.begin_run()
    question = PlanRequest(catalog(), HERE, THERE, Fastest(), limits, 1 << 17, None, None)
    adaptation = Adaptation(
        question, relayed, SPEC, replan=False, on_change=lambda plan, _: changes.append(plan), ledger=ledger
    )
    forbidden = ProviderRefused("no", hint=None, kind="permission", regions=relays)
    assert not adaptation.plan_without(forbidden), "another plan would not be permitted either"
    words = adaptation.plan_without(ProviderRefused("no", hint=None, kind="capacity", regions=relays))
    assert words is not None and re.fullmatch(r"now 100% direct; [+-]\d+\.\d{4} USD", words), words
    assert not {gateway.region for gateway in adaptation.plan.machines} & set(relays.values())
    assert changes == [adaptation.plan]
    source = {gateway.name: gateway.region for gateway in adaptation.plan.machines if gateway.region == str(HERE)}
    assert not adaptation.plan_without(ProviderRefused("no", hint=None, kind="capacity", regions=source))
    assert changes == [adaptation.plan], "without a source there is no plan"


def test_machines_that_run_are_paid_once_and_keep_their_names_and_types(tmp_path: Path) -> None:
    """The ceiling pays two machines, but not four."""
    limits = PlanningLimits(machines_per_region=1)
    relayed = plan_gateways(catalog(), HERE, THERE, 0.5, Fastest(), limits)
    direct = plan_gateways(catalog(), HERE, THERE, 0.5, MinThroughput(0.04), limits)
    relays = {one.name: one.region for one in relayed.machines if one.region not in (str(HERE), str(THERE))}
    ends = {one.name: one.region for one in relayed.machines if one.name not in relays}
    assert direct.overlay is not None
    usd = direct.overlay.cost.total_usd * 1.2
    prices = plan_prices(relayed, catalog())
    dear = {
        region: replace(price, billed_s_min=0.2 * usd / price.usd_per_s) if region in ends.values() else price
        for region, price in prices.machines.items()
    }
    ledger = JobLedger(Ledger(replace(prices, machines=dear)), None, usd_max=usd)
    ledger.begin_run()
    for name, region in ends.items():
        ledger.launched("fleet", name, region)
    assert ledger.spent_usd() > 0.3 * usd
    question = PlanRequest(catalog(), HERE, THERE, MaxCost(usd), limits, 1 << 17, usd, None)
    # The first plan has more machines, which leave less for egress.
    spec = replace(SPEC, ceiling_usd=0.5 * usd, ceiling_usd_per_gb=usd)
    adaptation = Adaptation(question, relayed, spec, replan=False, on_change=lambda *_: None, ledger=ledger)
    refused = ProviderRefused("no", hint=None, kind="capacity", regions=relays)
    assert adaptation.plan_without(refused, ()) is None, "they would be paid beside those of the new plan"
    allowed = adaptation.spec.ceiling_usd
    assert adaptation.plan_without(refused, ends) is not None
    spec = adaptation.spec
    assert spec.ceiling_usd is not None and spec.ceiling_usd_per_gb is not None and spec.ceiling_usd != allowed
    assert spec.ceiling_usd / spec.ceiling_usd_per_gb > 0.51, "of 0.5 GB: the lead would refuse a longer list"
    assert {one.name for one in adaptation.plan.machines} == ends.keys()


def test_names_of_machines_that_run_are_used_first() -> None:
    plan = plan_gateways(catalog(), HERE, THERE, 0.5, MinThroughput(0.04), PlanningLimits(machines_per_region=1))
    first, last = (one.name for one in plan.machines)
    other = first.removesuffix("1") + "2"
    named = with_names_of(plan, {other, "elsewhere-1"})
    assert {one.name for one in named.machines} == {other, last}
    assert named.routes[0].nodes == (other, last)
    assert with_names_of(plan, ()) == plan


def test_only_the_types_of_machines_that_run_are_planned_in_their_regions() -> None:
    limits = PlanningLimits(machines_per_region=1)
    plan = plan_gateways(catalog(), HERE, THERE, 0.5, MinThroughput(0.04), limits)
    question = PlanRequest(catalog(), HERE, THERE, Fastest(), limits, 1 << 17, None, None)
    first, _ = plan.machines
    known = with_types_of(question, plan, {first.name}).catalog
    assert plan.overlay is not None
    (planned,) = (one.offer for one in plan.overlay.machines if one.region == HERE)
    assert known.machine_offers(HERE) == (planned,)
    assert known.machine_offers(THERE) == catalog().machine_offers(THERE)


@pytest.mark.parametrize("is_early", [False, True])
def test_a_change_of_an_early_plan_is_priced_against_that_plan_for_all_that_is_listed(is_early: bool) -> None:
    """Replanning the whole volume at the prices of the first plan costs the same, however little had been listed."""
    limits = PlanningLimits(machines_per_region=1)
    part, whole = (plan_gateways(catalog(), HERE, THERE, gb, Fastest(), limits) for gb in (0.5, 5.0))
    ledger = JobLedger(Ledger(plan_prices(part, catalog())), None)
    question = PlanRequest(catalog(), HERE, THERE, Fastest(), limits, 1 << 17, None, None)
    adaptation = Adaptation(
        question, part, SPEC, replan=True, on_change=lambda *_: None, ledger=ledger, is_early=is_early
    )
    state = TransferState(5_000_000_000, 5_000_000_000, 0.0, 0.0, 0.0, 0.0, {}, {})
    more_usd = float(adaptation._expect(whole, state).split("; ")[1].removesuffix(" USD"))
    assert (abs(more_usd) < 1e-3) is is_early
    assert abs(float(adaptation._expect(whole, state).split("; ")[1].removesuffix(" USD"))) < 1e-4


def test_traffic_leaves_a_link_that_is_closed_meanwhile(tmp_path: Path, direct: Plan) -> None:
    """Also without `--replan`, and for a slower route. When the link is open again, the new routes stay."""
    with transfer_of(tmp_path, direct) as (transfer, gateways):
        transfer.adaptation._replan = False
        transfer.in_flight = 3
        transfer.run(1)
        transfer.adaptation.close(ClosedPlaces(links={(HERE, THERE)}))
        transfer.run(1)
        (changed,) = transfer.changes
        assert [len(route.nodes) for route in changed.routes] == [3]
        pushed_in_order(changed, gateways)
        assert direct.names <= transfer.living()
        transfer.in_flight = 0
        (line,) = transfer.adaptation.notices()
        expected = rf"link {HERE} → {THERE} was closed: replanned, now 100% over .+; [+-]\d+\.\d{{4}} USD"
        assert re.fullmatch(expected, line), line
        transfer.adaptation.close(ClosedPlaces())
        transfer.run(30)
        assert transfer.changes == [changed] and transfer.living() == changed.names
        assert transfer.adaptation.notices() == []


def test_a_transfer_ends_on_a_closed_link_if_there_is_no_other_route(tmp_path: Path, direct: Plan) -> None:
    with transfer_of(tmp_path, direct) as (transfer, _):
        transfer.adaptation._replan = False
        relays = {region for region in catalog().grid.regions() if region not in (HERE, THERE)}
        for closed in (relays, relays, {*relays, THERE}):
            transfer.adaptation.close(ClosedPlaces(closed, {(HERE, THERE)}))
            transfer.run(30)
        assert transfer.changes == [] and transfer.living() == direct.names
        closed_lines = [line for line in transfer.adaptation.notices() if "was closed" in line]
        assert closed_lines == [f"link {HERE} → {THERE} was closed, but there is no other route: it stays in use"]


def test_a_transfer_that_is_about_to_end_stays_on_a_closed_link(tmp_path: Path, direct: Plan) -> None:
    with transfer_of(tmp_path, direct) as (transfer, _):
        transfer.adaptation._replan = False
        transfer.run(30)
        transfer.adaptation.notices()
        transfer.left_s = 8.0
        transfer.adaptation.close(ClosedPlaces(links={(HERE, THERE)}))
        transfer.run(5)
        assert transfer.changes == [] and transfer.adaptation.notices() == []
        transfer.left_s = 60.0
        transfer.run(1)
        assert len(transfer.changes) == 1


def test_machines_of_another_route_are_ordered_again_if_they_were_refused(tmp_path: Path, direct: Plan) -> None:
    with transfer_of(tmp_path, direct) as (transfer, _):
        transfer.adaptation._replan = False
        transfer.provider.refusing = 1.0
        transfer.adaptation.close(ClosedPlaces(links={(HERE, THERE)}))
        transfer.run(MOVE_PAUSE_S * (MOVES_MAX + 1))
        refused = [line for line in transfer.adaptation.notices() if "could not be changed" in line]
        assert len(refused) == MOVES_MAX, refused
        assert transfer.changes == [] and transfer.living() == direct.names
        transfer.provider.refusing = 0.0
        transfer.adaptation.close(ClosedPlaces({Region("aws", "us-east-1")}, {(HERE, THERE)}))
        transfer.run(1)
        assert len(transfer.changes) == 1


def pushed_in_order(plan: Plan, gateways: FakeGateways) -> None:
    """Check the order of the first requests to the gateways: from the far end to the near end, the lead last."""
    first = list(dict.fromkeys(name for name, path, _ in gateways.asked if path in ("/v1/routes", "/v1/program")))
    assert first == [name for name in push_order(plan) if name in first]
    assert first[-1] == plan.lead
