"""The line of ``jobs show`` with the limits on concurrent requests."""

from __future__ import annotations

import pytest

from tradewind.engine.report import limits_lines
from tradewind.model.event import SlowHop, Stage, StageLimit, StageLimits

READ, NETWORK, WRITE = StageLimit(64, 64), StageLimit(16, 32), StageLimit(8, 64)


@pytest.mark.parametrize(
    ("slowest", "said"),
    [
        (None, ""),
        ("read", "; reading limits the rate now"),
        ("network", "; the network limits the rate now"),
        ("write", "; writing limits the rate now"),
    ],
)
def test_the_line_has_all_limits_and_the_slowest_stage(slowest: Stage | None, said: str) -> None:
    line = "limits  64 of 64 reads, 16 of 32 connections, 8 of 64 writes at once"
    assert limits_lines(StageLimits(READ, NETWORK, WRITE, slowest)) == [line + said]


@pytest.mark.parametrize(
    ("by_relay", "said"),
    [
        (False, "; the network from here to there limits the rate now"),
        (True, "; the network from here to there limits the rate now, relay here says"),
    ],
)
def test_the_slowest_hop_is_named_and_a_relay_only_says_that_it_is_its_own(by_relay: bool, said: str) -> None:
    limits = StageLimits(READ, NETWORK, WRITE, "network", SlowHop("here", "there", by_relay))
    assert limits_lines(limits) == ["limits  64 of 64 reads, 16 of 32 connections, 8 of 64 writes at once" + said]


def test_unknown_limits_are_left_out() -> None:
    assert limits_lines(None) == limits_lines(StageLimits()) == []
    assert limits_lines(StageLimits(write=WRITE)) == ["limits  8 of 64 writes at once"]
