"""Remains of a fleet after its end, and the lines about them."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import pytest

from tests.fleet.fake_provider import FakeProvider
from tradewind.engine.remains import remains_lines
from tradewind.fleet.calls import InFlight
from tradewind.fleet.provider import FLEET_TAG, CallRefused, Ended, Leftover, Refusal
from tradewind.fleet.providers.mixed import FleetMember, MixedProvider
from tradewind.fleet.remains import Look, Remains, lines_after_failure, look_for_remains
from tradewind.model.latch import Latch

FLEET = "20261126-120000-00000001"
GROUP = Leftover("r/sg-1", "security group", "site:a", {FLEET_TAG: FLEET})
OTHER = Leftover("r/sg-2", "security group", "site:a", {FLEET_TAG: "other"})


class Accounting(FakeProvider):
    """Has leftovers, each of which takes so many calls of `terminate` to go."""

    leaves: tuple[str, ...] = ("machines", "security groups")

    def __init__(self, left: Sequence[Leftover] = (), stubborn: int = 0) -> None:
        super().__init__(random.Random(0), 0.0)
        self.left, self.stubborn = [*left, OTHER], stubborn
        self.refusals: list[Refusal] = []

    def left_of(self, fleet_id: str) -> tuple[Leftover, ...]:
        if self.refusals:
            raise CallRefused(self.refusals.pop(0))
        return tuple(one for one in self.left if one.tags[FLEET_TAG] == fleet_id)

    def terminate(self, ids: Collection[str], *, grace_s: float = 0.0) -> Sequence[Ended]:
        self.stubborn -= 1
        if self.stubborn < 0:
            self.left = [one for one in self.left if one.id not in ids]
        return [Ended(one) for one in ids]


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.fleet.remains.LOOK_WAIT_S", 0.001)


def look(provider: FakeProvider | MixedProvider) -> Remains | None:
    return look_for_remains(provider, FLEET, InFlight())


def lines(provider: FakeProvider | MixedProvider) -> list[str]:
    found = look(provider)
    assert found is not None
    assert Remains.from_document(found.document()) == found
    return remains_lines([found])


def test_processes_of_this_host_leave_nothing_to_look_for() -> None:
    assert look(FakeProvider(random.Random(0), 0.0)) is None
    nothing = Accounting()
    nothing.leaves = ()
    assert look(nothing) is None


def test_nothing_is_left_and_what_was_looked_for_is_said() -> None:
    provider = Accounting()
    assert lines(provider) == [f"nothing is left: no machines or security groups of fleet {FLEET}"]
    assert provider.left == [OTHER]


def test_what_could_not_be_removed_before_is_removed_without_a_word() -> None:
    provider = Accounting([GROUP])
    assert lines(provider) == [f"nothing is left: no machines or security groups of fleet {FLEET}"]
    assert provider.left == [OTHER], "what belongs to another fleet stays"


def test_what_is_left_is_named_with_the_command_that_removes_it() -> None:
    assert lines(Accounting([GROUP], stubborn=5)) == [
        f"security group r/sg-1 of fleet {FLEET} is left; `tradewind fleet down {FLEET}` removes it"
    ]


def test_an_api_that_does_not_answer_gives_one_line() -> None:
    provider = Accounting()
    provider.refusals = [Refusal("transient", "503")]
    assert lines(provider) == [f"nothing is left: no machines or security groups of fleet {FLEET}"]
    provider.refusals = [Refusal("transient", "503")] * 10
    assert lines(provider) == [f"what is left of fleet {FLEET} is unknown: 503; `tradewind fleet sweep` looks again"]


def test_all_members_of_a_mixed_fleet_are_asked() -> None:
    here = FakeProvider(random.Random(0), 0.0)
    cloud, other = Accounting([GROUP], stubborn=5), Accounting()
    other.leaves = ("machines", "disks")
    mixed = MixedProvider(
        [FleetMember("a", ("site:a",), cloud), FleetMember("b", ("site:b",), other), FleetMember("c", ("x",), here)]
    )
    assert mixed.leaves == ("machines", "security groups", "disks")
    assert [line.partition(" of ")[0] for line in lines(mixed)] == ["security group a/r/sg-1"]
    only_here = MixedProvider([FleetMember("c", ("x",), here)])
    assert look(only_here) is None


def test_a_user_in_a_hurry_does_not_wait_for_the_look() -> None:
    hurried = Latch()
    hurried.set()
    found = Look(Accounting(), FLEET, InFlight(), hurried).result()
    assert found is not None and (found.is_nothing or found.error == "the look for it was not finished")
    found = Look(Accounting(), FLEET, InFlight(), Latch()).result()
    assert found is not None and found.is_nothing


def test_the_fleets_of_one_run_share_a_line() -> None:
    clean = Remains("one", ("machines", "disks")), Remains("two", ("machines",))
    assert remains_lines(clean) == ["nothing is left: no machines or disks of fleet one, two"]
    left = Remains("three", ("machines",), ("disk d-1",))
    assert remains_lines([*clean, left]) == ["disk d-1 of fleet three is left; `tradewind fleet down three` removes it"]
    assert remains_lines([]) == []


def test_after_a_failed_start_what_was_made_is_said() -> None:
    removed = look(Accounting([GROUP]))
    assert removed is not None and lines_after_failure(removed) == [
        f"fleet {FLEET} did not start; removed what its provider had made: security group r/sg-1"
    ]
    many = Remains("f", removed=("disk 1", "disk 2", "disk 3", "disk 4", "disk 5"))
    assert lines_after_failure(many)[0].endswith(": disk 1, disk 2, disk 3 and 2 more")
    left = look(Accounting([GROUP], stubborn=5))
    assert left is not None and lines_after_failure(left) == [
        f"fleet {FLEET} did not start, and left security group r/sg-1; `tradewind fleet down {FLEET}` removes it"
    ]
    assert lines_after_failure(Remains("f", error="503")) == [
        "fleet f did not start, and what it left is unknown: 503; `tradewind fleet sweep` looks again"
    ]
    assert lines_after_failure(Remains("f", ("machines",))) == []
