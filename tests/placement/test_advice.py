"""Advice names the limit of a flow, the least free tuning that helps, and proxies only after that."""

from typing import Any

import pytest

from tradewind.model.flows import FlowEnd, Sizes, WantedFlow
from tradewind.model.tcp import Download, PathMeasurement
from tradewind.placement.advice import Advice, Ends, FlowAdvice, advice_of, tuned, with_tcp_rates
from tradewind.placement.place import place
from tradewind.placement.problem import problem_from_document
from tradewind.render.advice import AdviceReport

USUAL = Ends(2_875_000, "cubic")


def advised(
    ends: Ends = USUAL,
    *,
    size_bytes: int = 2_000_000_000,
    rtt_ms: float = 200,
    loss: float = 0.0,
    mbps: float = 1000,
    measured: PathMeasurement | None = None,
    budget_cents: float = 1000,
) -> FlowAdvice:
    """Return the advice for one flow, with a region at 20 ms from each of its ends, 160 ms apart."""
    flow = WantedFlow("f", FlowEnd("a"), FlowEnd("b"), (Sizes(size_bytes, 1),), 1.0, rtt_ms, loss)
    region: dict[str, Any] = {"capacity_mbps": 2000, "setup_cents": 50, "egress_cents_per_gb": 8}
    entry = {
        "id": "f",
        "size_bytes": size_bytes,
        "src_last_mile_mbps": mbps,
        "rtt_direct_ms": rtt_ms,
        "rtt_src_to_region_ms": [20, 180],
        "rtt_region_to_dst_ms": [180, 20],
    }
    document = {
        "regions": [{"name": "near", **region}, {"name": "far", **region}],
        "rtt_ms": [[0, 160], [160, 0]],
        "flows": [entry],
        "budget_cents": budget_cents,
    }
    problem = problem_from_document(document, "p")
    now, later = (with_tcp_rates(problem, [flow], [each]) for each in (ends, tuned(ends)))
    plans = place(now, "exact"), place(later, "exact")
    return advice_of((flow,), {"f": ends}, problem, *plans, {} if measured is None else {"f": measured}).flows[0]


def test_a_long_flow_is_limited_by_its_window_and_larger_windows_are_enough() -> None:
    flow = advised()
    assert (flow.limit, flow.tuning) == ("the window", "larger windows")
    assert flow.now.rate_mbps == pytest.approx(115)
    assert flow.tuned.rate_mbps == 1000
    assert flow.proxies is not None and flow.proxies_path == ("near", "far")
    assert flow.proxies.time_s < flow.now.time_s / 5
    assert not flow.proxies_gain  # Tuned ends fill the last mile, too.


def test_placement_knows_the_loss_and_the_windows_of_a_flow() -> None:
    # Both paths have the same windows; the direct one loses so much that a proxy is worth its price.
    flow = advised(Ends(200e6, "reno"), loss=0.01, rtt_ms=200)
    assert flow.limit == "loss" and flow.proxies is not None
    assert flow.proxies.time_s < flow.now.time_s / 2
    assert flow.both is None  # With bbr the last mile is full without proxies.


def test_loss_needs_bbr() -> None:
    flow = advised(Ends(64e6, "cubic"), loss=0.001)
    assert (flow.limit, flow.tuning) == ("loss", "bbr")
    assert advised(loss=0.001).tuning == "larger windows and bbr"


def test_proxies_gain_where_tuned_ends_are_still_limited_by_the_window() -> None:
    flow = advised(mbps=2000, rtt_ms=400)
    assert flow.both is not None and flow.proxies_gain
    assert flow.both.time_s < flow.tuned.time_s


def test_a_full_last_mile_has_nothing_to_gain() -> None:
    flow = advised(mbps=50)
    assert (flow.limit, flow.tuning, flow.tuned) == ("the last mile", None, flow.now)
    assert not flow.proxies_gain


def test_a_short_flow_is_limited_by_its_start() -> None:
    flow = advised(size_bytes=50_000)
    assert flow.limit == "slow start and handshakes"
    assert flow.tuning is None and not flow.proxies_gain


def test_without_money_there_are_no_proxies() -> None:
    flow = advised(budget_cents=0)
    assert flow.proxies is None and flow.both is None and not flow.proxies_gain


def test_no_gain_is_promised_where_a_download_was_slower_than_the_model() -> None:
    slow = Download(10_000_000, 4.0)
    flow = advised(measured=PathMeasurement("a:1", 200, download=slow))
    assert (flow.limit, flow.tuning) == ("the path or the peer", None)
    assert flow.now.rate_mbps == pytest.approx(20)
    as_predicted = Download(50_000_000, 4.0)
    assert advised(measured=PathMeasurement("a:1", 200, download=as_predicted)).tuning == "larger windows"
    short = Download(100_000, 0.1)
    assert advised(measured=PathMeasurement("a:1", 200, download=short)).limit == "the window"


def test_the_loss_that_explains_a_slow_download_is_known_and_no_gain_is_promised() -> None:
    """Cubic reaches 20 Mbit/s over 200 ms with a loss of 0.0089%. A full link loses packets, too."""
    lossy = Download(10_000_000, 4.0, out_of_order=90, segments=7_000)
    flow = advised(measured=PathMeasurement("a:1", 200, download=lossy))
    assert flow.loss == pytest.approx(88.5e-6, rel=0.01)
    assert (flow.limit, flow.tuning) == ("the path or the peer", None)
    lines = list(AdviceReport(Advice((flow,), None, None)).lines())
    assert lines[1].endswith("90 of 7,000 segments out of order, as slow as with a loss of 0.0089%")
    assert lines[3].startswith("  free      bbr at the sender, unless the packets are lost because a link is full")


@pytest.mark.parametrize("out_of_order", [None, 0, 1])
def test_a_slow_download_with_too_few_segments_out_of_order_was_not_slowed_by_loss(out_of_order: int | None) -> None:
    """At 2 Mbit/s, cubic would have lost many more than one of 700 segments."""
    slow = Download(1_000_000, 4.0, out_of_order=out_of_order, segments=700)
    flow = advised(measured=PathMeasurement("a:1", 200, download=slow))
    assert (flow.limit, flow.tuning, flow.loss) == ("the path or the peer", None, None)
