"""Line plots as SVG, written by hand: few, small, and the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.sky.table import Figure

WIDTH, HEIGHT = 680, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 210, 40, 50
ACROSS, UP = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
TICKS_MAX = 6
HEADROOM = 1.05
"""The y axis ends so much above the highest figure."""
COLOURS = ("#1b6ca8", "#d1495b", "#3c8d5a", "#8d6a9f", "#c98b2b")


@dataclass(frozen=True)
class Frame:
    """What is around the lines."""

    title: str
    x_label: str
    y_label: str
    logarithmic: bool = False
    """The x axis, with a tick at each x; else it begins at zero and has round ticks."""
    limit: tuple[float, str] | None = None
    """Drawn as a dashed line, and what it is."""
    event_x: float | None = None
    """Where something happened: a dashed line upwards."""
    y_max: float | None = None
    """Highest figure, if not that of the lines: pictures beside each other share it."""


def round_ticks(most: float) -> list[float]:
    """Zero and multiples of 1, 2 or 5 times a power of ten up to `most`."""
    power = 10.0 ** math.floor(math.log10(most / TICKS_MAX))
    step = next(factor * power for factor in (1, 2, 5, 10) if most / (factor * power) <= TICKS_MAX)
    return [step * number for number in range(int(most / step * (1 + 1e-9)) + 1)]


def line_plot(frame: Frame, xs: Sequence[float], lines: Mapping[str, Sequence[Figure]]) -> str:
    """Lines over an x axis. Figures that are no numbers are left out."""
    figures = [figure for line in lines.values() for figure in line if isinstance(figure, float)]
    highest = max([frame.y_max or 0.0, frame.limit[0] if frame.limit else 0.0, *figures])
    start = math.log2(xs[0]) if frame.logarithmic else 0.0

    def along(x: float) -> float:
        return (math.log2(x) if frame.logarithmic else x) - start

    def x_of(x: float) -> float:
        return LEFT + ACROSS * along(x) / (along(xs[-1]) or 1.0)

    def y_of(y: float) -> float:
        return HEIGHT - BOTTOM - UP * y / (highest * HEADROOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="15">{frame.title}</text>',
        f'<text x="{LEFT + ACROSS / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{frame.x_label}</text>',
        f'<text x="{LEFT - 6}" y="{TOP - 6}" text-anchor="end">{frame.y_label}</text>',
    ]
    for y in round_ticks(highest * HEADROOM):
        parts.append(f'<path d="M{LEFT} {y_of(y):.1f}h{ACROSS}" stroke="{"#ddd" if y else "#555"}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y_of(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in xs if frame.logarithmic else round_ticks(xs[-1]):
        parts.append(f'<text x="{x_of(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    legend = [(name, COLOURS[index % len(COLOURS)], "") for index, name in enumerate(lines)]
    if frame.limit is not None:
        limit, name = frame.limit
        parts.append(f'<path d="M{LEFT} {y_of(limit):.1f}h{ACROSS}" stroke="#555" stroke-dasharray="5 4"/>')
        legend.append((name, "#555", ' stroke-dasharray="5 4"'))
    if frame.event_x is not None:
        parts.append(f'<path d="M{x_of(frame.event_x):.1f} {TOP}v{UP}" stroke="#999" stroke-dasharray="2 3"/>')
    for line, (_, colour, _) in zip(lines.values(), legend, strict=False):
        points = [(x_of(x), y_of(y)) for x, y in zip(xs, line, strict=True) if isinstance(y, float)]
        path = " ".join(f"{across:.1f},{height:.1f}" for across, height in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{across:.1f}" cy="{height:.1f}" r="3" fill="{colour}"/>' for across, height in points]
    for index, (name, colour, dashes) in enumerate(legend):
        left, height = WIDTH - RIGHT + 14, TOP + 20 + 20 * index
        parts.append(f'<path d="M{left} {height - 4}h16" stroke="{colour}" stroke-width="2"{dashes}/>')
        parts.append(f'<text x="{left + 22}" y="{height}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
