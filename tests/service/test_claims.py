"""The server that gets each started job: the one with the smallest part of its places in use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.service.claims import Load, share_of

LOADS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3), st.builds(Load, st.integers(0, 9), st.integers(0, 9)), max_size=6
)


@pytest.mark.parametrize(
    ("loads", "count", "shares"),
    [
        ({"a": Load(0, 8), "b": Load(0, 8)}, 1, {"a": 1, "b": 0}),
        ({"a": Load(0, 8), "b": Load(0, 8)}, 5, {"a": 3, "b": 2}),
        ({"a": Load(4, 8), "b": Load(0, 8)}, 3, {"a": 0, "b": 3}),
        ({"a": Load(0, 8), "b": Load(0, 2)}, 5, {"a": 4, "b": 1}),
        ({"a": Load(1, 1), "b": Load(2, 2)}, 3, {"a": 0, "b": 0}),
        ({"a": Load(0, 0), "b": Load(1, 2)}, 3, {"a": 0, "b": 1}),
    ],
)
def test_shares(loads: dict[str, Load], count: int, shares: dict[str, int]) -> None:
    assert {server: share_of(server, loads, count) for server in loads} == shares


@given(LOADS, st.integers(0, 30))
def test_all_servers_together_get_as_many_jobs_as_they_have_room_for(loads: dict[str, Load], count: int) -> None:
    room = sum(max(0, load.jobs_max - load.jobs) for load in loads.values())
    assert sum(share_of(server, loads, count) for server in loads) == min(room, count)
