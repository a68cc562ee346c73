"""Plots of the benchmarks as SVG, drawn by matplotlib: lines, curves with marks, box plots and bars.

matplotlib is a development dependency and is imported with the first plot. The same figures give the same file: ids and
dates do not vary.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.render.style import ROUTES

WIDTH_IN, HEIGHT_IN = 8.6, 4.0
"""Size of one plot."""
HEADROOM = 1.08
"""Ratio of a line plot's upper y limit to the highest figure."""
ONE_DECIMAL_FROM = 10.0
"""Bars of an axis that goes so far are labelled with one decimal, others with two."""
WHISKERS_PERCENT = (5, 95)

Point = tuple[float, float]
Figure = float | int | str


@dataclass(frozen=True)
class Axis:
    """Label and range of an axis. If the label begins with `share`, values are shown in percent."""

    label: str
    low: float
    high: float


@dataclass(frozen=True)
class Frame:
    """Title, labels and reference lines of a line plot."""

    title: str
    x_label: str
    y_label: str
    logarithmic: bool = False
    """The x axis is logarithmic, with a tick at each x; otherwise it begins at zero."""
    limit: tuple[float, str] | None = None
    """Height and name of a dashed horizontal line."""
    event_x: float | None = None
    """Position of a dashed vertical line."""
    y_max: float | None = None
    """Highest figure, by default that of the lines. Plots beside each other share it."""


@dataclass(frozen=True)
class LinePlot:
    """Lines over an x axis. Figures that are not numbers are left out."""

    frame: Frame
    xs: Sequence[float]
    lines: Mapping[str, Sequence[Figure]]
    spreads: Mapping[str, Sequence[float]] | None = None
    """By line, how far the band around each of its points reaches up and down."""


def line_plot(frame: Frame, xs: Sequence[float], lines: Mapping[str, Sequence[Figure]]) -> str:
    """Return one line plot."""
    return line_plots([LinePlot(frame, xs, lines)])


def line_plots(plots: Sequence[LinePlot]) -> str:
    """Return line plots one above the other; an empty text for none."""
    if not plots:
        return ""
    figure, axes = _figure(len(plots))
    for ax, plot in zip(axes, plots, strict=True):
        frame = plot.frame
        numbers = [y for line in plot.lines.values() for y in line if isinstance(y, float)]
        highest = max([frame.y_max or 0.0, frame.limit[0] if frame.limit else 0.0, *numbers])
        highest += max((by for spread in (plot.spreads or {}).values() for by in spread), default=0.0)
        for number, (name, line) in enumerate(plot.lines.items()):
            points = [(x, y) for x, y in zip(plot.xs, line, strict=True) if isinstance(y, float)]
            colour = ROUTES[number % len(ROUTES)]
            if plot.spreads is not None:
                _band(ax, plot.xs, line, plot.spreads[name], colour)
            ax.plot([x for x, _ in points], [y for _, y in points], "o-", markersize=3, label=name, color=colour)
        if frame.limit is not None:
            ax.axhline(frame.limit[0], linestyle="--", color="#555", label=frame.limit[1])
        if frame.event_x is not None:
            ax.axvline(frame.event_x, linestyle=":", color="#999")
        ax.set(title=frame.title, xlabel=frame.x_label, ylabel=frame.y_label, ylim=(0, highest * HEADROOM))
        if frame.logarithmic:
            ax.set_xscale("log", base=2)
            ax.set_xticks(list(plot.xs), [f"{x:g}" for x in plot.xs])
        else:
            ax.set_xlim(0, plot.xs[-1])
        ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return _svg(figure)


def _band(ax: Any, xs: Sequence[float], line: Sequence[Figure], spread: Sequence[float], colour: str) -> None:
    known = [(x, y, by) for x, y, by in zip(xs, line, spread, strict=True) if isinstance(y, float)]
    low, high = [y - by for _, y, by in known], [y + by for _, y, by in known]
    ax.fill_between([x for x, _, _ in known], low, high, color=colour, alpha=0.12, linewidth=0)


