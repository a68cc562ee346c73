"""`tradewind plan` with several destinations, from the command line and from a problem file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tradewind.cli.main import main
from tradewind.render.plans import MulticastPlan, TransferFrontier

NAMES = ("a:source", "a:hub", "b:one", "b:two")


def problem(folder: Path, **changes: object) -> Path:
    """Write a problem file of four regions in which the links to and from the hub are cheap."""
    rates = ["src,dst,gbps"] + [f"{u},{v},{8 if 'hub' in u + v else 3}" for u in NAMES for v in NAMES if u != v]
    prices = ["src,dst,usd_per_gb"]
    prices += [f"{u},{v},{0.01 if 'hub' in u + v else 0.09}" for u in NAMES for v in NAMES if u != v]
    (folder / "rates.csv").write_text("\n".join(rates) + "\n")
    (folder / "prices.csv").write_text("\n".join(prices) + "\n")
    machine = {"egress_gbps": 10, "ingress_gbps": 10, "vm_usd_per_hour": 1.0}
    document: dict[str, Any] = {
        "throughput_csv": "rates.csv",
        "price_csv": "prices.csv",
        "providers": {"a": machine, "b": machine},
        "vm_limit": 2,
        "source": "a:source",
        "destinations": ["b:one", "b:two"],
        "volume_gb": 50,
        "goal": {"min_throughput_gbps": 4},
        **changes,
    }
    path = folder / "problem.json"
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
    return path


def test_a_problem_file_with_destinations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--problem", str(problem(tmp_path)), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["status"] == "optimal"
    assert plan["destinations"] == ["b:one", "b:two"]
    assert [tree["hops"] for tree in plan["trees"]] == [[["a:source", "a:hub"], ["a:hub", "b:one"], ["a:hub", "b:two"]]]
    assert plan["cost_usd"]["egress"] == pytest.approx(50 * 0.03)
    ways = {line["name"]: line for line in plan["compare"]}
    assert ways["direct to each, at once"]["cost_usd"] > 2 * plan["cost_usd"]["total"]
    separate = ways["2 plans, one per destination"]
    assert separate["cost_usd"] > plan["cost_usd"]["total"], "the source's link to the hub is charged twice"


def test_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--problem", str(problem(tmp_path))]) == 0
    out = capsys.readouterr().out
    assert "a:source → b:one, b:two" in out
    assert "proven optimal" in out
    assert "├─" in out
    assert "direct to each, at once" in out


def test_an_infeasible_goal_names_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = problem(tmp_path, goal={"min_throughput_gbps": 400})
    assert main(["plan", "--problem", str(path), "--json"]) == 1
    solution = json.loads(capsys.readouterr().out)
    assert solution["status"] == "infeasible"
    assert solution["nearest"]["trees"]
    assert main(["plan", "--problem", str(path)]) == 1
    assert "out of reach" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"destination": "b:one"}, "name one of the two"),
        ({"destinations": "b:one"}, "not a list"),
        ({"destinations": []}, "not a list"),
        ({"destinations": ["b:one", "b:tow"]}, "did you mean b:two"),
        ({"destinations": ["b:one", 3]}, "not a string"),
        ({"destinations": ["b:one", "b:one"]}, "named twice"),
        ({"destinations": None}, "destination: is missing"),
    ],
)
def test_bad_destinations_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], words: str
) -> None:
    assert main(["plan", "--problem", str(problem(tmp_path, **changes))]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) <= 2


def test_one_destination_in_a_list_is_a_plain_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--problem", str(problem(tmp_path, destinations=["b:one"])), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["destination"] == "b:one"


@pytest.mark.slow
def test_the_packaged_catalog_with_a_proven_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    regions = ["aws:us-east-1", "gcp:europe-west4", "azure:uksouth", "aws:eu-west-1"]
    assert main(["plan", *regions, "--max-cost", "70USD", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["gap"] < 0.02
    direct = next(line for line in plan["compare"] if line["name"].startswith("direct"))
    assert plan["throughput_gbps"] > 2 * direct["throughput_gbps"]


def test_explain_and_frontier_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = problem(tmp_path, vm_limit=1, goal={"max_cost_usd": 3})
    assert main(["plan", "--problem", str(path), "--explain", "--frontier"]) == 0
    out = capsys.readouterr().out
    assert "limits\n    the cost ceiling of $3.00" in out
    assert "one more machine in every region (vm_limit of the problem file): " in out
    assert "10% more money: " in out
    assert "frontier: each line is one set of machines" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_the_plan_is_printed_before_its_frontier_is_traced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    traced, before = MulticastPlan.frontier, []

    def frontier(plan: MulticastPlan) -> TransferFrontier:
        before.append(capsys.readouterr().out)
        return traced(plan)

    monkeypatch.setattr(MulticastPlan, "frontier", frontier)
    path = problem(tmp_path, vm_limit=1, goal={"max_cost_usd": 3})
    assert main(["plan", "--problem", str(path), "--frontier"]) == 0
    (shown,) = before
    assert "one plan, shared links" in shown
    assert capsys.readouterr().out.startswith("\n  frontier: ")


def test_explain_and_frontier_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = problem(tmp_path, vm_limit=1, goal={"max_cost_usd": 3})
    assert main(["plan", "--problem", str(path), "--explain", "--frontier", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    offers = {offer["change"]: offer["plan"] for offer in plan["would_help"]}
    assert offers["10% more money"]["throughput_gbps"] > plan["throughput_gbps"]
    assert offers["10% more money"]["cost_usd"]["total"] <= 3.3 * (1 + 1e-9)
    assert offers["one more machine in every region (vm_limit of the problem file)"]["trees"]
    costs = [end["usd"] for piece in plan["frontier"] for end in (piece["from"], piece["to"])]
    assert costs == sorted(costs)
    assert costs[0] <= plan["cost_usd"]["total"] <= costs[-1]


def test_the_picture_shows_the_trees_and_the_alternatives(tmp_path: Path) -> None:
    assert main(["plan", "--problem", str(problem(tmp_path)), "--plot", str(tmp_path / "trees.svg")]) == 0
    words = [text.text for text in ElementTree.parse(tmp_path / "trees.svg").iter("{http://www.w3.org/2000/svg}text")]
    for mark in ("this plan", "direct to each, at once", "2 plans, one per destination"):
        assert words.count(mark) == 1, mark


def test_a_topology_takes_one_destination(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--problem", str(problem(tmp_path)), "--topology", str(tmp_path / "t.json")]) == 2
    assert "takes one destination" in capsys.readouterr().err
