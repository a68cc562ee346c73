"""`tradewind fleet sweep`: what it says of places that do not answer."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tradewind.cli import fleet
from tradewind.errors import GatewayError, TradewindError


class Everywhere:
    """Two places without machines. `gcp` does not answer; `aws` does not say what is left."""

    def __init__(self, *, remains: bool) -> None:
        self._remains = remains

    def found(self) -> Iterator[tuple[str, TradewindError]]:
        yield "gcp", GatewayError("gcp: no answer", hint="wait")

    def sweep(self, wanted: Sequence[object], *, everything: bool) -> Iterator[Any]:
        return iter(())

    def remains(self) -> Iterator[str | tuple[str, TradewindError]]:
        yield "gcp", GatewayError("gcp: no answer")
        yield "aws", GatewayError("ec2:DescribeVolumes is missing")
        if self._remains:
            yield "aws: disk d-1"


class NoFleets:
    """The state folder has no fleet that a killed job has left."""

    def end_abandoned(self) -> Iterator[Any]:
        return iter(())


@pytest.mark.parametrize("remains", [False, True])
def test_a_place_that_cannot_say_what_is_left_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], remains: bool
) -> None:
    monkeypatch.setattr(fleet, "_everywhere", lambda *_: Everywhere(remains=remains))
    args = Namespace(fleets=[], all=False, yes=True, json=False)
    assert fleet._sweep(args, NoFleets()) == GatewayError.exit_code  # type: ignore[arg-type]
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "error: gcp cannot be queried: no answer",
        "hint: wait",
        "error: aws does not report what is left: ec2:DescribeVolumes is missing",
    ]
    assert out.splitlines() == (["left: aws: disk d-1"] if remains else [])
