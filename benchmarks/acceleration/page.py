"""The page of the benchmark: tables with mean and standard deviation beside the paper's words, and plots."""

from __future__ import annotations

import datetime
import statistics
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.acceleration.figures import ALL, AUTO_LIMIT_S, LARGE, Figure
from benchmarks.acceleration.run import Run
from benchmarks.plots import Axis, Frame, LinePlot, distributions, line_plots
from benchmarks.tables import machine

COLUMNS = 120
PAGE_FILE = "acceleration.md"
PAPER_S = {"f-fct": "under 1", "f-cost": "under 1", "1p": "1.6", "2p": "6.5", "2p-rb": "131"}
"""Run times for 60 flows in the paper (section 7.2, Run-time) [s]."""
RUN_TIME_FLOWS = 60
USUAL_SEEDS = 30
BOXED = ("fig9", "fig10", "fig14", LARGE)
"""Figures of a few points, drawn as boxes."""
GAPS_OF = ("fig14", LARGE)
"""Figures with a table of what `auto` proves."""
AIM_GAP, AIM_S = 0.08, 5.0
"""What `auto` should prove, and within which CPU time."""
LOGARITHMIC = ("fig11", "fig12", "fig13")


@dataclass(frozen=True)
class Metric:
    """One column of figures of a run."""

    title: str
    of: Callable[[Run], float]
    digits: int


METRICS = {
    "acceleration": Metric("acceleration", lambda run: run.acceleration, 2),
    "total_s": Metric("total completion time [s]", lambda run: run.total_s, 0),
    "proxies": Metric("instances in use", lambda run: run.proxies, 1),
}


@dataclass(frozen=True)
class Page:
    """The page and its plots by file name."""

    text: str
    plots: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write both into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PAGE_FILE).write_text(self.text, encoding="utf-8")
        for name, plot in self.plots.items():
            (folder / name).write_text(plot, encoding="utf-8")


@dataclass(frozen=True)
class Results:
    """The runs of one figure."""

    figure: Figure
    runs: Sequence[Run]

    @property
    def algorithms(self) -> list[str]:
        """Algorithms with at least one run, in a fixed order."""
        return [name for name in ALL if any(run.algorithm == name for run in self.runs)]

    @property
    def series(self) -> list[str]:
        """Series in the order of the cells."""
        return list(dict.fromkeys(cell.series for cell in self.figure.cells))

    def xs(self, series: str) -> list[float]:
        """Return the positions of a series on the x axis."""
        return sorted({run.x for run in self.runs if run.series == series})

    def at(self, series: str, x: float, algorithm: str) -> list[Run]:
        """Return the runs of one point."""
        return [run for run in self.runs if (run.series, run.x, run.algorithm) == (series, x, algorithm)]


def page_of(chosen: Sequence[Figure], runs: Sequence[Run], *, quick: bool) -> Page:
    """Return the page of the chosen figures."""
    known = {cell.key(0).rsplit("/", 1)[0] for figure in chosen for cell in figure.cells}
    every = [
        Results(figure, [run for run in runs if run.figure == figure.name and run.key.rsplit("/", 1)[0] in known])
        for figure in chosen
    ]
    every = [results for results in every if results.runs]
    plots = {f"acceleration-{results.figure.name}.svg": _plot(results) for results in every}
    parts = [_head(every, quick), *(_section(results) for results in every), *_run_times(every)]
    return Page("\n".join(parts), plots)


