"""Line plots as SVG, written by hand: few, small, and the same on every machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from benchmarks.sky.table import Figure

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 170, 40, 50
TICKS = 6
COLOURS = ("#1b6ca8", "#d1495b", "#3c8d5a", "#8d6a9f", "#c98b2b")


def line_plot(
    title: str,
    x_label: str,
    y_label: str,
    xs: Sequence[float],
    lines: Mapping[str, Sequence[Figure]],
    limit: float,
    *,
    logarithmic: bool = True,
) -> str:
    """Lines over an x axis; `limit` is drawn as a dashed line. Figures that are no numbers are left out.

    Each x has a tick on a logarithmic axis; on a linear one, TICKS of them do.
    """
    top = limit * 1.08
    along = math.log2 if logarithmic else float
    start = along(xs[0])
    span = along(xs[-1]) - start or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - RIGHT) * (along(x) - start) / span
        return across, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">{title}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{x_label}</text>',
        f'<text x="14" y="{TOP - 8}">{y_label}</text>',
    ]
    for tick in range(5):
        y = limit * tick / 4
        (left, height), (right, _) = place(xs[0], y), place(xs[-1], y)
        dash = ' stroke-dasharray="5 4"' if tick == 4 else ""
        colour = "#555" if tick in (0, 4) else "#ddd"
        parts.append(f'<path d="M{left:.1f} {height:.1f}H{right:.1f}" stroke="{colour}"{dash}/>')
        parts.append(f'<text x="{LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{y:.0f}</text>')
    for x in xs if logarithmic else xs[:: max(1, len(xs) // TICKS)]:
        across, height = place(x, 0)
        parts.append(f'<text x="{across:.1f}" y="{height + 18:.1f}" text-anchor="middle">{x:.0f}</text>')
    for index, (name, figures) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        points = [place(x, y) for x, y in zip(xs, figures, strict=True) if isinstance(y, float)]
        path = " ".join(f"{across:.1f},{height:.1f}" for across, height in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{across:.1f}" cy="{height:.1f}" r="3" fill="{colour}"/>' for across, height in points]
        parts.append(f'<text x="{WIDTH - RIGHT + 14}" y="{TOP + 20 + 20 * index}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
