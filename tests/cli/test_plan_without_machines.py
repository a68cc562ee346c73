"""`tradewind plan` mentions when starting machines takes longer than moving the bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tradewind.cli.main import main


def planned(folder: Path, capsys: pytest.CaptureFixture[str], volume_gb: float, boot_s: float) -> str:
    (folder / "links.csv").write_text("src,dst,gbps\np:a,p:b,4\n")
    (folder / "prices.csv").write_text("src,dst,usd_per_gb\np:a,p:b,0.02\n")
    document = {
        "throughput_csv": "links.csv",
        "price_csv": "prices.csv",
        "providers": {"p": {"egress_gbps": 5, "ingress_gbps": 10, "vm_usd_per_hour": 1.0}},
        "vm_limit": 8,
        "boot_s": boot_s,
        "source": "p:a",
        "destination": "p:b",
        "volume_gb": volume_gb,
        "goal": {"soonest": True},
    }
    (folder / "problem.json").write_text(json.dumps(document))
    assert main(["plan", "--problem", str(folder / "problem.json")]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_copy_that_ends_before_machines_start_is_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = planned(tmp_path, capsys, volume_gb=25, boot_s=60)
    assert "a copy without machines may finish earlier, and pays for none" in said
    assert "25.0 GB in 50.0 s, and machines take 1 min 00 s to start" in said


@pytest.mark.parametrize(("volume_gb", "boot_s"), [(35, 60), (25, 0)])
def test_nothing_is_mentioned_if_machines_start_sooner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], volume_gb: float, boot_s: float
) -> None:
    assert "without machines" not in planned(tmp_path, capsys, volume_gb, boot_s)
