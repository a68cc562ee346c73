"""Warm machines are taken and given back: real gateways and owners, without a provider."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.fleet.fake_provider import FakeProvider
from tests.fleet.faulty_provider import FaultyProvider
from tradewind.errors import GatewayError, ProviderRefused
from tradewind.fleet.enrolment import Enrolment
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.journal import FleetJournal, new_fleet_id
from tradewind.fleet.keeping import Keeper
from tradewind.fleet.leases import Leases
from tradewind.fleet.provider import KEY_TAG, Ended, Home, Machine, Offer, Provider, Refusal
from tradewind.fleet.providers import LOCAL, make_provider
from tradewind.fleet.settings import FleetSettings
from tradewind.fleet.warm import Keeping, WarmBook, WarmMachine
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient
from tradewind.model.plan import Plan, PlannedGateway, PlannedRoute

IDLE_S, KEPT_S = 500, 5000


class Stage:
    """A warm fleet with one gateway, which has enrolled with the owner of the process that started it."""

    def __init__(self, state: Path, stack: ExitStack) -> None:
        self.journal, self.fleet, self._stack = FleetJournal(state), new_fleet_id(), stack
        self.folder = self.journal.open(self.fleet, "warm", {"kind": "local"}, {"one": "site:a"})
        self.keeping = Keeping(IDLE_S, time.time() + KEPT_S, {"one": WarmMachine("site:a")})
        WarmBook(self.journal).keep(self.fleet, self.keeping)
        first = self.owner()
        self.process, control = self._gateway(first.join("one", "key").listening("127.0.0.1:0", "127.0.0.1:0"))
        self.machine = Machine("id", "one", "site:a", control=control, tags={KEY_TAG: "key"})
        address = first.reach(self.machine)
        assert address is not None
        GatewayClient(address).version()
        first.close(0.0)
        self.said: list[str] = []
        self.keeper = Keeper(self.journal, self.fleet, self.keeping, self.said.append)

    def take(self, provider: Provider) -> Fleet:
        """Return the fleet as a job that claims it has it."""
        plan = Plan((PlannedGateway("one", "site:a"),), (), (PlannedRoute(("one", "one"), 1.0),), lead="one")
        settings = FleetSettings(led=False, keeping=self.keeping, lease_s=60)
        return Fleet(provider, self.journal, plan, find_gateway(), purpose="a job", settings=settings, taken=self.fleet)

    def owner(self) -> Enrolment:
        """Return the owner of another process that has claimed the fleet."""
        made = Enrolment(find_gateway(), self.folder, Home(), None, keeps_ca=True)
        self._stack.callback(made.close, 0.0)
        return made

    def _gateway(self, document: str) -> tuple[subprocess.Popen[bytes], str]:
        words = [find_gateway(), "serve", "--lease-s", "60", "--join", "-"]
        process = self._stack.enter_context(
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        )
        self._stack.callback(process.kill)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(document.encode() + b"\n")
        process.stdin.flush()
        return process, json.loads(process.stdout.readline())["control"]

    def uses(self) -> list[tuple[str, str, bool]]:
        uses = WarmBook(self.journal).uses(self.fleet)
        return [(use.job, use.machine, use.ended_unix_s is not None) for use in uses]


class OneMachine(FaultyProvider):
    """A provider with one machine, which it did not start."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(FakeProvider(Random(0), 0.0))
        self.machine, self.ended = machine, list[str]()

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        return (self.machine,)

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        self.ended += ids
        return [Ended(each) for each in ids]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path, stack)


def test_a_job_takes_a_machine_of_another_process_and_gives_it_back(stage: Stage) -> None:
    descriptors = f"/proc/{stage.process.pid}/fd"
    before = len(os.listdir(descriptors))
    owner = stage.owner()
    assert stage.keeper.take([stage.machine], owner, "a job") == {"one"}, stage.said
    assert stage.uses() == [("a job", "one", False)]
    address = owner.reach(stage.machine)
    assert address is not None
    GatewayClient(address).renew_lease(100)
    assert stage.keeper.give_back([stage.machine], owner) == {"one"}, stage.said
    assert stage.uses() == [("a job", "one", True)]
    assert stage.process.poll() is None and len(os.listdir(descriptors)) <= before + 2
    left_s = stage.journal.load(stage.fleet).warm_until_unix_s
    assert left_s is not None and IDLE_S - 60 < left_s - time.time() <= IDLE_S
    assert (stage.folder / "ca" / "ca-key.pem").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_machine_that_does_not_answer_is_neither_taken_nor_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.fleet.keeping.RENEW_S", 0.5)
    stage.process.kill()
    stage.process.wait()
    owner = stage.owner()
    assert stage.keeper.take([stage.machine], owner, "a job") == set()
    (line,) = stage.said
    assert line.startswith(f"machine one of warm fleet {stage.fleet} cannot be used again: ")
    assert stage.uses() == []
    assert stage.keeper.give_back([stage.machine], owner) == set()


