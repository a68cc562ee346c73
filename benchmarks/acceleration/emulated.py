"""Runs the figures of the emulated WAN, and keeps each result as a line of a file, so a later run continues."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.acceleration.fct import EXPERIMENTS, WAYS, measure_experiments
from benchmarks.acceleration.pools import QUICK as QUICK_POOLS
from benchmarks.acceleration.pools import Extent, measure_pools
from benchmarks.acceleration.rates import (
    CLOUDS_FILE,
    FIGURE_3,
    FIGURE_4,
    QUICK,
    TABLE_1,
    TUPLES,
    Timing,
    clouds_rtt,
    measure_rates,
    places_rtt,
    sampled_tuples,
)
from benchmarks.acceleration.run import read_rtt
from benchmarks.measure import load
from testbed.sky import unavailable

POOLS = "pools"
"""Not of the paper: short flows, with and without connections that are kept ready."""
FIGURES = ("fig3", "fig4", "fig15", POOLS)
QUICK_SIZE = 0.02
"""Share of the full size of a flow."""


def reason_to_skip(grid: Path, figure: str) -> str | None:
    """Return why a figure cannot be measured here, or None."""
    if figure == "fig3" and not (grid / CLOUDS_FILE).is_file():
        return f"{CLOUDS_FILE} is not in the grid folder (--grid DIR)"
    return unavailable()


def kept_rows(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, without a line that an interrupted run has cut."""
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def measure(
    chosen: Sequence[str], grid: Path, file: Path, *, rounds: int, minutes: float, quick: bool
) -> list[dict[str, Any]]:
    """Measure what the file does not have yet, until the time is over, and return its valid rows."""
    done = {row["key"] for row in kept_rows(file) if "invalid" not in row}
    deadline_s = time.monotonic() + minutes * 60
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as kept:
        kept.write("\n" if file.stat().st_size else "")  # Ends a line that an interrupted run has cut.
        for row in _rows(chosen, grid, done, rounds, quick):
            if "invalid" in row:
                print(f"invalid: {row['key']}: {row['invalid']}", file=sys.stderr)
            kept.write(json.dumps({**row, "load": load()}) + "\n")
            kept.flush()
            if time.monotonic() > deadline_s:
                print("time is over: a later run continues", file=sys.stderr)
                break
    return [row for row in kept_rows(file) if "invalid" not in row]


def _rows(chosen: Sequence[str], grid: Path, done: set[str], rounds: int, quick: bool) -> Iterator[Mapping[str, Any]]:
    timing = QUICK if quick else Timing()
    for round_ in range(rounds):
        for figure in chosen:
            if reason := reason_to_skip(grid, figure):
                print(f"skipped: {figure}: {reason}", file=sys.stderr)
            elif figure == "fig3":
                tuples = TABLE_1[3:] if quick else TABLE_1
                ways = FIGURE_3[:3] if quick else FIGURE_3
                yield from measure_rates(figure, tuples, ways, clouds_rtt(grid), timing, done, round_)
            elif figure == "fig4":
                places = read_rtt(grid)
                sampled = sampled_tuples(places, 2 if quick else TUPLES)
                yield from measure_rates(figure, sampled, FIGURE_4, places_rtt(places), timing, done, round_)
            elif figure == POOLS:
                yield from measure_pools(QUICK_POOLS if quick else Extent(), done, round_)
            else:
                experiments, plans = (EXPERIMENTS[:1], WAYS[1:2]) if quick else (EXPERIMENTS, WAYS)
                size = QUICK_SIZE if quick else 1.0
                yield from measure_experiments(experiments, plans, read_rtt(grid), done, round_, size)
