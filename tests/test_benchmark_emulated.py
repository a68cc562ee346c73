"""The page of the acceleration benchmark has a table and a plot of each figure measured in the emulated WAN."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.acceleration.emulated_page import sections

pytest.importorskip("matplotlib")


def test_the_rates_of_fig_3_are_drawn_by_way_and_tuple() -> None:
    page = sections([rate("a", "direct", "", 5.4), rate("a", "one split", "HAProxy", 8.0)], quick=False)
    assert "| a: gcp:a → gcp:b | 5.4 (6.0) | 8.0 (6.0) |" in page.text
    assert "![rate by way and tuple](acceleration-fig3.svg)" in page.text
    drawn = page.plots["acceleration-fig3.svg"]
    assert "one split" in drawn and "HAProxy" in drawn and "8.00" in drawn


def test_the_accelerations_of_fig_15_are_drawn_by_placement() -> None:
    rows = [mesh("direct", [100.0, 100.0]), mesh("2p, nginx", [50.0, 30.0]), mesh("2p, nginx", [50.0, 70.0])]
    page = sections(rows, quick=False)
    assert "| 2p, nginx | 1.00 | 0 / 2 / 0 | 100.0 ± 28.3 (2) | 80.0 | 90.0 | 2.00 (2.50) |" in page.text
    assert "![acceleration by placement](acceleration-fig15.svg)" in page.text
    drawn = page.plots["acceleration-fig15.svg"]
    assert "3 servers, measured" in drawn and "2.00" in drawn and "2.50" in drawn


def rate(name: str, way: str, program: str, measured_mbps: float) -> dict[str, Any]:
    return {
        "figure": "fig3",
        "tuple": name,
        "way": way,
        "program": program,
        "regions": ["gcp:a", "gcp:b"],
        "measured_mbps": measured_mbps,
        "predicted_mbps": 6.0,
    }


def mesh(way: str, measured_s: list[float]) -> dict[str, Any]:
    return {
        "figure": "fig15",
        "experiment": "3 servers, 6 flows, $3",
        "way": way,
        "size_bytes": 8e6,
        "cost_usd": 1.0,
        "proxies_per_flow": [1, 1],
        "measured_s": measured_s,
        "predicted_s": [40.0, 40.0],
        "predicted_slow_start_s": [45.0, 45.0],
        "direct_predicted_s": 200.0,
    }
