"""``python -m benchmarks.acceleration [FIGURE…]``: simulate the figures of the CloudPilot paper."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.acceleration.figures import cells_of, figures
from benchmarks.acceleration.page import page_of
from benchmarks.acceleration.run import RTT_FILE, InvalidBenchmarkPlan, read_rtt, run_cells
from benchmarks.planner.grids import GRID_FOLDER

SEEDS = 30
"""As in the paper."""
QUICK_SEEDS = 2
RUNS_FILE = "runs.jsonl"
OUT = Path(tempfile.gettempdir()) / "tradewind-acceleration"


def main() -> int:
    """Run the given figures, by default all, and write the page and its plots."""
    known = figures()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.acceleration", description="Simulate the figures of the CloudPilot paper."
    )
    parser.add_argument("figures", nargs="*", metavar="|".join(known), help="figures to simulate (default: all)")
    parser.add_argument("--seeds", type=int, metavar="N", help=f"problems for each point (default {SEEDS})")
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
    chosen = [figures(arguments.quick)[name] for name in arguments.figures or known]
    seeds = arguments.seeds or (QUICK_SEEDS if arguments.quick else SEEDS)
    file = arguments.out / (f"quick-{RUNS_FILE}" if arguments.quick else RUNS_FILE)
    try:
        runs = run_cells(list(cells_of(chosen)), seeds, read_rtt(arguments.grid), file, arguments.minutes)
    except InvalidBenchmarkPlan as error:
        print(f"error: a plan is wrong: {error}", file=sys.stderr)
        return 1
    page = page_of(chosen, list(runs.values()), quick=arguments.quick)
    page.write(arguments.page or arguments.out)
    print(page.text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
