"""Benchmarks report a command that fails, and a tool that is missing."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.acceleration import run as benchmark
from benchmarks.acceleration.__main__ import main as acceleration
from benchmarks.acceleration.figures import cells_of, figures
from benchmarks.acceleration.page import page_of
from benchmarks.acceleration.run import kept_runs, read_rtt, run_cell, run_cells
from benchmarks.acceleration.sphere import sphere
from benchmarks.clients import at_once
from benchmarks.measure import Cost, Spread, run
from benchmarks.peers import Skipped
from benchmarks.taas import page as taas_page
from benchmarks.taas import run as taas
from benchmarks.taas.transfers import Samples
from benchmarks.taas.world import network, typed_network
from benchmarks.tables import Cell, Entry, markdown
from tradewind.fleet.sky_catalog import data_per_wire
from tradewind.sky.file import MTU_BYTES

ENVIRONMENT = dict(os.environ)


def python(script: str) -> list[str | Path]:
    return [sys.executable, "-c", script]


def test_a_command_that_uses_too_much_memory_is_ended() -> None:
    hungry = python("import time; held = b'x' * (300 << 20); time.sleep(60)")
    cost = run(hungry, ENVIRONMENT, timeout_s=50, rss_bytes_max=200 << 20)
    assert cost.failure == "more than 0.2 GiB of memory"
    assert cost.wall_s < 50


def test_a_command_within_its_memory_is_not() -> None:
    assert run(python("pass"), ENVIRONMENT, timeout_s=50, rss_bytes_max=200 << 20).failure is None


def test_commands_at_once_all_run_and_fail_together(tmp_path: Path) -> None:
    touched = [tmp_path / f"it's {name}" for name in "ab"]
    good = [python(f"open({str(path)!r}, 'w')") for path in touched]
    both = at_once([*good])
    assert not isinstance(both, Skipped)
    assert run(both, ENVIRONMENT, timeout_s=50).failure is None
    assert all(path.exists() for path in touched)
    one_fails = at_once([python("raise SystemExit(3)"), *good])
    assert not isinstance(one_fails, Skipped)
    assert "exit 1" in str(run(one_fails, ENVIRONMENT, timeout_s=50).failure)


def test_a_skipped_tool_is_a_row_with_the_reason() -> None:
    assert at_once([Skipped("no go"), ["true"]]) == Skipped("no go")
    entries = Entry("tradewind", Spread((Cost(1, 1, 1),))), Entry("mc", Spread((Cost(0, 0, 0, "skipped: no go"),)))
    table = markdown([Cell("up", 1, 1, entries)], "")
    assert "| mc | skipped: no go |" in table
    assert "Ours to the best" not in table


def test_unknown_cells_are_refused_before_anything_is_installed() -> None:
    words = [sys.executable, "-m", "benchmarks", "local", "--cells", "small", "huge"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "invalid choice: 'huge'" in ended.stderr and "'listing'" in ended.stderr


def test_the_acceleration_benchmark_continues_where_it_stopped(tmp_path: Path) -> None:
    places = read_rtt(write_round_trips(tmp_path))
    chosen = [figures(quick=True)[name] for name in ("fig7", "fig14")]
    cells, file = list(cells_of(chosen)), tmp_path / "out" / "runs.jsonl"
    run_cells(cells, 1, places, file, minutes=1)
    kept = file.read_text()
    file.write_text(kept + '{"figure": "fig7", "ser')
    runs = run_cells(cells, 2, places, file, minutes=1)
    assert file.read_text().startswith(kept) and kept_runs(file) == runs
    assert len(kept.splitlines()) == len(cells) and len(runs) == 2 * len(cells)
    page = page_of(chosen, list(runs.values()), quick=True)
    page.write(tmp_path / "page")
    written = (tmp_path / "page" / "acceleration.md").read_text()
    assert "## Fig. 7: number of flows" in written and "f-fct 2; f-cost 2; 1p 2;" in written
    plots = sorted(path.name for path in (tmp_path / "page").glob("*.svg"))
    assert plots == ["acceleration-fig14.svg", "acceleration-fig7.svg"]


def test_a_problem_of_several_figures_is_solved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = read_rtt(write_round_trips(tmp_path))
    chosen = [figures()[name] for name in ("fig12", "fig13")]
    at_both = [cell for cell in cells_of(chosen) if cell.settings.last_mile_mbps == 500 and cell.algorithm == "f-fct"]
    solved: list[benchmark.Run] = []

    def counted(*arguments: Any) -> benchmark.Run:
        solved.append(run_cell(*arguments))
        return solved[-1]

    monkeypatch.setattr(benchmark, "run_cell", counted)
    runs = run_cells(at_both, 1, places, tmp_path / "runs.jsonl", minutes=1)
    assert len(runs) == len(at_both) == 8 and len(solved) == 6
    small, large = "instances of 2 Gbit/s/500", "last mile of 500 Mbit/s/2000"
    assert runs[f"fig12/{small}/f-fct/0"].total_s == runs[f"fig13/{large}/f-fct/0"].total_s


def test_the_acceleration_benchmark_runs_chosen_algorithms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["fig14", "large", "--algorithms", "1p", "auto", "--quick", "--seeds", "1", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["benchmarks.acceleration", *words, "--grid", str(write_round_trips(tmp_path))])
    assert acceleration() == 0
    runs = list(kept_runs(tmp_path / "out" / "quick-runs.jsonl").values())
    assert {(run.figure, run.algorithm) for run in runs} == {("fig14", "1p"), ("large", "auto")}
    assert "Table: `auto`; least, median and most." in (tmp_path / "out" / "acceleration.md").read_text()


def test_random_regions_have_round_trips_by_distance() -> None:
    places = sphere(20, seed=1)
    assert (places.rtt_ms == sphere(20, seed=1).rtt_ms).all() and (places.rtt_ms != sphere(20, seed=2).rtt_ms).any()
    assert (places.rtt_ms.diagonal() == 1).all()
    # Half the circumference of the earth is 20,015 km; 1.5 times this, both ways, at 200 km/ms.
    assert 200 < places.rtt_ms.max() < 1 + 301


def write_round_trips(folder: Path) -> Path:
    """Write a table of made-up round trips for some of CloudPilot's regions, one of each continent and Tokyo."""
    at = {"Tokyo": 0, "Singapore": 60, "London": 230, "Iowa": 130, "Sao Paulo": 270}
    rows = [f"{src},{dst},{abs(at[src] - at[dst]) or 1}" for src in at for dst in at]
    (folder / "rtt_gcp18_2022.csv").write_text("\n".join(["src,dst,rtt_ms", *rows]) + "\n")
    return folder


