"""`accelerate generate --write-flows` writes a flows file of the use case, and prints the problem of that file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tradewind.acceleration.wiring import wires_of
from tradewind.cli.main import main
from tradewind.engine import use_case_flows
from tradewind.model.flows import read_flows
from tradewind.placement.place import place
from tradewind.placement.problem import problem_from_document
from tradewind.placement.use_cases import USE_CASES

COUNT = 12
EXACT_MS = 0.0005
"""Round trips in a flows file are whole microseconds."""


def generated(capsys: pytest.CaptureFixture[str], case: str, *words: str) -> Any:
    assert main(["accelerate", "generate", case, "--count", str(COUNT), "--provider", "azure", *words]) == 0
    return json.loads(capsys.readouterr().out)


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["accelerate", "plan", *words, "--algorithm", "1p", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    return {key: plan[key] for key in ("flows", "instances", "cost_cents", "total_fct_s", "direct_total_fct_s")}


@pytest.mark.parametrize("case", USE_CASES)
def test_the_file_and_the_printed_problem_have_the_same_plan(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flows, problem, kept = (str(tmp_path / name) for name in ("flows.toml", "problem.json", "kept.json"))
    document = generated(capsys, case, "--seed", "7", "--write-flows", flows, "--slow-start")
    Path(problem).write_text(json.dumps(document))
    of_flows = planned(capsys, "--flows", flows, "--write-problem", kept)
    assert of_flows == planned(capsys, "--problem", problem)
    assert json.loads(Path(kept).read_text()) == document
    assert any(flow["path"] for flow in of_flows["flows"])


@pytest.mark.parametrize("case", USE_CASES)
def test_the_flows_are_those_of_the_problem_without_a_file(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flows = tmp_path / "flows.toml"
    words = ("--seed", "3", "--size", "50GB", "--budget", "9USD")
    alone, beside = generated(capsys, case, *words), generated(capsys, case, *words, "--write-flows", str(flows))
    assert beside["budget_cents"] == alone["budget_cents"] == 900
    assert [region["name"] for region in beside["regions"]] == [region["name"] for region in alone["regions"]]
    for one, other in zip(alone["flows"], beside["flows"], strict=True):
        for key in ("id", "size_bytes", "src_last_mile_mbps", "dst_last_mile_mbps", "src_region", "dst_region"):
            assert one[key] == other[key]
        for key in ("rtt_direct_ms", "rtt_src_to_region_ms", "rtt_region_to_dst_ms"):
            assert other[key] == pytest.approx(one[key], abs=EXACT_MS, rel=0)


@pytest.mark.parametrize("case", USE_CASES)
def test_up_accepts_its_flows_on_hosts_of_their_own(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Destinations connect to sources, each flow at a port of its own."""
    path = tmp_path / "flows.toml"
    document = generated(capsys, case, "--write-flows", str(path))
    flows = read_flows(path)
    plan = place(problem_from_document(document, "problem"), "f-cost")
    wires = wires_of(flows.flows, plan, "flows.toml")
    assert [wire.entrance_region for wire in wires] == [flow["dst_region"] for flow in document["flows"]]
    assert len({wire.listen for wire in wires}) == COUNT
    hosts = [(flow.source.text, flow.destination.text) for flow in flows.flows]
    without_file = generated(capsys, case)["flows"]
    assert hosts == [(f"{flow['src_host']}.example:443", f"{flow['dst_host']}.example") for flow in without_file]


def test_advise_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "flows.toml")
    generated(capsys, "many-one-to-one", "--write-flows", path)
    assert main(["accelerate", "advise", "--flows", path, "--algorithm", "f-cost", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["flows"]) == COUNT


def test_round_trips_of_a_table_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["one-to-many", "--rtt", "rtt.csv", "--write-flows", "flows.toml"]
    assert main(["accelerate", "generate", *words]) == 2
    assert "--write-flows and --rtt exclude each other" in capsys.readouterr().err


def test_a_file_that_nothing_could_read_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(use_case_flows, "USER_FILE_BYTES_MAX", 1000)
    path = tmp_path / "flows.toml"
    assert main(["accelerate", "generate", "one-to-many", "--count", "9", "--write-flows", str(path)]) == 2
    assert "a flows file has at most 1000 bytes" in capsys.readouterr().err and not path.exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "none" / "flows.toml")
    assert main(["accelerate", "generate", "one-to-many", "--write-flows", path]) == 2
    assert f"{path}: No such file or directory" in capsys.readouterr().err
