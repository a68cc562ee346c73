"""``python -m benchmarks.acceleration [FIGURE…]``: figures of the CloudPilot paper.

Figs. 7 to 14 are simulated. Figs. 3, 4 and 15, and `pools`, are measured in the emulated WAN, which needs root. `pools`
and `large` are not of the paper; `large` runs only if it is named.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.acceleration import emulated
from benchmarks.acceleration.emulated_page import sections
from benchmarks.acceleration.figures import ALL, LARGE, cells_of, figures
from benchmarks.acceleration.page import Page, page_of
from benchmarks.acceleration.run import RTT_FILE, InvalidBenchmarkPlan, read_rtt, run_cells
from benchmarks.planner.grids import GRID_FOLDER

SEEDS = 30
"""As in the paper."""
QUICK_SEEDS = 2
ROUNDS = 3
"""Repetitions of each measurement."""
RUNS_FILE, ROWS_FILE = "runs.jsonl", "emulated.jsonl"
OUT = Path(tempfile.gettempdir()) / "tradewind-acceleration"


def main() -> int:
    """Run the given figures, by default all, and write the page and its plots."""
    known = [*figures(), *emulated.FIGURES]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.acceleration",
        description="Simulate and measure the figures of the CloudPilot paper.",
    )
    parser.add_argument("figures", nargs="*", metavar="|".join(known), help=f"figures (default: all but {LARGE})")
    parser.add_argument("--seeds", type=int, metavar="N", help=f"problems for each point (default {SEEDS})")
    parser.add_argument("--algorithms", nargs="+", choices=ALL, default=ALL, help="run only these (default: all)")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rounds of each measurement (default {ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="few small problems, to check that the benchmark works")
    parser.add_argument("--minutes", type=float, default=600.0, metavar="N", help="stop after this time (default 600)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the runs; a run continues there ({OUT})")
    parser.add_argument("--page", type=Path, help="folder for acceleration.md and its plots (default: that of --out)")
    parser.add_argument("--grid", type=Path, default=GRID_FOLDER, help="folder of the round trips (../shared/grid)")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.figures if name not in known]:
        parser.error(f"no such figure: {', '.join(unknown)}")
    if not (arguments.grid / RTT_FILE).is_file():
        print(f"skipped: {RTT_FILE} is not in the grid folder (--grid DIR)", file=sys.stderr)
        return 0
    chosen = arguments.figures or [name for name in known if name != LARGE]
    simulated = [figure for name, figure in figures(arguments.quick).items() if name in chosen]
    measured = [name for name in emulated.FIGURES if name in chosen]
    page = Page("")
    if simulated:
        seeds = arguments.seeds or (QUICK_SEEDS if arguments.quick else SEEDS)
        file = _file(arguments, RUNS_FILE)
        try:
            cells = [cell for cell in cells_of(simulated) if cell.algorithm in arguments.algorithms]
            runs = run_cells(cells, seeds, read_rtt(arguments.grid), file, arguments.minutes)
        except InvalidBenchmarkPlan as error:
            print(f"error: a plan is wrong: {error}", file=sys.stderr)
            return 1
        page = page_of(simulated, list(runs.values()), quick=arguments.quick)
    if measured:
        rows = emulated.measure(
            measured,
            arguments.grid,
            _file(arguments, ROWS_FILE),
            rounds=arguments.rounds or (1 if arguments.quick else ROUNDS),
            minutes=arguments.minutes,
            quick=arguments.quick,
        )
        more = sections([row for row in rows if row["figure"] in measured], quick=arguments.quick)
        page = Page("\n".join(text for text in (page.text, more.text) if text), {**page.plots, **more.plots})
    page.write(arguments.page or arguments.out)
    print(page.text)
    return 0


def _file(arguments: argparse.Namespace, name: str) -> Path:
    out: Path = arguments.out
    return out / (f"quick-{name}" if arguments.quick else name)


if __name__ == "__main__":
    sys.exit(main())
