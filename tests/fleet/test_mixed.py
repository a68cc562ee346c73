"""One provider over several: what happens when a member fails, and where its calls go."""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection, Mapping, Sequence

import pytest

from tradewind.fleet.provider import (
    FLEET_TAG,
    CallRefused,
    Ended,
    Home,
    LaunchOrder,
    LaunchResult,
    Lease,
    Leftover,
    ListIncomplete,
    Machine,
    Offer,
    Quota,
    Refusal,
)
from tradewind.fleet.providers.local import LocalProvider
from tradewind.fleet.providers.mixed import FleetMember, MixedProvider
from tradewind.model.records import replace

DOWN = CallRefused(Refusal("transient", "the API is down"))


class Recorded(LocalProvider):
    """A provider whose machines are entries of a list. Its calls meet those of its partner before they return."""

    def __init__(self, meeting: threading.Barrier, settles_s: float) -> None:
        self.meeting, self.settles_s = meeting, settles_s
        self.there: list[Machine] = []
        self.down = self.down_for_admissions = False
        self.admitted: list[tuple[str, set[str]]] = []

    def _called(self) -> None:
        self.meeting.wait(30.0)  # Fails unless both members are called at the same time.
        if self.down:
            raise DOWN

    def offers(self, regions: Collection[str]) -> tuple[Offer, ...]:
        self._called()
        return tuple(Offer(region, "t") for region in regions)

    def quota(self, region: str) -> Quota | None:
        return Quota(7, len(self.there))

    def launch(self, orders: Sequence[LaunchOrder]) -> Sequence[LaunchResult]:
        self._called()
        made = [
            Machine(
                f"i/{order.name}", order.name, order.region, addresses={"net": address_of(order.name)}, tags=order.tags
            )
            for order in orders
        ]
        self.there += made
        return [LaunchResult(order, machine) for order, machine in zip(orders, made, strict=True)]

    def machines(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        self._called()
        return tuple(machine for machine in self.there if tags.items() <= machine.tags.items())

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        self._called()
        self.there = [machine for machine in self.there if machine.id not in ids]
        return [Ended(machine_id, 5.0) for machine_id in ids]

    def admit(self, fleet_id: str, addresses: Collection[str]) -> None:
        if self.down_for_admissions:
            raise DOWN
        self.admitted.append((fleet_id, set(addresses)))

    def leftovers(self) -> tuple[Leftover, ...]:
        self._called()
        return tuple(Leftover(machine.id, "machine", machine.region) for machine in self.there)


@pytest.fixture
def members() -> tuple[Recorded, Recorded]:
    meeting = threading.Barrier(2)
    return Recorded(meeting, 1.0), Recorded(meeting, 8.0)


@pytest.fixture
def mixed(members: tuple[Recorded, Recorded]) -> MixedProvider:
    a, b = members
    return MixedProvider([FleetMember("a", ("site:a", "site:both"), a), FleetMember("b", ("site:b", "site:both"), b)])


def address_of(name: str) -> str:
    return f"192.0.2.{ord(name[0])}"


def order(name: str, region: str) -> LaunchOrder:
    return LaunchOrder("f", name, region, name, 1, Lease(60, "me"))


def test_orders_go_to_the_member_of_their_region(mixed: MixedProvider, members: tuple[Recorded, Recorded]) -> None:
    """A region of two members belongs to the first."""
    orders = [order("x", "site:b"), order("y", "site:a"), order("z", "site:both"), order("w", "site:nowhere")]
    results = mixed.launch(orders)
    assert [result.machine and result.machine.id for result in results] == ["b/i/x", "a/i/y", "a/i/z", None]
    assert results[3].refusal == Refusal("bad request", "no provider of the fleet has machines in site:nowhere")
    assert [machine.name for machine in members[0].there] == ["y", "z"]
    assert [machine.id for machine in mixed.machines({})] == ["b/i/x", "a/i/y", "a/i/z"]
    assert sorted(one.id for one in mixed.leftovers()) == ["a/i/y", "a/i/z", "b/i/x"]
    quota = mixed.quota("site:b")
    assert quota is not None and quota.left == 6 and mixed.quota("site:nowhere") == Quota(0)
    assert mixed.settles_s == 8.0


def test_a_member_that_fails_affects_only_its_own(mixed: MixedProvider, members: tuple[Recorded, Recorded]) -> None:
    orders = [order("x", "site:b"), order("y", "site:a")]
    members[1].down = True
    refused, accepted = mixed.launch(orders)
    assert refused.refusal == DOWN.refusal and accepted.machine is not None
    assert [offer.region for offer in mixed.offers(["site:a", "site:b"])] == ["site:a"]
    ends = mixed.terminate(["b/i/x", "a/i/y", "c/i/unknown"])
    assert list(ends) == [Ended("b/i/x", refusal=DOWN.refusal), Ended("a/i/y", 5.0), Ended("c/i/unknown")]


def test_a_listing_without_a_member_would_show_its_machines_as_ended(
    mixed: MixedProvider, members: tuple[Recorded, Recorded]
) -> None:
    mixed.launch([order("x", "site:b"), order("y", "site:a")])
    members[1].down = True
    with pytest.raises(ListIncomplete, match="the API is down") as caught:
        mixed.machines({})
    assert [machine.id for machine in caught.value.found] == ["a/i/y"], "those that can be ended"
    with pytest.raises(CallRefused, match="the API is down"):
        mixed.leftovers()
    members[0].down = True
    with pytest.raises(CallRefused):
        mixed.offers(["site:a", "site:b"])


def test_a_firewall_gets_the_addresses_of_the_other_members_machines(
    mixed: MixedProvider, members: tuple[Recorded, Recorded]
) -> None:
    """Once for each change; a refused call is repeated. Machines of other fleets are not admitted."""
    mixed.launch([order("x", "site:b"), order("y", "site:a"), order("z", "site:both")])
    members[0].there.append(Machine("i/other", "other", "site:a", addresses={"net": "192.0.2.1"}))
    members[1].down_for_admissions = True
    for _ in range(2):
        mixed.machines({FLEET_TAG: "f"})
    assert members[0].admitted == [("f", {address_of("x")})] and members[1].admitted == []
    members[1].down_for_admissions = False
    for _ in range(2):
        mixed.machines({FLEET_TAG: "f"})
    assert members[1].admitted == [("f", {address_of("y"), address_of("z")})]
    members[0].there = members[0].there[1:]
    mixed.machines({FLEET_TAG: "f"})
    assert members[1].admitted[-1] == ("f", {address_of("z")})


def test_a_firewall_gets_the_addresses_of_hosts_that_are_known_by_name(
    mixed: MixedProvider, members: tuple[Recorded, Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is looked up once, and not for each listing. One that has no address is left out."""
    asked: list[str] = []

    def look_up(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(name)
        if name == "nowhere":
            raise socket.gaierror
        return [(socket.AF_INET, 1, 6, "", (address, 0)) for address in ("198.51.100.1", "198.51.100.2")]

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    mixed.launch([order("x", "site:b"), order("y", "site:a"), order("z", "site:a")])
    there = members[0].there
    there[:] = [replace(one, addresses={"net": name}) for one, name in zip(there, ("lab-1", "nowhere"), strict=True)]
    for _ in range(3):
        mixed.machines({FLEET_TAG: "f"})
    assert members[1].admitted == [("f", {"198.51.100.1", "198.51.100.2"})]
    assert sorted(asked) == ["lab-1", "nowhere"]


def test_a_host_whose_name_is_not_found_for_a_while_stays_admitted(
    mixed: MixedProvider, members: tuple[Recorded, Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [[(socket.AF_INET, 1, 6, "", ("198.51.100.1", 0))], [], [(socket.AF_INET, 1, 6, "", ("198.51.100.2", 0))]]
    monkeypatch.setattr("tradewind.fleet.providers.mixed.NAMES_S", 0.0)
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: answers.pop(0))
    mixed.launch([order("x", "site:b"), order("y", "site:a")])
    members[0].there[:] = [replace(one, addresses={"net": "lab-1"}) for one in members[0].there]
    for _ in range(3):
        mixed.machines({FLEET_TAG: "f"})
    assert members[1].admitted == [("f", {"198.51.100.1"}), ("f", {"198.51.100.2"})] and not answers


def test_home_has_the_address_that_gateways_of_one_member_call(
    mixed: MixedProvider, members: tuple[Recorded, Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the lead is in a region of a member whose machines are dialled."""
    assert mixed.home("site:a") == Home()
    monkeypatch.setattr(members[1], "home", lambda _: Home(address="192.0.2.7"))
    assert mixed.home("site:b").address == mixed.home("site:a").address == "192.0.2.7"