def test_the_acceleration_benchmark_is_skipped_without_its_round_trips(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.acceleration", "--quick", "--grid", str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0
    assert "skipped: rtt_gcp18_2022.csv is not in the grid folder" in ended.stderr


def test_the_routes_of_the_service_benchmark_have_links() -> None:
    linked = set()
    for made in (network(), typed_network()):
        names = [machine.name for machine in made.machines]
        linked |= {(names[path.src], names[path.dst]) for path in made.paths}
    for cell in taas.cells():
        for routes in cell.applications:
            assert all((f"{a}-1", f"{b}-1") in linked for route in routes for a, b in pairwise(route))
            assert len({(route[0], route[-1]) for route in routes}) == 1


def test_the_service_benchmark_counts_the_steady_part_alone() -> None:
    arriving = Samples([at / 5 for at in range(100)], [at * 200_000 // 5 for at in range(100)])
    rates = arriving.windows_mbps(round(arriving.bytes[-1] * data_per_wire(MTU_BYTES)))
    assert 10 < len(rates) < 20
    assert all(1.4 < rate < 1.6 for rate in rates)


def test_the_service_benchmark_does_not_count_what_tcp_sent_twice() -> None:
    arriving = Samples([at / 5 for at in range(100)], [at * 200_000 // 5 for at in range(100)])
    rates = arriving.windows_mbps(arriving.bytes[-1] // 2)
    assert all(0.75 < rate < 0.85 for rate in rates)


def test_the_page_of_the_service_benchmark_prices_the_measured_times() -> None:
    seconds = {taas.END_TO_END: 30.0, taas.MULTI_ROUTE: 10.0, taas.ASYMMETRIC: 12.0, taas.SYMMETRIC: 12.0}
    rows = [
        {
            "key": cell.key(0),
            "figure": cell.figure,
            "option": cell.option,
            "x": cell.x,
            "elapsed_s": [seconds.get(cell.option, 10.0)] * len(cell.applications),
            "windows_mbps": [[1.0, 2.0]] * len(cell.applications),
        }
        for cell in taas.cells()
    ]
    written = taas_page.page_of(rows)
    price = "$0.00100 to $0.00128 | $0.09100 to $0.09128"
    assert f"| service, asymmetric | 3.00 | 2.50 | 1.20 | 4 | 3.00 to 3.83 | {price} | 1.94 |" in written.text
    assert f"| service, symmetric | 3.00 | 2.50 | 1.20 | 4 | 3.00 to 3.83 | {price} | 1.46 |" in written.text
    assert "| multi-route | 100% | 50% | 1.50 | +0% |" in written.text
    assert "| service, asymmetric | any | 100% | 1.50 | +0% |" in written.text
    assert "| xlarge | small | 1.50 | +0% | 47% |" in written.text
    assert "| as many nodes as applications | 1.50 (+0%) | 1.50 (+0%) | 1.50 (+0%) |" in written.text
    assert set(written.plots) == {"taas-fig8-site.svg", *(f"taas-fig{number}.svg" for number in range(4, 13))}


def test_the_page_of_the_service_benchmark_states_the_spread_of_the_rounds() -> None:
    point = {"figure": "fig7", "option": taas.MULTI_ROUTE, "x": 0, "elapsed_s": [9.0]}
    rates = ([2.0, 4.0], [3.0, 5.0], [4.0, 6.0])
    rows = [{**point, "key": f"fig7/{number}", "windows_mbps": [list(pair)]} for number, pair in enumerate(rates)]
    assert "| multi-route | 4.00 ± 1.00 | +0% | +0% | 37% ± 10 |" in taas_page.page_of(rows).text
