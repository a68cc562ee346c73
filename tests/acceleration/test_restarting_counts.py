"""Counts of gateways that are replaced: totals never fall, whatever their gateways report."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tradewind.acceleration.restarting_counts import RestartingCounts

#: Additions to the two counts of a gateway, or its replacement.
STEPS = st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 9), st.integers(0, 9))), max_size=30)


def test_a_count_that_is_lower_than_before_is_that_of_another_gateway() -> None:
    counts = RestartingCounts.since(0, 0).seen((100, 5)).seen((40, 1))
    assert counts.totals == (140, 6)
    assert counts.seen((41, 2)).totals == (141, 7)


def test_a_gateway_that_is_known_to_be_new_counts_from_zero_however_much_it_has_sent() -> None:
    assert RestartingCounts.since(0).seen((100,)).renewed().seen((150,)).totals == (250,)


@given(STEPS)
def test_totals_are_those_of_all_gateways(steps: list[tuple[int, int] | None]) -> None:
    counts, now, expected = RestartingCounts.since(0, 0), (0, 0), (0, 0)
    for step in steps:
        if step is None:
            counts, now = counts.renewed(), (0, 0)
            continue
        now = now[0] + step[0], now[1] + step[1]
        expected = expected[0] + step[0], expected[1] + step[1]
        counts = counts.seen(now)
        assert counts.totals == expected
