"""Problem files: what is read, what is refused, and what the command says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.placement.problems import document
from tradewind.cli.main import main
from tradewind.errors import ConfigError
from tradewind.placement.paths import paths_of
from tradewind.placement.problem import problem_from_document

#: The example of the format.
EXAMPLE: dict[str, Any] = {
    "regions": [{"name": "A", "capacity_mbps": 2000, "setup_cents": 50, "egress_cents_per_gb": 8, "max_instances": 2}],
    "rtt_ms": [[0.5]],
    "flows": [
        {
            "id": "f0",
            "size_bytes": 2e9,
            "src_last_mile_mbps": 1000,
            "dst_last_mile_mbps": 1000,
            "rtt_direct_ms": 200,
            "rtt_src_to_region_ms": [20],
            "rtt_region_to_dst_ms": [180],
        }
    ],
    "edge_window_bytes": 2_875_000,
    "cloud_window_bytes": 500_000_000,
    "bytes_per_gb": 1e9,
    "per_flow_proxy_limit_mbps": None,
    "budget_cents": 132,
}


LAST_MILES = ("src_last_mile_mbps", "dst_last_mile_mbps")


def test_rates_follow_from_windows_and_round_trips() -> None:
    """One window of 2.875 MB per 200 ms is 115 Mbit/s; per 180 ms, the longer hop over A, 127.8 Mbit/s."""
    paths = paths_of(problem_from_document(EXAMPLE, "example"))
    assert paths.rate_mbps[0].tolist() == pytest.approx([115.0, 127.7777], rel=1e-4)
    assert paths.fct_s[0].tolist() == pytest.approx([139.1304, 125.2174], rel=1e-4)
    assert paths.egress_cents[0].tolist() == [0.0, 16.0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"region": []}, "unknown key 'region'"),
        ({"budget_cents": -1}, "budget_cents must be a number, 0 or more, not -1"),
        ({"budget_cents": True}, "budget_cents must be a number"),
        ({"rtt_ms": [[0.5], [1]]}, "rtt_ms has 2 rows for 1 region"),
        ({"rtt_ms": [["near"]]}, r"rtt_ms\[0\]: a round-trip time must be a number of milliseconds"),
        ({"flows": [EXAMPLE["flows"][0], EXAMPLE["flows"][0]]}, "the ids of flows must differ"),
        ({"regions": EXAMPLE["regions"] * 2}, "two regions are called 'A'"),
        ({"edge_window_bytes": 0}, "edge_window_bytes must be a number, more than 0"),
        ({"budget_cents": 10**400}, r"budget_cents must be a number, from 1e-09 to 1e\+18, not 10000000000000000000$"),
        ({"budget_cents": float("nan")}, "budget_cents must be a number, 0 or more, not nan"),
        ({"bytes_per_gb": 5e-324}, "bytes_per_gb must be a number, from 1e-09"),
        ({"rtt_ms": [[1e300]]}, r"rtt_ms\[0\]: a round-trip time must be a number of milliseconds"),
        (
            {"flows": [{**EXAMPLE["flows"][0], "rtt_direct_ms": 0, **dict.fromkeys(LAST_MILES)}]},
            r"flows\[0\]: nothing limits the rate of the direct path",
        ),
    ],
)
def test_faults_are_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        problem_from_document({**EXAMPLE, **change}, "example")


def test_the_command_prints_the_plan_as_specified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(EXAMPLE))
    assert main(["accelerate", "plan", "--problem", str(path), "--algorithm", "exact", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert set(plan) == {
        *("algorithm", "total_fct_s", "direct_total_fct_s", "acceleration", "cost_cents"),
        *("gap", "solve_s", "flows", "instances"),
    }
    assert plan["acceleration"] == pytest.approx(200 / 180) and plan["cost_cents"] == 66.0 and plan["gap"] == 0.0
    assert plan["flows"][0]["path"] == [{"region": "A", "instance": 0}]
    assert plan["instances"] == [{"region": "A", "instance": 0, "load_mbps": pytest.approx(127.7777, rel=1e-4)}]


def test_the_command_explains_and_traces_the_frontier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(document(2, flows=3, regions=3, budget_cents=60)))
    assert main(["accelerate", "plan", "--problem", str(path), "--explain", "--frontier"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("placed    3 flows over ") and lines[0].endswith(", by auto")
    assert sum("limited by" in line for line in lines) == 3
    assert any(line.startswith("one dollar more saves") for line in lines)
    assert "budget      all flows together" in lines


def test_the_command_draws_a_frontier_without_flows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps({**EXAMPLE, "flows": []}))
    assert main(["accelerate", "plan", "--problem", str(path), "--explain", "--frontier"]) == 0
    assert "budget      all flows together" in capsys.readouterr().out.splitlines()


def test_a_missing_file_and_invalid_json_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accelerate", "plan", "--problem", str(tmp_path / "none.json")]) == 2
    (tmp_path / "bad.json").write_text("{")
    assert main(["accelerate", "plan", "--problem", str(tmp_path / "bad.json")]) == 2
    said = capsys.readouterr().err
    assert "none.json: no such file" in said and "bad.json: not JSON" in said
    assert said.count("hint: docs/reference/placement-problem.md describes the format") == 2