def _head(every: Sequence[Results], quick: bool) -> str:
    about = machine()
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    count = sum(len(results.runs) for results in every)
    warning = "**Quick mode: too little of everything to quote.** " if quick else ""
    seeds = "; ".join(f"{name} {_range(counts)}" for name, counts in _seeds(every).items())
    measured = (
        f"{warning}{today}, {about['cores']} cores of {about['cpu']}, Python {about['python']}: {count:,} runs, each "
        f"checked by `placement/check.py`. Seeds per point: {seeds}; the paper has 30. Tables have the mean ± the "
        f"standard deviation over the seeds, and (n) unless there are {USUAL_SEEDS}. An algorithm with fewer seeds saw "
        "other problems on average, so small differences to its neighbours mean nothing."
    )
    same = (
        "Round trips are those of 18 regions of Google Cloud that CloudPilot measured (`../shared/grid`). Sizes, "
        "prices and capacities are those of section 7.1. The paper does not say how far a host is from other regions: "
        "here it reaches them through its own region, less than 40 ms away. `auto` is Tradewind's default; the others "
        "are the paper's algorithms, with its gaps closed. `auto` has its default limit of CPU time in Fig. 14, and "
        f"{AUTO_LIMIT_S:g} s in Figs. 7 to 13. The limit of wall time is lifted, so plans do not depend on the load of "
        "the machine. The paper prints its figures as plots without numbers, so most of the comparison is with its "
        "words."
    )
    head = ["# Measured: split-proxy placement", "", "Output of `python -m benchmarks.acceleration`."]
    return "\n".join([*head, "", wrapped(measured), "", wrapped(same), ""])


def _seeds(every: Sequence[Results]) -> Mapping[str, list[int]]:
    """Return the numbers of seeds of the points, by algorithm."""
    found: dict[str, list[int]] = {}
    for name in ALL:
        for results in every:
            points = {(run.series, run.x) for run in results.runs if run.algorithm == name}
            found.setdefault(name, []).extend(len(results.at(series, x, name)) for series, x in points)
    return {name: counts for name, counts in found.items() if counts}


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"


def wrapped(text: str) -> str:
    """Return a paragraph of the page."""
    return textwrap.fill(text, COLUMNS, break_long_words=False, break_on_hyphens=False)


def _section(results: Results) -> str:
    figure = results.figure
    lines = [f"## {figure.title}", "", wrapped(f"Paper: {figure.paper}"), ""]
    for name in figure.metrics:
        lines += _paths_table(results) if name == "paths" else _table(results, METRICS[name])
    if figure.name in GAPS_OF:
        lines += _auto_table(results)
    lines += [f"![acceleration by algorithm: {figure.title}](acceleration-{figure.name}.svg)", ""]
    return "\n".join(lines)


def _rows(results: Results) -> Iterator[tuple[str, str, float]]:
    """Yield the label, the series and the position of each row."""
    for series in results.series:
        for x in results.xs(series):
            if results.figure.name == "fig14" or (series and len(results.xs(series)) == 1):
                yield series, series, x
            else:
                yield f"{series}, {x:g}" if series else f"{x:g}", series, x


def _table(results: Results, metric: Metric) -> list[str]:
    names = results.algorithms
    lines = [f"Table: {metric.title}.", "", f"| {results.figure.x_label} | {' | '.join(names)} |"]
    lines.append("|---|" + "---:|" * len(names))
    for label, series, x in _rows(results):
        cells = [_cell([metric.of(run) for run in results.at(series, x, name)], metric.digits) for name in names]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return [*lines, ""]


def _cell(values: Sequence[float], digits: int) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):,.{digits}f}" if len(values) > 1 else ""
    count = f" ({len(values)})" if len(values) != USUAL_SEEDS else ""
    return f"{statistics.fmean(values):,.{digits}f}{spread}{count}"