@pytest.mark.parametrize(("kept_s", "expected"), [(KEPT_S, IDLE_S), (100, 100), (-5, 1)])
def test_no_lease_goes_beyond_the_end_of_the_fleet(kept_s: float, expected: int) -> None:
    assert expected - 1 <= Keeping(IDLE_S, time.time() + kept_s).lease_s(IDLE_S) <= expected


def test_only_the_machines_whose_price_was_agreed_to_are_ordered(tmp_path: Path) -> None:
    journal = FleetJournal(tmp_path)
    provider = FaultyProvider(make_provider(LOCAL, find_gateway(), journal))
    provider.offered = (Offer("site:a", "large", False, 0.0014), Offer("site:a", "small", True, 0.001))
    provider.refusals["one"].extend([Refusal("capacity", "full")] * 9)
    machine = WarmMachine("site:a", "small", True, 0.001, network_tier="standard")
    settings = FleetSettings(led=False, keeping=Keeping(IDLE_S, time.time() + KEPT_S, {"one": machine}))
    plan = Plan((PlannedGateway("one", "site:a"),), (), (PlannedRoute(("one", "one"), 1.0),), lead="one")
    with pytest.raises(ProviderRefused):
        Fleet(provider, journal, plan, find_gateway(), purpose="warm", settings=settings)
    ordered = {(order.type, order.spot, order.network.network_tier) for order in provider.ordered}
    assert ordered == {("small", True, "standard")}


def test_a_job_whose_owner_does_not_start_leaves_the_warm_fleet_as_it_was(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise GatewayError("no owner")

    stage.journal.give_back(stage.fleet)
    monkeypatch.setattr("tradewind.fleet.enrolment.Enrolment", fail)
    with pytest.raises(GatewayError, match="no owner"):
        stage.take(FaultyProvider(make_provider(LOCAL, find_gateway(), stage.journal)))
    assert stage.journal.load(stage.fleet).machines == {"one": "site:a"}
    assert stage.folder.exists() and stage.process.poll() is None


def test_a_renewal_under_way_ends_before_its_machine_is_given_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, given_back, order = threading.Event(), threading.Event(), list[str]()
    renew, give_back = Leases.renew, Keeper.give_back

    def renew_slowly(leases: Leases, names: Collection[str], lease_s: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            under_way.set()
            given_back.wait(0.5)
            order.append("renewed")
        renew(leases, names, lease_s)

    def note_give_back(keeper: Keeper, machines: Sequence[Machine], enrolment: Enrolment) -> set[str]:
        given_back.set()
        order.append("given back")
        return give_back(keeper, machines, enrolment)

    monkeypatch.setattr(Leases, "renew", renew_slowly)
    monkeypatch.setattr(Keeper, "give_back", note_give_back)
    monkeypatch.setattr("tradewind.fleet.renewals.RENEWALS_PER_LEASE", 100)
    stage.journal.give_back(stage.fleet)
    fleet = stage.take(OneMachine(stage.machine))
    assert under_way.wait(20)
    fleet.close()
    assert order[-2:] == ["renewed", "given back"]


def test_a_fleet_that_was_given_back_ends_no_machine_when_it_is_closed_again(stage: Stage) -> None:
    stage.journal.give_back(stage.fleet)
    provider = OneMachine(stage.machine)
    fleet = stage.take(provider)
    for _ in range(2):
        fleet.close()
    assert provider.ended == []
    assert stage.journal.load(stage.fleet).ownership == "abandoned"


def test_a_machine_enrols_although_the_owner_has_not_heard_of_the_end_of_an_earlier_one_of_its_name(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call that removes the earlier one can be lost."""
    enrolment = stage.owner()
    for key in ("first", "second"):
        enrolment.join("two", key)
    first, second = (
        Machine(key, "two", "site:a", control="127.0.0.1:9", tags={KEY_TAG: key}) for key in ("first", "second")
    )
    enrolment.reach(first)
    with monkeypatch.context() as patched:
        patched.setattr(enrolment.owner, "remove", lambda _: None)
        enrolment.dismiss("two")
    assert enrolment.reach(second) is not None
