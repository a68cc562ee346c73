"""The line of ``jobs show`` with the limits on concurrent requests."""

from __future__ import annotations

import pytest

from tradewind.engine.report import limits_lines
from tradewind.model.event import Stage, StageLimit, StageLimits

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


def test_unknown_limits_are_left_out() -> None:
    assert limits_lines(None) == limits_lines(StageLimits()) == []
    assert limits_lines(StageLimits(write=WRITE)) == ["limits  8 of 64 writes at once"]