def _paths_table(results: Results) -> list[str]:
    """Return the shares of flows without a proxy, with one and with two, at the last position of each series."""
    names = results.algorithms
    lines = ["Table: flows without a proxy / with one / with two [%].", ""]
    lines += [f"| {results.figure.x_label} | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    for label, series, x in _rows(results):
        cells = []
        for name in names:
            counts = [run.paths for run in results.at(series, x, name)]
            flows = sum(map(sum, counts))
            cells.append(
                " / ".join(f"{100 * sum(run[n] for run in counts) / flows:.0f}" for n in range(3)) if flows else ""
            )
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return [*lines, ""]


def _auto_table(results: Results) -> list[str]:
    """Return gaps and CPU times of `auto`, and its total relative to the best other algorithm on the same problem."""
    made = [run for run in results.runs if run.algorithm == "auto"]
    lines = ["Table: `auto`; least, median and most.", ""]
    lines += [f"| {results.figure.x_label} | seeds | proven gap [%] | CPU-s | total / best of the others |"]
    lines.append("|---|---:|---:|---:|---:|")
    for label, series, x in _rows(results):
        runs = results.at(series, x, "auto")
        if not runs:
            continue
        others: dict[int, float] = {}
        for run in results.runs:
            if (run.series, run.x) == (series, x) and run.algorithm != "auto":
                others[run.seed] = min(run.total_s, others.get(run.seed, run.total_s))
        columns = [
            ([100 * run.gap for run in runs if run.gap is not None], 1),
            ([run.cpu_s for run in runs], 1),
            ([run.total_s / others[run.seed] for run in runs if run.seed in others], 3),
        ]
        cells = [
            ", ".join(f"{value:.{digits}f}" for value in (min(of), statistics.median(of), max(of))) if of else ""
            for of, digits in columns
        ]
        lines.append(f"| {label} | {len(runs)} | {' | '.join(cells)} |")
    return [*lines, "", wrapped(_aims(made)), ""] if made else []


def _aims(runs: Sequence[Run]) -> str:
    """Say how many plans of `auto` reach its aims."""
    gaps, cpu_s = ([100 * (run.gap or 0) for run in runs], [run.cpu_s for run in runs])
    reached = sum(run.gap is not None and run.gap < AIM_GAP and run.cpu_s <= AIM_S for run in runs)
    return (
        f"{reached} of {len(runs)} plans ({reached / len(runs):.0%}) have a proven gap below {AIM_GAP:.0%} and took "
        f"at most {AIM_S:g} CPU-s. Gap: median {statistics.median(gaps):.1f}%, most {max(gaps):.1f}%. CPU-s: median "
        f"{statistics.median(cpu_s):.1f}, most {max(cpu_s):.1f}."
    )


def _plot(results: Results) -> str:
    figure = results.figure
    if figure.name in BOXED:
        return _boxes(results)
    plots = []
    for series in results.series:
        xs = results.xs(series)
        if len(xs) < 2:
            continue
        lines, spreads = {}, {}
        for name in results.algorithms:
            values = [[run.acceleration for run in results.at(series, x, name)] for x in xs]
            lines[name] = [statistics.fmean(one) if one else "" for one in values]
            spreads[name] = [statistics.stdev(one) if len(one) > 1 else 0.0 for one in values]
        title = f"{figure.title}: {series}" if series else figure.title
        frame = Frame(title, figure.x_label, "acceleration, mean and standard deviation", figure.name in LOGARITHMIC)
        plots.append(LinePlot(frame, xs, lines, spreads))
    return line_plots(plots)


def _boxes(results: Results) -> str:
    figure = results.figure
    rows = [(label, series, x) for label, series, x in _rows(results)]
    groups = [
        {
            name: [run.acceleration for run in results.at(series, x, name)] or [float("nan")]
            for name in results.algorithms
        }
        for _, series, x in rows
    ]
    highest = max(run.acceleration for run in results.runs)
    return distributions(figure.title, Axis("acceleration", 0, highest * 1.05), [row[0] for row in rows], groups)


def _run_times(every: Sequence[Results]) -> Iterator[str]:
    """Yield the CPU time of each algorithm for the largest problem of Fig. 7."""
    for results in every:
        if results.figure.name != "fig7" or RUN_TIME_FLOWS not in results.xs(""):
            continue
        lines = [f"## Run times, {RUN_TIME_FLOWS} flows and 18 regions", "", "| algorithm | CPU-s | paper [s] | gap |"]
        lines.append("|---|---:|---:|---:|")
        for name in results.algorithms:
            runs = results.at("", RUN_TIME_FLOWS, name)
            gaps = [100 * run.gap for run in runs if run.gap is not None]
            gap = f"{statistics.fmean(gaps):.1f}%, at most {max(gaps):.1f}%" if gaps else ""
            cpu = _cell([run.cpu_s for run in runs], 3)
            lines.append(f"| {name} | {cpu} | {PAPER_S.get(name, '')} | {gap} |")
        yield "\n".join([*lines, ""])
