"""``python -m benchmarks.taas [FIGURE…]``: figures of "Transfer as a Service" in the emulated WAN, which needs root."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.taas import page
from benchmarks.taas.run import FIGURES, measure
from testbed.sky import unavailable

ROUNDS = 3
"""Repetitions of each measurement."""
ROWS_FILE = "rows.jsonl"
OUT = Path(tempfile.gettempdir()) / "tradewind-taas"


def main() -> int:
    """Measure the given figures, by default all, and write the page and its plots."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.taas", description='Measure the figures of "Transfer as a Service".'
    )
    parser.add_argument("figures", nargs="*", metavar="|".join(FIGURES), help="figures (default: all)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"rounds (default {ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="one short transfer, to check that the benchmark works")
    parser.add_argument("--minutes", type=float, default=600.0, metavar="N", help="stop after this time (default 600)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the rows; a run continues there ({OUT})")
    parser.add_argument("--page", type=Path, help="folder for taas.md and its plots (default: that of --out)")
    arguments = parser.parse_args()
    chosen = arguments.figures or list(FIGURES)
    if unknown := [name for name in chosen if name not in FIGURES]:
        parser.error(f"no such figure: {', '.join(unknown)}")
    if reason := unavailable():
        print(f"skipped: {reason}", file=sys.stderr)
        return 0
    file = arguments.out / (f"quick-{ROWS_FILE}" if arguments.quick else ROWS_FILE)
    rounds = 1 if arguments.quick else arguments.rounds
    rows = measure(chosen, file, rounds=rounds, minutes=arguments.minutes, quick=arguments.quick)
    written = page.page_of([row for row in rows if row["figure"] in chosen])
    page.write(written, arguments.page or arguments.out)
    print(written.text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
