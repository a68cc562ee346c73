"""The state of an acceleration in words."""

from __future__ import annotations

from tradewind.model.acceleration import AccelerationState, FlowState
from tradewind.render.acceleration import acceleration_lines


def test_rates_have_units_and_no_exponent() -> None:
    path = ("site-a-1",)
    flow = FlowState("files", "host:1", "127.0.0.1:2", "forward", path, path, 1000, 25, 160.4, 157)
    lines = list(acceleration_lines(AccelerationState("one", "running", 0, 0, (flow,))))
    assert lines[3].startswith("    160 Mbit/s achieved, 1 Gbit/s predicted, 25 Mbit/s without proxies; 0 connections")
    assert lines[4] == "    157 Mbit/s achieved without proxies"
