"""Rates with the windows and congestion control that the kernels of proxies allow."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.acceleration.wiring import Wire
from tradewind.engine.acceleration_kernels import (
    ProxyKernel,
    kernels_of,
    recorded_kernels,
    slower_line,
    with_kernels,
    within_kernels,
)
from tradewind.model.acceleration import ProxyState
from tradewind.model.records import replace
from tradewind.model.split import SplitStatus
from tradewind.placement.place import place
from tradewind.placement.problem import PlacementProblem, problem_from_document

LARGE = ProxyKernel(500e6, 500e6, "bbr")
SMALL = ProxyKernel(2.875e6, 1.9e6, "bbr")


def problem_of(**changes: Any) -> PlacementProblem:
    """A flow over 200 ms that two proxies with large windows carry at the rate of its last miles."""
    region = {"capacity_mbps": 2000, "setup_cents": 1, "egress_cents_per_gb": 1, "max_instances": 1}
    flow = {
        "id": "backup",
        "size_bytes": 1e9,
        "src_last_mile_mbps": 1000,
        "dst_last_mile_mbps": 1000,
        "rtt_direct_ms": 200,
        "rtt_src_to_region_ms": [2, 190],
        "rtt_region_to_dst_ms": [190, 2],
        **changes,
    }
    regions = [{"name": name, **region} for name in ("aws:a", "aws:b")]
    document = {"regions": regions, "rtt_ms": [[1, 160], [160, 1]], "flows": [flow], "budget_cents": 1000}
    return problem_from_document(document, "problem")


def wire_of(problem: PlacementProblem) -> tuple[Wire, ...]:
    (placed,) = place(problem, "f-fct").flows
    assert [proxy.region for proxy in placed.path] == ["aws:a", "aws:b"]
    path = ("aws-a-1", "aws-b-1")
    rate_mbps, direct_mbps = placed.rate_mbps, 115.0
    return (
        Wire(
            "backup", "h:1", "forward", "127.0.0.1:0", path, rate_mbps, direct_mbps, placed_as="backup", predicted_s=8.0
        ),
    )


def test_small_windows_between_proxies_lower_the_prediction_and_are_reported() -> None:
    problem = problem_of()
    plan, planned = place(problem, "f-fct"), wire_of(problem)
    assert planned[0].predicted_mbps == 1000
    kernels = {"aws-a-1": SMALL, "aws-b-1": LARGE}
    (slower,) = with_kernels(planned, plan, problem, kernels)
    # One window of 1.9 MB in each round trip of 160 ms.
    assert slower.predicted_mbps == pytest.approx(95)
    assert slower.predicted_s == pytest.approx(8e9 / 95e6)
    line = slower_line(planned, (slower,), problem, kernels)
    assert line is not None and line.startswith(
        "proxies allow less than planned: aws-a-1 has windows of 1.90 MB instead of 500 MB, and bbr;"
        " backup is predicted at 95 Mbit/s instead of 1 Gbit/s;"
    )


def test_only_the_direction_of_the_bytes_matters_and_large_windows_change_nothing() -> None:
    problem = problem_of()
    plan, planned = place(problem, "f-fct"), wire_of(problem)
    only_receives = ProxyKernel(500e6, 1.9e6, "bbr")
    for kernels in ({"aws-a-1": LARGE, "aws-b-1": LARGE}, {"aws-a-1": LARGE}, {}, {"aws-b-1": SMALL}):
        same = with_kernels(planned, plan, problem, kernels)
        assert same == planned and slower_line(planned, same, problem, kernels) is None
    (limited,) = with_kernels(planned, plan, problem, {"aws-a-1": LARGE, "aws-b-1": only_receives})
    # The exit sends over 2 ms, for which 1.9 MB suffice.
    assert limited.predicted_mbps == 1000


def test_without_bbr_loss_lowers_the_prediction() -> None:
    problem = problem_of(loss=0.001, congestion_control="bbr")
    plan, planned = place(problem, "f-fct"), wire_of(problem)
    assert planned[0].predicted_mbps == 1000
    cubic = ProxyKernel(500e6, 500e6, "cubic")
    (slower,) = with_kernels(planned, plan, problem, {"aws-a-1": cubic, "aws-b-1": LARGE})
    assert slower.predicted_mbps < 100
    other = ProxyKernel(500e6, 500e6, "htcp")
    assert with_kernels(planned, plan, problem, {"aws-a-1": other, "aws-b-1": LARGE}) == (slower,)


def test_a_replan_assumes_no_more_than_running_proxies_allow() -> None:
    problem = problem_of()
    assert within_kernels(problem, ()) is problem
    limited = within_kernels(problem, [LARGE, SMALL, ProxyKernel(6e8, 6e8, "cubic")])
    assert (limited.cloud_window_bytes, limited.proxy_congestion_control) == (1.9e6, "cubic")
    (placed,) = place(limited, "f-fct").flows
    assert placed.rate_mbps < 200


def test_kernels_are_known_where_the_system_reports_them() -> None:
    silent = SplitStatus("running", (), 0, 0, 0, 0, 0, {}, 0, 0, (), {})
    known = replace(silent, congestion_control="bbr", receive_buffer_bytes_max=6 << 20, send_buffer_bytes_max=12 << 20)
    lying = replace(known, send_buffer_bytes_max=0)
    assert kernels_of({"a": known, "b": silent, "c": lying}) == {"a": ProxyKernel(2_875_000, 5_750_000, "bbr")}
    states = [
        ProxyState("a", "aws:a", "healthy", receive_window_bytes=2.0, send_window_bytes=1.0, congestion_control="bbr"),
        ProxyState("b", "aws:b", "healthy"),
    ]
    assert list(recorded_kernels(states)) == [ProxyKernel(2.0, 1.0, "bbr")]
