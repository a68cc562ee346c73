"""Completion times with handshakes and slow start, against figures by hand and the independent check."""

from __future__ import annotations

import pytest

from tests.placement.problems import document, problem
from tradewind.errors import ConfigError
from tradewind.placement.check import placement_violations
from tradewind.placement.paths import paths_of
from tradewind.placement.place import place
from tradewind.placement.problem import PlacementProblem, problem_from_document


def one_flow(size_bytes: float, *, slow_start: bool = True) -> PlacementProblem:
    """Return a flow over 200 ms, or twice 100 ms through a proxy, at 200 Mbit/s: a full window is 5 MB, or 2.5 MB."""
    flow = {
        "id": "f",
        "size_bytes": size_bytes,
        "dst_last_mile_mbps": 200,
        "rtt_direct_ms": 200,
        "rtt_src_to_region_ms": [100],
        "rtt_region_to_dst_ms": [100],
    }
    region = {"name": "r", "capacity_mbps": 1000, "setup_cents": 0, "egress_cents_per_gb": 0}
    table = {"regions": [region], "rtt_ms": [[0]], "flows": [flow], "budget_cents": 100, "slow_start": slow_start}
    return problem_from_document({**table, "edge_window_bytes": 10e6}, "problem")


def test_a_flow_of_one_window_gains_nothing() -> None:
    """10 segments take a handshake and a round trip: 2 · 200 ms, or 2 · (100 + 100) ms."""
    problem = one_flow(14_600)
    assert paths_of(problem).fct_s[0].tolist() == pytest.approx([0.4, 0.4])
    assert place(problem, "f-fct").acceleration == pytest.approx(1.0)


def test_later_rounds_are_shorter_through_a_proxy() -> None:
    """Three windows of 14,600, 29,200 and 58,400 bytes: two more round trips of 200 or 100 ms."""
    assert paths_of(one_flow(102_200)).fct_s[0].tolist() == pytest.approx([0.8, 0.6])


def test_a_long_flow_ends_its_slow_start() -> None:
    """Nine and eight rounds reach 5 and 2.5 MB; the rest goes at 25 MB/s."""
    direct_s = 0.4 + 8 * 0.2 + (2e9 - 14_600 * 511) / 25e6
    split_s = 0.4 + 7 * 0.1 + (2e9 - 14_600 * 255) / 25e6
    assert paths_of(one_flow(2e9)).fct_s[0].tolist() == pytest.approx([direct_s, split_s])
    assert paths_of(one_flow(2e9, slow_start=False)).fct_s[0].tolist() == pytest.approx([80.0, 80.0])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size_bytes", [1, 20_000, 3_000_000, 2e9])
def test_plans_pass_the_check(seed: int, size_bytes: float) -> None:
    made = document(seed, flows=6, regions=4, slow_start=True)
    made["flows"] = [{**flow, "size_bytes": size_bytes} for flow in made["flows"]]
    problem = problem_from_document(made, "problem")
    for algorithm in ("f-fct", "f-cost", "1p"):
        assert placement_violations(place(problem, algorithm), problem) == []


def test_the_check_counts_handshakes() -> None:
    plan = place(problem(1, flows=3, regions=2), "f-fct")
    slow = problem(1, flows=3, regions=2, slow_start=True)
    assert any("does not follow from its size and rate" in line for line in placement_violations(plan, slow))


def test_the_option_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match="slow_start must be true or false, not 1"):
        problem(1, flows=1, regions=1, slow_start=1)
