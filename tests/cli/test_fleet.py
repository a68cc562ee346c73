"""`tradewind fleet sweep`: what it says of places, and its exit code."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tradewind.cli import fleet
from tradewind.engine.everywhere import FoundLeftover, FoundMachine, Swept
from tradewind.errors import GatewayError, TradewindError
from tradewind.fleet.owner import OwnerState, here
from tradewind.fleet.provider import OWNER_TAG, Leftover, Machine

HERE = here().label


class Everywhere:
    """Places with machines before and after a sweep, which ends the first `swept` of them, and with other leftovers."""

    def __init__(
        self,
        before: Sequence[FoundMachine] = (),
        after: Sequence[FoundMachine] = (),
        left: Sequence[FoundLeftover] = (),
        *,
        failing: bool = False,
    ) -> None:
        self._found = [list(before), list(after)]
        self._left, self._failing = left, failing

    def found(self) -> Iterator[FoundMachine | tuple[str, TradewindError]]:
        if self._failing:
            yield "gcp", GatewayError("gcp: no answer", hint="wait")
        yield from self._found.pop(0)

    def sweep(self, wanted: Sequence[FoundMachine], *, everything: bool) -> Iterator[Swept]:
        yield from [Swept("ended", ended=tuple(wanted))] if wanted else ()

    def remains(self) -> Iterator[FoundLeftover | tuple[str, TradewindError]]:
        if self._failing:
            yield "gcp", GatewayError("gcp: no answer")
            yield "aws", GatewayError("ec2:DescribeVolumes is missing")
        yield from self._left


def machine(owner: OwnerState) -> FoundMachine:
    return FoundMachine("aws", Machine(f"i-{owner}", "relay-1", "aws:us-east-1"), owner, None, 0.0)


def leftover(**tags: str) -> FoundLeftover:
    return FoundLeftover("aws", Leftover("d-1", "disk", "aws:us-east-1", tags))


class NoFleets:
    """The state folder has no fleet that a killed job has left."""

    def end_abandoned(self) -> Iterator[Any]:
        return iter(())


def swept(monkeypatch: pytest.MonkeyPatch, place: Everywhere, *, everything: bool = False) -> int:
    monkeypatch.setattr(fleet, "_everywhere", lambda *_: place)
    args = Namespace(fleets=[], all=everything, yes=True, json=False)
    return fleet._sweep(args, NoFleets())  # type: ignore[arg-type]


@pytest.mark.parametrize("left", [(), (leftover(),)])
def test_a_place_that_cannot_say_what_is_left_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], left: Sequence[FoundLeftover]
) -> None:
    assert swept(monkeypatch, Everywhere(left=left, failing=True)) == GatewayError.exit_code
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "error: gcp cannot be queried: no answer",
        "hint: wait",
        "error: aws does not report what is left: ec2:DescribeVolumes is missing",
    ]
    assert out.splitlines() == ["left: aws: disk d-1"] * len(left)


@pytest.mark.parametrize(
    ("place", "everything", "code"),
    [
        (Everywhere(), False, 0),
        (Everywhere([machine("warm")], [machine("warm")]), False, 0),
        (Everywhere([machine("in use")], [machine("elsewhere")], [leftover(**{OWNER_TAG: HERE})]), False, 0),
        (Everywhere(left=[leftover()]), False, 1),
        (Everywhere([machine("in use")], [machine("in use")], [leftover()]), False, 1),
        (Everywhere([machine("gone")], [machine("gone")]), False, 1),
        (Everywhere([machine("warm")], [machine("warm")]), True, 1),
        (Everywhere(left=[leftover(**{OWNER_TAG: HERE})]), True, 1),
    ],
)
def test_exit_code_0_means_that_nothing_is_left_but_what_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: Everywhere, everything: bool, code: int
) -> None:
    is_empty = place._found == [[], []] and not place._left
    assert swept(monkeypatch, place, everything=everything) == code
    assert ("nothing is left" in capsys.readouterr().out) == is_empty


@pytest.mark.parametrize(
    ("owner", "is_warned"), [("in use", True), ("elsewhere", True), ("warm", False), ("gone", False)]
)
def test_the_command_of_machines_that_were_ended_here_may_order_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], owner: OwnerState, is_warned: bool
) -> None:
    assert swept(monkeypatch, Everywhere([machine(owner)]), everything=True) == 0
    assert ("may still run elsewhere, and then orders other machines" in capsys.readouterr().err) == is_warned
