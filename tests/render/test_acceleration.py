"""The state of an acceleration in words."""

from __future__ import annotations

from tradewind.model.acceleration import AccelerationState, FlowState, PoolState, ProxyState
from tradewind.render.acceleration import acceleration_lines
from tradewind.render.acceleration_metrics import prometheus_lines


def test_rates_have_units_and_no_exponent() -> None:
    path = ("site-a-1",)
    flow = FlowState("files", "host:1", "127.0.0.1:2", "forward", path, path, 1000, 25, 160.4, 157)
    lines = list(acceleration_lines(AccelerationState("one", "running", 0, 0, (flow,))))
    assert lines[3].startswith("    160 Mbit/s achieved, 1 Gbit/s predicted, 25 Mbit/s without proxies; 0 connections")
    assert lines[4] == "    157 Mbit/s achieved without proxies"


def test_a_flow_and_its_proxies_have_the_same_figures_in_words_and_metrics() -> None:
    path = ("a-1",)
    flow = FlowState(
        "files", "h:1", "127.0.0.1:2", "forward", path, path, 80, 20, 40, predicted_s=10, achieved_s=20, failed=3
    )
    proxy = ProxyState(
        "a-1",
        "site:a",
        "healthy",
        receive_window_bytes=2_875_000,
        send_window_bytes=1_917_000,
        congestion_control="cubic",
    )
    state = AccelerationState("one", "running", 0, 0, (flow,), (proxy,))
    shown = "\n".join(acceleration_lines(state))
    assert "0 connections, 3 failed, 0 B" in shown
    assert "all transfers of a period take 10.0 s as predicted, 20.0 s at the achieved rate" in shown
    assert "$0.00 egress; cubic, windows up to 2.88 MB received and 1.92 MB sent" in shown
    metrics = list(prometheus_lines([state]))
    labels = 'acceleration="one",flow="files"'
    for line in (
        f'flow_bits_per_second{{{labels},kind="predicted"}} 80000000.0',
        f'flow_bits_per_second{{{labels},kind="achieved"}} 40000000.0',
        f'flow_completion_seconds{{{labels},kind="achieved"}} 20',
        f"flow_failed_total{{{labels}}} 3",
        f"flow_on_placed_path{{{labels}}} 1",
        'proxy_window_max_bytes{acceleration="one",proxy="a-1",region="site:a",direction="send"} 1917000',
        'proxy_congestion_control{acceleration="one",proxy="a-1",region="site:a",control="cubic"} 1',
        'phase{acceleration="one",phase="running"} 1',
    ):
        assert f"tradewind_acceleration_{line}" in metrics, line
    assert not any("achieved_direct" in line or "usd_max{" in line for line in metrics), "they are not known"


def test_ready_connections_show_what_they_gain() -> None:
    pools = (
        PoolState("home", "a-1", 4, taken=9, missed=1, dead=2, first_byte_ms_taken=401, first_byte_ms_missed=768.4),
        PoolState("a-1", "b-1", 0, missed=1, first_byte_ms_missed=640),
        PoolState("a-1", "c-1", taken=1),
    )
    state = AccelerationState("one", "running", 0, 0, pools=pools)
    assert [line.strip() for line in acceleration_lines(state) if line.strip().startswith("hop")] == [
        "hop home → a-1  9 of 10 flows took a ready connection, 2 broke unused; first byte after 401 ms, else 768 ms",
        "hop a-1 → b-1  0 of 1 flow took a ready connection; first byte after 640 ms",
        "hop a-1 → c-1  1 of 1 flow took a ready connection",
    ]
    metrics = list(prometheus_lines([state]))
    labels = 'acceleration="one",start="home",end="a-1"'
    assert f'tradewind_acceleration_hop_flows_total{{{labels},source="taken"}} 9' in metrics
    assert f'tradewind_acceleration_hop_first_byte_seconds{{{labels},source="taken"}} 0.401' in metrics
    assert f"tradewind_acceleration_hop_dead_total{{{labels}}} 2" in metrics


def test_bytes_of_flows_that_share_a_path_are_counted_once() -> None:
    def flow(name: str, *shared: str) -> FlowState:
        return FlowState(name, "h:1", "127.0.0.1:2", "forward", (), (), 1, 1, bytes_up=5, shared_with=shared)

    state = AccelerationState("one", "running", 0, 0, (flow("x", "y"), flow("y", "x"), flow("z")))
    counted = [line for line in prometheus_lines([state]) if "flow_bytes_total{" in line and 'direction="up"' in line]
    assert len(counted) == 2 and not any('flow="y"' in line for line in counted)
    assert any("shared with y: their connections cannot be told apart" in line for line in acceleration_lines(state))
