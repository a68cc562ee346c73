"""The worked values of the problem format: Fig. 1 of the Skyplane paper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tradewind.cli.main import main

GRID = Path(__file__).parents[3] / "shared" / "grid"

pytestmark = pytest.mark.skipif(not GRID.is_dir(), reason="needs the measured grid in ../shared/grid")


def problem(folder: Path, goal: dict[str, object]) -> Path:
    path = folder / "problem.json"
    providers = {
        "aws": {"egress_gbps": 5, "ingress_gbps": 10, "vm_usd_per_hour": 1.536},
        "azure": {"egress_gbps": 16, "ingress_gbps": 16, "vm_usd_per_hour": 1.536},
        "gcp": {"egress_gbps": 7, "ingress_gbps": 16, "vm_usd_per_hour": 1.5539},
    }
    document = {
        "throughput_csv": str(GRID / "throughput_2022-01.csv"),
        "rate_column": "sent_gbps",
        "price_csv": str(GRID / "egress_price_2022.csv"),
        "connections_per_vm": 64,
        "providers": providers,
        "vm_limit": 1,
        "boot_s": 0,
        "source": "azure:canadacentral",
        "destination": "gcp:asia-northeast1",
        "volume_gb": 50,
        "goal": goal,
    }
    path.write_text(json.dumps(document))
    return path


def solution(capsys: pytest.CaptureFixture[str], path: Path) -> tuple[int, dict[str, object]]:
    code = main(["plan", "--problem", str(path), "--json"])
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return code, document


def test_cheapest_at_exactly_a_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, plan = solution(capsys, problem(tmp_path, {"min_throughput_gbps": 12.4, "exactly": True}))
    assert code == 0
    assert plan["status"] == "optimal"
    assert plan["throughput_gbps"] == pytest.approx(12.4)
    assert plan["cost_usd"]["total"] == pytest.approx(5.3451, abs=5e-5)  # type: ignore[index]
    assert plan["vms"] == {"azure:canadacentral": 1, "azure:westus2": 1, "gcp:asia-northeast1": 1}
    first = plan["edges"][0]  # type: ignore[index]
    assert first["gbps"] == pytest.approx(11.515, abs=5e-4)
    assert first["connections"] == 27
    assert plan["routes"][0]["share"] == pytest.approx(0.929, abs=5e-4)  # type: ignore[index]


def test_fastest_under_a_ceiling(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, plan = solution(capsys, problem(tmp_path, {"max_cost_usd": 5.4}))
    assert code == 0
    assert plan["throughput_gbps"] == pytest.approx(13.1026, abs=5e-5)
    assert plan["cost_usd"]["total"] <= 5.4 + 1e-9  # type: ignore[index]


def test_an_infeasible_goal_names_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, plan = solution(capsys, problem(tmp_path, {"max_cost_usd": 3.0}))
    assert code == 1
    assert plan["status"] == "infeasible"
    assert plan["nearest"]["cost_usd"]["total"] == pytest.approx(4.4268, abs=5e-5)  # type: ignore[index]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source": "azure:canadacentra"}, "did you mean azure:canadacentral"),
        ({"volume_gb": -1}, "volume_gb"),
        ({"goal": {"min_throughput": 3}}, "goal"),
        ({"vm_limit": 1.5}, "whole number"),
        ({"providers": {}}, "missing"),
        ({"throughput_csv": "no.csv"}, "no such file"),
        ({"surprise": 1}, "unknown"),
    ],
)
def test_bad_problems_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], words: str
) -> None:
    path = problem(tmp_path, {"min_throughput_gbps": 5})
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    assert main(["plan", "--problem", str(path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) <= 2
