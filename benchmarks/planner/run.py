"""The whole planner benchmark: measure, and write one page with its pictures."""

from __future__ import annotations

import datetime
import os
import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.planner.exactness import exactness
from benchmarks.planner.grids import Grids
from benchmarks.planner.layers import layers
from benchmarks.planner.pairs import AllPairs, continents, figure_7, figure_8, plan_pairs
from benchmarks.planner.paper import figure_1, figure_9c, figure_10, table_2, trace_figure_9c
from benchmarks.planner.section import COLUMNS, PICTURE_FOLDER, Section
from benchmarks.planner.several import several
from benchmarks.planner.speed import speed
from benchmarks.tables import machine
from tradewind.catalog.load import load_catalog

PAGE = f"{PICTURE_FOLDER}.md"
PAIRS_FILE = "planner-pairs-{grid}.json"
KEPT_FOLDER = Path("build/benchmarks")


GRID_WORDS = {"january": "January sent", "november": "November received"}


@dataclass(frozen=True)
class Size:
    """The extent of the measurement."""

    all_pairs: Mapping[str, int | None]
    """Maximum number of pairs by grid; ``None`` for all."""
    exactly_pairs: int
    speed_pairs: int
    frontiers: int
    regret_pairs: int
    sets: int | None = None
    """Maximum number of sets of destinations; ``None`` for all."""


FULL = Size({"january": None, "november": None}, exactly_pairs=40, speed_pairs=20, frontiers=8, regret_pairs=20)
QUICK = Size({"january": 20, "november": 40}, exactly_pairs=8, speed_pairs=4, frontiers=2, regret_pairs=4, sets=1)


def run_planner(grid_folder: Path, out: Path, *, quick: bool, pairs_from: Path | None = None) -> None:
    """Measure, print as it goes, and write the page, its pictures and the plans of all pairs into ``out``.

    Args:
        grid_folder: the measured grids.
        out: folder for page and pictures; `docs/concepts` for the page in the documentation.
        quick: measure only a little of everything.
        pairs_from: folder with the plans of all pairs of an earlier run, instead of planning them again.
    """
    grids = Grids(grid_folder)
    if reason := grids.missing():
        print(f"planner: skipped: {reason}")
        return
    load, start_s = os.getloadavg()[0], time.perf_counter()
    size = QUICK if quick else FULL
    every = _all_pairs(grids, size.all_pairs, pairs_from)
    sections = []
    for section in _sections(grids, every, size):
        print(section.text(), flush=True)
        sections.append(section)
    page = _page(sections, load, time.perf_counter() - start_s, quick)
    (out / PICTURE_FOLDER).mkdir(parents=True, exist_ok=True)
    (out / PAGE).write_text(page)
    for section in sections:
        for name, drawn in section.pictures.items():
            (out / PICTURE_FOLDER / name).write_text(drawn)
    print(f"wrote {out / PAGE}")


def _all_pairs(grids: Grids, pairs_max: Mapping[str, int | None], pairs_from: Path | None) -> dict[str, AllPairs]:
    """Return the plans of all pairs by grid. They are also written to a file for `pairs_from` of a later run."""
    every = {}
    for grid in GRID_WORDS:
        name = PAIRS_FILE.format(grid=grid)
        if pairs_from is not None:
            every[grid] = AllPairs.from_json((pairs_from / name).read_text())
            continue
        every[grid] = plan_pairs(grids, grid, pairs_max[grid])
        KEPT_FOLDER.mkdir(parents=True, exist_ok=True)
        (KEPT_FOLDER / name).write_text(every[grid].to_json())
    return every


def _sections(grids: Grids, every: Mapping[str, AllPairs], size: Size) -> Iterator[Section]:
    """Yield the sections in the order of the page."""
    places = load_catalog().places
    yield figure_1(grids, places)
    for figure in (figure_7, figure_8):
        yield figure({GRID_WORDS[grid]: planned for grid, planned in every.items()})
    traced = trace_figure_9c(grids)
    yield figure_9c(traced)
    yield figure_10(grids, continents(every["january"], places))
    yield table_2(grids)
    yield exactness(grids, traced, size.exactly_pairs)
    yield several(grids, size.sets)
    yield speed(grids, every["november"], size.speed_pairs, size.frontiers)
    yield from layers(grids.folder, size.regret_pairs)


def _page(sections: list[Section], load: float, wall_s: float, quick: bool) -> str:
    about = machine()
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    warning = "**Quick mode: too little of everything to quote.** " if quick else ""
    measured = (
        f"{warning}Measured {today} on {about['cores']} cores of {about['cpu']}, Python {about['python']}, in "
        f"{wall_s / 60:.0f} min, at load {load:.1f} before and {os.getloadavg()[0]:.1f} after. Times are CPU-seconds "
        "of one thread. Other work on the machine lengthens them too."
    )
    head = f"""# The planner, measured

`make bench BENCH=planner` writes this page into `build/benchmarks`; with `BENCH="planner --out docs/concepts"` it goes
into the documentation. It plans on two grids of the public clouds that are not part of the repository (`--grid`, by
default `../shared/grid`), with the Skyplane paper's machines and the list prices of 2022.

{textwrap.fill(measured, COLUMNS)}

**Two grids.** *January 2022 as sent* is what the paper planned on; *November 2022 as received* is the grid
that matters for planning, and on which speed is measured. Sent counts the bytes that a sender passed to its kernel, on
average 1.34× those that arrived. In November Google's regions used private addresses among themselves. Their links then
exceed the egress cap of 7 Gbit/s that this page assumes, so no overlay between them is faster.
"""
    return "\n".join([head, *(section.text() for section in sections)])
