"""The acceleration benchmark measures in the emulated WAN, and its figures agree with each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.acceleration.__main__ import main
from benchmarks.acceleration.ground import predicted_mbps
from benchmarks.acceleration.run import RTT_FILE
from testbed.sky import unavailable

POSITIONS_MS = {"Finland": 0, "Northern Virginia": 20, "Sao Paulo": 40, "London": 10, "Tokyo": 80}


def run(figures: Sequence[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Run figures in quick mode over made-up round trips, and return their rows."""
    if reason := unavailable():
        pytest.skip(reason)
    rows = [f"{a},{b},{abs(POSITIONS_MS[a] - POSITIONS_MS[b]) or 1}" for a in POSITIONS_MS for b in POSITIONS_MS]
    (folder / RTT_FILE).write_text("\n".join(["src,dst,rtt_ms", *rows]) + "\n")
    clouds = ["gcp:us-east1,gcp:us-west1,60", "gcp:us-east1,gcp:us-central1,30", "gcp:us-central1,gcp:us-west1,31"]
    (folder / "rtt_2022-04.csv").write_text("\n".join(["src,dst,min_rtt_ms", *clouds]) + "\n")
    words = [*figures, "--quick", "--grid", str(folder), "--out", str(folder / "out")]
    monkeypatch.setattr("sys.argv", ["benchmarks.acceleration", *words])
    assert main() == 0
    return [json.loads(line) for line in (folder / "out" / "quick-emulated.jsonl").read_text().splitlines()]


@pytest.mark.alone
def test_splitting_gains_and_forwarding_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {row["way"]: row["measured_mbps"] for row in run(["fig3"], tmp_path, monkeypatch)}
    assert rates["forwarding"] < rates["one split"] and rates["direct"] < rates["one split"]
    page = (tmp_path / "out" / "acceleration.md").read_text()
    assert "### Fig. 3: forwarding and splitting" in page and "| d: gcp:us-east1 → gcp:us-west1 |" in page


@pytest.mark.alone
@pytest.mark.slow
def test_all_flows_of_a_placement_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = run(["fig15"], tmp_path, monkeypatch)
    assert len(row["measured_s"]) == len(row["predicted_s"]) == 6 and min(row["measured_s"]) > 0
    assert row["instances"] > 0 and sum(row["proxies_per_flow"]) > 0
    assert "Table: total completion time, 3 servers" in (tmp_path / "out" / "acceleration.md").read_text()


@pytest.mark.alone
@pytest.mark.slow
def test_short_flows_are_measured_with_and_without_ready_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {row["key"]: row for row in run(["pools"], tmp_path, monkeypatch)}
    without, with_pool = rows["pools/two proxies/1/0"], rows["pools/two proxies, pool/1/0"]
    assert (without["taken"], without["missed"]) == (0, 3)
    assert (with_pool["taken"], with_pool["missed"], with_pool["dead"]) == (2, 1, 0)
    page = (tmp_path / "out" / "acceleration.md").read_text()
    assert "### Short flows and connections that are ready" in page and "| two proxies, pool |" in page


def test_predictions_are_one_window_per_round_trip_of_the_slowest_hop() -> None:
    # 2.875 MB in 100 ms are 230 Mbit/s. Between two proxies the window is large, so the link is the limit.
    assert predicted_mbps([100.0], 0.1) == pytest.approx(23.0)
    assert predicted_mbps([40.0, 60.0], 0.1) == pytest.approx(23.0 / 0.6)
    assert predicted_mbps([50.0, 200.0, 100.0], 0.1) == pytest.approx(23.0)
    assert predicted_mbps([1.0, 200.0, 1.0], 0.1) == pytest.approx(200.0 * 1448 / 1538)
