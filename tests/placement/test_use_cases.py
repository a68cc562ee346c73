"""Generated problems have the structure of their use case, and the same seed gives the same problem."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tradewind.cli.main import main
from tradewind.errors import ConfigError, UsageError
from tradewind.placement.place import place
from tradewind.placement.problem import Flow, PlacementProblem, document_of, problem_from_document
from tradewind.placement.use_cases import USE_CASES, Places, UseCaseSettings, make_problem

CONTINENTS = {"a1": "asia", "a2": "asia", "e1": "europe", "e2": "europe", "n1": "north-america", "s1": "south-america"}
NAMES = tuple(CONTINENTS)


def places(continents: dict[str, str] | None = None) -> Places:
    """Return six regions: 0.5 ms within one, 30 ms within a continent, 150 ms between two."""
    rtt_ms = [[0.5 if a == b else 30.0 if CONTINENTS[a] == CONTINENTS[b] else 150.0 for b in NAMES] for a in NAMES]
    return Places(NAMES, np.array(rtt_ms), CONTINENTS if continents is None else continents)


def made(case: str, flows: int, seed: int = 1, **settings: object) -> PlacementProblem:
    return make_problem(case, flows, seed, places(), UseCaseSettings(**settings))  # type: ignore[arg-type]


def source_of(flow: Flow) -> tuple[float, ...]:
    """Return what distinguishes a source: its round trips to the regions."""
    return tuple(flow.rtt_to_region_ms.tolist())


def destination_of(flow: Flow) -> tuple[float, ...]:
    return tuple(flow.rtt_from_region_ms.tolist())


@pytest.mark.parametrize("case", USE_CASES)
def test_the_same_seed_gives_the_same_problem(case: str) -> None:
    assert document_of(made(case, 20)) == document_of(made(case, 20))
    assert document_of(made(case, 20)) != document_of(made(case, 20, seed=2))


@pytest.mark.parametrize("case", USE_CASES)
def test_a_problem_survives_its_file_and_has_a_plan(case: str) -> None:
    problem = made(case, 13)
    again = problem_from_document(json.loads(json.dumps(document_of(problem))), "problem")
    assert document_of(again) == document_of(problem)
    assert len(again.flows) == 13 and again.budget_cents == 650
    assert place(again, "f-cost").acceleration > 1


@pytest.mark.parametrize("case", ["one-to-many", "many-one-to-one", "localized-one-to-many"])
def test_more_flows_are_added_to_the_same_ones(case: str) -> None:
    few, many = document_of(made(case, 5))["flows"], document_of(made(case, 9))["flows"]
    assert many[:5] == few


@pytest.mark.parametrize("case", USE_CASES)
def test_hosts_are_near_a_region_and_reach_others_through_it(case: str) -> None:
    problem = made(case, 30)
    for flow in problem.flows:
        src, dst = NAMES.index(str(flow.src_region)), NAMES.index(str(flow.dst_region))
        assert 0.5 <= flow.rtt_to_region_ms[src] < 40.5 and 0.5 <= flow.rtt_from_region_ms[dst] < 40.5
        assert flow.rtt_direct_ms == pytest.approx(flow.rtt_to_region_ms[dst] + flow.rtt_from_region_ms[dst] - 0.5)


def test_one_source_sends_to_many_destinations_without_a_last_mile() -> None:
    flows = made("one-to-many", 30, source="e2").flows
    assert len(set(map(source_of, flows))) == 1 and len(set(map(destination_of, flows))) == 30
    assert {flow.src_region for flow in flows} == {"e2"}
    assert {(flow.src_last_mile_mbps, flow.dst_last_mile_mbps) for flow in flows} == {(math.inf, 1000.0)}


@pytest.mark.parametrize(("count", "hosts"), [(2, 2), (6, 3), (7, 4), (12, 4), (60, 9)])
def test_many_to_many_is_a_mesh(count: int, hosts: int) -> None:
    flows = made("many-to-many", count).flows
    pairs = {(source_of(flow), destination_of(flow)) for flow in flows}
    assert len(pairs) == count
    if count == hosts * (hosts - 1):
        assert len({source for source, _ in pairs}) == len({destination for _, destination in pairs}) == hosts
    assert len({source for source, _ in pairs}) <= hosts
    assert {flow.src_last_mile_mbps for flow in flows} == {1000.0}


def test_one_to_one_flows_share_no_host() -> None:
    flows = made("many-one-to-one", 30).flows
    assert len(set(map(source_of, flows))) == len(set(map(destination_of, flows))) == 30


def test_localized_destinations_use_the_nearest_of_three_sources_nine_times_in_ten() -> None:
    flows = made("localized-one-to-many", 2000).flows
    direct_ms: dict[tuple[float, ...], str] = {source_of(flow): str(flow.src_region) for flow in flows}
    assert sorted(CONTINENTS[region] for region in direct_ms.values()) == ["asia", "europe", "north-america"]
    ranks = [0, 0, 0]
    for flow in flows:
        dst = NAMES.index(str(flow.dst_region))
        # All sources reach a destination through its region.
        nearest_first = sorted(direct_ms, key=lambda source: source[dst])
        ranks[nearest_first.index(source_of(flow))] += 1
    assert [rank / len(flows) for rank in ranks] == pytest.approx([0.90, 0.07, 0.03], abs=0.03)


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown use case 'many'"):
        made("many", 3)
    with pytest.raises(UsageError, match="from 1 to 10000, not 0"):
        made("one-to-many", 0)
    with pytest.raises(UsageError, match="a seed is 0 or more"):
        made("one-to-many", 1, seed=-1)
    with pytest.raises(UsageError, match="unknown region 'x'"):
        made("one-to-many", 1, source="x")
    with pytest.raises(ConfigError, match="needs a source in asia"):
        make_problem("localized-one-to-many", 3, 1, places({}))


def rtt_table(path: Path) -> Path:
    """Write the round trips of the six regions with their continents."""
    rtt_ms = places().rtt_ms
    rows = [
        f"{NAMES[a]},{NAMES[b]},{rtt_ms[a, b]},{CONTINENTS[NAMES[a]]}"
        for a, b in itertools.product(range(len(NAMES)), repeat=2)
    ]
    path.write_text("\n".join(["src,dst,rtt_ms,continent", *rows]) + "\n")
    return path


def test_the_command_prints_what_plan_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = str(rtt_table(tmp_path / "rtt.csv"))
    words = ["generate", "localized-one-to-many", "--count", "8", "--seed", "3", "--rtt", table, "--budget", "3USD"]
    assert main(["accelerate", *words, "--slow-start"]) == 0
    printed = capsys.readouterr().out
    problem = json.loads(printed)
    assert len(problem["flows"]) == 8 and problem["budget_cents"] == 300 and problem["slow_start"] is True
    plan = [
        sys.executable,
        "-m",
        "tradewind.cli.main",
        "accelerate",
        "plan",
        "--problem",
        "-",
        "--algorithm",
        "1p",
        "--json",
    ]
    ended = subprocess.run(plan, input=printed, capture_output=True, text=True, timeout=60, check=True)
    assert len(json.loads(ended.stdout)["flows"]) == 8


def test_the_catalog_has_round_trips_for_a_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accelerate", "generate", "localized-one-to-many", "--count", "2"]) == 0
    problem = json.loads(capsys.readouterr().out)
    assert all(region["name"].startswith("gcp:") for region in problem["regions"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate"], "missing CASE"),
        (["generate", "one-to-many", "--problem", "x"], "--problem is only for accelerate plan"),
        (["generate", "one-to-many", "--rtt", "none.csv"], "none.csv: no such file"),
        (["generate", "one-to-many", "--rtt", "a", "--provider", "gcp"], "--provider and --rtt exclude each other"),
        (["generate", "one-to-many", "--provider", "moon"], "no round trips for 'moon'"),
        (["generate", "one-to-many", "--count", "0"], "from 1 to 10000, not 0"),
        (["generate", "moon"], "takes one CASE"),
        (["plan"], "needs either --flows or --problem"),
        (["plan", "--problem", "x", "--slow-start"], "--slow-start is only for accelerate generate"),
    ],
)
def test_the_command_names_what_is_wrong(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accelerate", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_table_without_a_pair_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rtt.csv"
    path.write_text("src,dst,rtt_ms\na,b,3\n")
    assert main(["accelerate", "generate", "one-to-many", "--rtt", str(path)]) == 2
    assert "no round trip from b to a" in capsys.readouterr().err
