"""Rates and times of TCP beyond the paper's model, against figures worked out by hand."""

import math

import pytest

from tradewind.model.flows import CongestionControl
from tradewind.model.records import replace
from tradewind.placement.tcp import (
    Hop,
    completion_s,
    hop_mbps,
    loss_for_mbps,
    loss_limited_mbps,
    part_of_loss,
)


def test_one_window_goes_per_round_trip() -> None:
    assert hop_mbps(Hop(200, 2_875_000)) == pytest.approx(115)
    assert hop_mbps(Hop(200, 2_875_000, capacity_mbps=50)) == 50
    assert hop_mbps(Hop(0, 2_875_000, capacity_mbps=50)) == 50


def test_reno_with_little_loss_has_the_rate_of_mathis() -> None:
    # Mathis et al. 1997: MSS / RTT * sqrt(3/2) / sqrt(p); timeouts matter little at p = 1e-5.
    mathis = 1448 * 8e-6 / 0.1 * math.sqrt(1.5 / 1e-5)
    assert loss_limited_mbps("reno", 100, 1e-5) == pytest.approx(mathis, rel=0.02)


def test_cubic_is_never_slower_than_reno_and_faster_over_long_paths() -> None:
    for rtt_ms in (1, 10, 100, 300):
        for loss in (1e-6, 1e-4, 1e-2):
            assert loss_limited_mbps("cubic", rtt_ms, loss) >= loss_limited_mbps("reno", rtt_ms, loss)
    # RFC 9438, table 2: 0.1 s, p = 1e-4: an average window of 187 segments, by equation 6.
    assert loss_limited_mbps("cubic", 100, 1e-4) == pytest.approx(187 * 1448 * 8e-6 / 0.1, rel=0.02)


def test_loss_does_not_limit_bbr() -> None:
    assert math.isinf(loss_limited_mbps("bbr", 100, 0.01))
    assert math.isinf(loss_limited_mbps("cubic", 100, 0.0))


def test_a_short_flow_pays_for_handshake_and_rounds() -> None:
    hop = Hop(100, 64e6, capacity_mbps=1000)
    # One round trip to connect, half of one to arrive, and no wait for acknowledgements: ten segments fit.
    assert completion_s([hop], 14_480) == pytest.approx(0.15)
    # 43,440 bytes need a second round.
    assert completion_s([hop], 43_440) == pytest.approx(0.25)


def test_a_long_flow_takes_its_size_by_its_rate() -> None:
    hop = Hop(100, 12.5e6, capacity_mbps=1000)
    assert completion_s([hop], 100e9) == pytest.approx(800, rel=0.01)


def test_splitting_helps_a_long_flow_and_not_a_short_one() -> None:
    direct = [Hop(200, 2_875_000, 1000)]
    split = [Hop(100, 2_875_000, 1000), Hop(100, 2_875_000, 1000)]
    assert completion_s(split, 1e9) < 0.6 * completion_s(direct, 1e9)
    assert completion_s(split, 10_000) >= completion_s(direct, 10_000)


def test_the_time_grows_with_the_size() -> None:
    hops = [Hop(80, 4e6, 500, loss=1e-5)]
    times = [completion_s(hops, 1000 * 1.3**step) for step in range(60)]
    assert times == sorted(times)


def test_the_parts_of_a_path_lose_as_much_as_the_whole() -> None:
    assert 1 - (1 - part_of_loss(0.02, 0.3)) * (1 - part_of_loss(0.02, 0.7)) == pytest.approx(0.02)


def test_a_hop_between_proxies_opens_faster_if_it_is_ready() -> None:
    hop = Hop(100, 64e6, is_between_proxies=True)
    assert (Hop(100, 64e6).open_s, hop.open_s) == pytest.approx((0.1, 0.3))
    # The request and its answer are left.
    assert replace(hop, is_ready=True).open_s == pytest.approx(0.1)


@pytest.mark.parametrize("control", ["reno", "cubic"])
@pytest.mark.parametrize("loss", [1e-6, 1e-4, 0.02])
def test_the_loss_for_a_rate_is_the_one_that_limits_to_it(control: CongestionControl, loss: float) -> None:
    assert loss_for_mbps(control, 80, loss_limited_mbps(control, 80, loss)) == pytest.approx(loss, rel=1e-3)


def test_no_loss_explains_a_rate_of_bbr_or_one_that_is_too_low() -> None:
    assert loss_for_mbps("bbr", 80, 10) is None
    assert loss_for_mbps("cubic", 80, 1e-3) is None
