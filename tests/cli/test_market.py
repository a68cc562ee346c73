"""`tradewind market`: its tables, its documents and its errors. The page of results shows what it prints."""

import json
import statistics
from pathlib import Path

import pytest

from tradewind.cli.main import main

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "market.md"


@pytest.mark.parametrize(
    "words",
    [
        ["margins"],
        ["simulate", "--seed", "1"],
        ["simulate", "--seed", "1", "--load", "2"],
        ["simulate", "--seeds", "6"],
    ],
    ids=" ".join,
)
def test_the_page_of_results_shows_what_is_printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["market", *words]) == 0
    shown = f"$ tradewind market {' '.join(words)}\n{capsys.readouterr().out}"
    assert shown in RESULTS.read_text(encoding="utf-8")


def test_margins_as_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["market", "margins", "--machine-price", "1USD", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["least_extra_nodes"] == 4
    assert [entry["empty"] for entry in document["margins"]] == [True] * 4 + [False] * 2
    assert document["margins"][5]["usd_per_hour"] == [3.0, pytest.approx(23 / 6)]
    assert [round(entry["ratio"], 3) for entry in document["energy"]] == [1.944, 1.458, 0.833]


def test_a_simulation_as_a_document_is_the_same_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["market", "simulate", "--seed", "9", "--hours", "24", "--tenants", "4", "--json"]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert main(words) == 0
    assert capsys.readouterr().out == first
    document = json.loads(first)
    assert [entry["name"] for entry in document["tariffs"]] == ["fixed", "utilisation", "auction"]
    assert [entry["name"] for entry in document["without_service"]] == ["direct", "e2e", "umr", "own choice"]


def test_several_seeds_have_a_mean_and_a_standard_deviation(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["market", "simulate", "--hours", "24", "--tenants", "4", "--json"]
    assert main([*words, "--seed", "4", "--seeds", "2"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert both["seeds"] == [4, 5]
    revenues = []
    for seed in ("4", "5"):
        assert main([*words, "--seed", seed]) == 0
        revenues.append(json.loads(capsys.readouterr().out)["tariffs"][0]["revenue_usd"])
    assert both["tariffs"][0]["revenue_usd"] == {
        "mean": pytest.approx(statistics.fmean(revenues)),
        "stdev": pytest.approx(statistics.stdev(revenues)),
    }
    assert both["without_service"][-1]["cost_to_own_choice"] == {"mean": 1.0, "stdev": 0.0}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["simulate", "--seeds", "0"], 2, "error: the number of seeds is from 1 to 100"),
        (["simulate", "--extra-nodes", "3"], 1, "error: no price is possible"),
        (["margins", "--seed", "1"], 2, "error: --seed is only for market simulate"),
        (["simulate", "--hours", "0"], 2, "error: a simulation has 1 to"),
        (["simulate", "--load", "nan"], 2, "error: the load is from 0"),
        (["margins", "--extra-nodes", "-1"], 2, "error: the number of extra machines"),
        (["margins", "--machine-price", "1"], 2, "error: --machine-price"),
    ],
)
def test_errors(words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["market", *words]) == code
    assert capsys.readouterr().err.startswith(message)
