"""Pictures of the frontier of a placement."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.placement.problems import document, problem
from tradewind.cli.main import main
from tradewind.engine.engine import Engine
from tradewind.errors import UsageError
from tradewind.model.records import replace
from tradewind.placement.place import place
from tradewind.placement.plan import PlacementPlan
from tradewind.render.placement_chart import placement_picture

SVG = "{http://www.w3.org/2000/svg}"


def lines_of(svg: str) -> list[list[tuple[float, float]]]:
    """Return the corners of the lines of found totals and bounds."""
    paths = ElementTree.fromstring(svg).iter(f"{SVG}path")
    drawn = [path.get("d", "") for path in paths if path.get("stroke-linejoin")]
    return [[(float(x), float(y)) for x, y in re.findall(r"([0-9.]+) ([0-9.]+)", line)] for line in drawn]


def plans(algorithm: str) -> list[PlacementPlan]:
    """Return plans of one problem for rising budgets."""
    made = problem(3, flows=5, regions=4)
    return [place(replace(made, budget_cents=cents), algorithm) for cents in (0.0, 60.0, 120.0, 400.0)]


def test_the_total_falls_in_steps_and_stays_above_the_bound() -> None:
    of_budgets = plans("exact")
    bound, found = lines_of(placement_picture(of_budgets[1], of_budgets).svg)
    for line in (bound, found):
        assert [x for x, _ in line] == sorted(x for x, _ in line)
        assert [y for _, y in line] == sorted(y for _, y in line), "y grows downwards, so totals fall"
        assert all(a[0] == b[0] or a[1] == b[1] for a, b in itertools.pairwise(line))
    assert found[0][1] < found[-1][1]


def test_an_algorithm_that_proves_nothing_has_no_bound() -> None:
    of_budgets = plans("f-fct")
    svg = placement_picture(of_budgets[1], of_budgets).svg
    assert len(lines_of(svg)) == 1 and "proven" not in svg


def test_the_command_writes_the_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, picture = tmp_path / "problem.json", tmp_path / "frontier.svg"
    path.write_text(json.dumps(document(2, flows=3, regions=3, budget_cents=60)))
    assert main(["accelerate", "plan", "--problem", str(path), "--plot", str(picture)]) == 0
    said = capsys.readouterr()
    assert "budget      all flows together" in said.out
    assert said.err == f"plot written to {picture}\n"
    words = [text.text for text in ElementTree.parse(picture).iter(f"{SVG}text")]
    assert words[0] == "3 flows by auto: completion time for each budget"
    assert "proven: no placement is faster" in words


def test_a_plot_of_no_flows_and_no_money_is_drawn(tmp_path: Path) -> None:
    path, picture = tmp_path / "problem.json", tmp_path / "frontier.svg"
    path.write_text(json.dumps({**document(2, flows=1, regions=2, budget_cents=0), "flows": []}))
    assert main(["accelerate", "plan", "--problem", str(path), "--plot", str(picture)]) == 0
    ElementTree.parse(picture)


def test_wrong_names_and_missing_frontiers_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(document(2, flows=2, regions=2)))
    assert main(["accelerate", "plan", "--problem", str(path), "--plot", "frontier.txt"]) == 2
    assert "a plot is an SVG or PNG file" in capsys.readouterr().err
    with Engine(state_dir=str(tmp_path / "state")) as engine, pytest.raises(UsageError, match="no frontier to draw"):
        engine.place(path).plot()
