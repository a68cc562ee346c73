"""Runs cells seed by seed and keeps each result as a line of a file, so that a later run continues."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.acceleration.figures import Cell, cells_of, figures
from benchmarks.acceleration.sphere import sphere
from tradewind.placement.check import placement_violations
from tradewind.placement.place import place
from tradewind.placement.use_cases import Places, make_problem

RTT_FILE = "rtt_gcp18_2022.csv"
CONTINENTS = {
    "asia": ("Hong Kong", "Mumbai", "Singapore", "Taiwan", "Tokyo"),
    "europe": ("Belgium", "Finland", "Frankfurt", "London", "amsterdam"),
    "north-america": ("Iowa", "Los Angeles", "Montreal", "Northern Virginia", "Oregon", "South Carolina"),
}
"""Continents of the 18 regions, which the file does not have. Sao Paulo and Sydney have no source of Fig. 14."""
WALL_MORE_S = 1e6
"""Limit of wall time beyond that of CPU time: none, so that the load of the machine does not change plans [s]."""
ROUNDS_PER_SEED = {"f-fct": 0, "f-cost": 0, "1p": 0, "2p": 1, "2p-rb": 2, "auto": 8}
"""The slower an algorithm is, the later its next seed is due. So a run with a time limit has all seeds of the fast
algorithms, and some of each other one."""


@dataclass(frozen=True)
class Run:
    """The plan of one cell with one seed."""

    figure: str
    series: str
    x: float
    algorithm: str
    seed: int
    acceleration: float
    total_s: float
    direct_s: float
    cost_cents: float
    budget_cents: float
    proxies: int
    paths: tuple[int, int, int]
    """Flows without a proxy, with one, and with two."""
    gap: float | None
    cpu_s: float
    """CPU time of the placement."""

    @property
    def key(self) -> str:
        """The key of the run; see `Cell.key`."""
        return f"{self.figure}/{self.series}/{self.x:g}/{self.algorithm}/{self.seed}"


class InvalidBenchmarkPlan(Exception):
    """The independent check refuses a plan."""


def read_rtt(folder: Path) -> Places:
    """Return the 18 regions with the round trips that CloudPilot measured. Raises FileNotFoundError."""
    rtt_ms: dict[tuple[str, str], float] = {}
    with (folder / RTT_FILE).open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table):
            rtt_ms[row["src"], row["dst"]] = float(row["rtt_ms"])
    names = tuple(sorted({src for src, _ in rtt_ms}))
    continents = {name: continent for continent, inside in CONTINENTS.items() for name in inside}
    return Places(names, np.array([[rtt_ms[src, dst] for dst in names] for src in names]), continents)


def kept_runs(file: Path) -> dict[str, Run]:
    """Return the runs of a file by key. A line that an interrupted run has cut is left out."""
    found: dict[str, Run] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        run = Run(**{**fields, "paths": tuple(fields["paths"])})
        found[run.key] = run
    return found


def run_cells(cells: Sequence[Cell], seeds: int, places: Places, file: Path, minutes: float) -> Mapping[str, Run]:
    """Run what the file does not have yet, until the time is over, and return all runs by key.

    A problem that several figures have in common is solved once. Raises InvalidBenchmarkPlan.
    """
    runs = kept_runs(file)
    same = _same_problems(cells)
    deadline_s = time.monotonic() + minutes * 60
    left = [(cell, seed) for cell, seed in _due(cells, seeds) if cell.key(seed) not in runs]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as kept:
        kept.write("\n" if file.stat().st_size else "")  # Ends a line that an interrupted run has cut.
        for number, (cell, seed) in enumerate(left):
            if time.monotonic() > deadline_s:
                print(f"time is over: {len(left) - number} of {len(left)} runs are left", file=sys.stderr)
                break
            known = next((runs[key] for other in same[cell] if (key := other.key(seed)) in runs), None)
            if known is None:
                run = run_cell(cell, seed, places)
            else:
                run = replace(known, figure=cell.figure, series=cell.series, x=cell.x)
            runs[run.key] = run
            kept.write(json.dumps(asdict(run)) + "\n")
            kept.flush()
    return runs


def _same_problems(cells: Sequence[Cell]) -> Mapping[Cell, list[Cell]]:
    """Return for each cell the cells of all figures that solve the same problems by the same algorithm.

    Small cells of a quick run have the keys of full ones, so they are compared with each other only.
    """
    found: dict[Cell, list[Cell]] = {}
    every = set(cells_of(list(figures().values())))
    for other in every if every.issuperset(cells) else cells:
        found.setdefault(replace(other, figure="", series="", x=0.0), []).append(other)
    return {cell: found[replace(cell, figure="", series="", x=0.0)] for cell in cells}


def _due(cells: Sequence[Cell], seeds: int) -> Iterator[tuple[Cell, int]]:
    """Yield cells and seeds in the order in which they run."""
    every = [(cell, seed) for seed in range(seeds) for cell in cells]
    return iter(sorted(every, key=lambda one: (one[1] + 1) * ROUNDS_PER_SEED[one[0].algorithm]))


def run_cell(cell: Cell, seed: int, places: Places) -> Run:
    """Place one problem and check the plan. Raises InvalidBenchmarkPlan."""
    if cell.regions is not None:
        places = sphere(cell.regions, seed)
    problem = make_problem(cell.case, cell.flows, seed, places, cell.settings)
    began_s = time.process_time()
    plan = place(problem, cell.algorithm, cell.limit_s, WALL_MORE_S)
    cpu_s = time.process_time() - began_s
    if violations := placement_violations(plan, problem):
        raise InvalidBenchmarkPlan(f"{cell.key(seed)}: {violations[0]}")
    lengths = Counter(len(flow.path) for flow in plan.flows)
    return Run(
        cell.figure,
        cell.series,
        cell.x,
        cell.algorithm,
        seed,
        plan.acceleration,
        plan.total_fct_s,
        plan.direct_total_fct_s,
        plan.cost_cents,
        plan.budget_cents,
        len(plan.instances),
        (lengths[0], lengths[1], lengths[2]),
        plan.gap,
        cpu_s,
    )