def curves(
    title: str, x: Axis, y: Axis, series: Mapping[str, Sequence[Point]], marks: Mapping[str, Sequence[Point]]
) -> str:
    """Return a plot with one line per name, and dots at its ``marks``."""
    figure, (ax,) = _figure(1)
    for number, (name, points) in enumerate(series.items()):
        colour = ROUTES[number]
        ax.plot([a for a, _ in points], [b for _, b in points], linewidth=2.4, color=colour, label=name)
        ax.plot([a for a, _ in marks[name]], [b for _, b in marks[name]], "o", markersize=5, color=colour)
    ax.set(title=title, xlabel=x.label, xlim=(x.low, x.high))
    _set_y(ax, y)
    ax.legend(frameon=False)
    return _svg(figure)


def distributions(title: str, y: Axis, names: Sequence[str], groups: Sequence[Mapping[str, Sequence[float]]]) -> str:
    """Return a plot with one box per group and name: whiskers at 5 and 95%, box from 25 to 75%, line at the median."""
    figure, (ax,) = _figure(1)
    kinds = list(groups[0])
    for number, kind in enumerate(kinds):
        colour = ROUTES[number]
        boxes = ax.boxplot(
            [list(group[kind]) for group in groups],
            positions=[n + (number + 0.5) / len(kinds) - 0.5 for n in range(len(groups))],
            widths=0.6 / len(kinds),
            whis=WHISKERS_PERCENT,
            showfliers=False,
            patch_artist=True,
            boxprops={"facecolor": f"{colour}59", "edgecolor": colour},
            medianprops={"color": colour, "linewidth": 3},
            whiskerprops={"color": colour},
            capprops={"color": colour},
        )
        boxes["boxes"][0].set_label(kind)
    _set_groups(ax, title, y, names)
    return _svg(figure)


def bars(
    title: str,
    y: Axis,
    names: Sequence[str],
    groups: Sequence[Mapping[str, float]],
    spreads: Sequence[Mapping[str, float]] | None = None,
) -> str:
    """Return a plot with one bar per group and name, labelled with its value: shares in percent.

    `spreads` are how far the error mark of each bar reaches up and down.
    """
    figure, (ax,) = _figure(1)
    kinds = list(groups[0])
    width = 0.8 / len(kinds)
    for number, kind in enumerate(kinds):
        at = [n + width * (number + 0.5) - 0.4 for n in range(len(groups))]
        reach = None if spreads is None else [spread[kind] for spread in spreads]
        heights = [group[kind] for group in groups]
        drawn = ax.bar(at, heights, width * 0.92, yerr=reach, capsize=3, color=ROUTES[number], label=kind)
        shown = ".0%" if y.label.startswith("share") else ".1f" if y.high >= ONE_DECIMAL_FROM else ".2f"
        ax.bar_label(drawn, [format(height, shown) for height in heights], fontsize=8)
    _set_groups(ax, title, y, names)
    return _svg(figure)


def _set_y(ax: Any, y: Axis) -> None:
    ax.set(ylabel=y.label, ylim=(y.low, y.high))
    if y.label.startswith("share"):
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")


def _set_groups(ax: Any, title: str, y: Axis, names: Sequence[str]) -> None:
    _set_y(ax, y)
    ax.set_title(title, pad=24)
    ax.set_xticks(range(len(names)), names)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(ROUTES), frameon=False)


def _figure(rows: int) -> tuple[Any, list[Any]]:
    """Return a figure with rows of axes, which needs no display."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Drawing

    matplotlib.rcParams.update({"svg.hashsalt": "tradewind", "svg.fonttype": "none", "font.family": "sans-serif"})
    figure: Any = Drawing(figsize=(WIDTH_IN, HEIGHT_IN * rows), layout="constrained")
    FigureCanvasSVG(figure)
    axes = [figure.add_subplot(rows, 1, row + 1) for row in range(rows)]
    for ax in axes:
        ax.grid(axis="y", color="#ddd")
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure: Any) -> str:
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"
