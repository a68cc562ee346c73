"""``python -m benchmarks SUITE… [--quick]``: measure, print Markdown, and write it to a folder."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.chain import run_chain
from benchmarks.local import GROUPS, run_local
from benchmarks.measure import load
from benchmarks.relay import plot_of_cpu, run_relay
from benchmarks.scale import ScaleError, run_scale
from benchmarks.splice import run_splice
from benchmarks.tables import as_json, machine, markdown
from testbed.drive import MissingBinary
from testbed.servers import InstallError, ServerError

LOCAL, CHAIN, SCALE, SPLICE, RELAY, PLANNER = SUITES = ("local", "chain", "scale", "splice", "relay", "planner")


def main() -> int:
    """Run the given suites, by default all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure tradewind and comparable programs."
    )
    parser.add_argument("suites", nargs="*", metavar="|".join(SUITES), help="suites to run (default: all)")
    parser.add_argument("--quick", action="store_true", help="few small runs, to check that the benchmark works")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), help="folder for the results")
    parser.add_argument(
        "--cells", nargs="+", choices=GROUPS, default=GROUPS, help="local: groups of cells to measure (default: all)"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="local: runs of each command (default: 3, quick: 2)")
    parser.add_argument("--objects", type=int, metavar="N", help="scale: number of objects (default: 10 million)")
    parser.add_argument("--grid", type=Path, help="planner: folder of the measured grids (default: ../shared/grid)")
    parser.add_argument("--pairs-from", type=Path, metavar="DIR", help="planner: use the pairs of an earlier run")
    arguments = parser.parse_args()
    suites = arguments.suites or SUITES
    if unknown := [name for name in suites if name not in SUITES]:
        parser.error(f"no such suite: {', '.join(unknown)}")
    try:
        for name in suites:
            if name == PLANNER:
                _plan(arguments)
            elif name == SCALE:
                _scale(arguments)
            elif name == SPLICE:
                _moved(name, run_splice, arguments)
            elif name == RELAY:
                figures = _moved(name, run_relay, arguments)
                (arguments.out / f"{name}.svg").write_text(plot_of_cpu(figures["rows"]))
            else:
                _measure(name, arguments)
    except (InstallError, MissingBinary, ScaleError, ServerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _plan(arguments: argparse.Namespace) -> None:
    from benchmarks.planner.grids import GRID_FOLDER  # It loads the solver, which other suites do not need.
    from benchmarks.planner.run import run_planner

    folder = arguments.grid or GRID_FOLDER
    run_planner(folder, arguments.out, quick=arguments.quick, pairs_from=arguments.pairs_from)


def _scale(arguments: argparse.Namespace) -> None:
    before, started = load(), _now()
    tables, figures, plot = run_scale(arguments.quick, arguments.objects)
    about = _about(SCALE, arguments.quick, before, started)
    text = f"{_header(about)}\n\n{tables}"
    print(text)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "scale.md").write_text(text)
    (arguments.out / "scale.json").write_text(json.dumps({"about": about, **figures}, indent=1) + "\n")
    (arguments.out / "scale.svg").write_text(plot)


def _moved(
    name: str, measure: Callable[[bool], tuple[str, dict[str, Any]]], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Measure, write the tables and figures, and return the figures."""
    before, started = load(), _now()
    table, figures = measure(arguments.quick)
    about = _about(name, arguments.quick, before, started)
    text = f"{_header(about)}\n\n{table}"
    print(text)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{name}.md").write_text(text)
    (arguments.out / f"{name}.json").write_text(json.dumps({"about": about, **figures}, indent=1) + "\n")
    return figures


def _measure(name: str, arguments: argparse.Namespace) -> None:
    before, started = load(), _now()
    quick: bool = arguments.quick
    cells = run_local(quick, arguments.cells, arguments.rounds) if name == LOCAL else run_chain(quick)
    about = _about(name, quick, before, started)
    text = markdown(cells, _header(about))
    print(text)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{name}.md").write_text(text)
    (arguments.out / f"{name}.json").write_text(as_json(cells, about))


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _about(name: str, quick: bool, load_before: str, started: datetime.datetime) -> dict[str, Any]:
    return {
        **machine(),
        "suite": name,
        "quick": quick,
        "date": started.date().isoformat(),
        "load_before": load_before,
        "load_after": load(),
    }


def _header(about: dict[str, Any]) -> str:
    quickness = " Quick mode: too short to quote." if about["quick"] else ""
    return (
        f"## {about['suite']}\n\n{about['date']}, {about['cores']} cores of {about['cpu']}, Linux {about['kernel']}; "
        f"load {about['load_before']} before, {about['load_after']} after.{quickness}"
    )


if __name__ == "__main__":
    sys.exit(main())
