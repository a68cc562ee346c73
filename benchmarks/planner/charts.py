"""The three kinds of picture that the page needs, as SVG: curves, distributions side by side, and bars.

Colours, font and text come from the planner's own pictures (`tradewind.render.style`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tradewind.render import style
from tradewind.render.labels import text_width

WIDTH, HEIGHT = 860, 400
LEFT, RIGHT, TOP, BOTTOM = 66, 24, 52, 56
TICKS_WANTED = 6
CURVE_WIDTH = 2.4
WHISKERS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Parts of a distribution: ends of the whiskers, of the box, and the line in it."""

Scale = Callable[[float], float]
Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """What an axis says and which values it spans."""

    words: str
    low: float
    high: float
    logarithmic: bool = False

    def scale(self, start: float, end: float) -> Scale:
        """From values to pixels."""
        if self.logarithmic:
            low, high = math.log(self.low), math.log(self.high)
            return lambda value: start + (math.log(value) - low) / (high - low) * (end - start)
        return lambda value: start + (value - self.low) / (self.high - self.low) * (end - start)

    def ticks(self) -> list[float]:
        """Round values, about `TICKS_WANTED` of them."""
        if self.logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            every = [float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5)]
            return [value for value in every if self.low <= value <= self.high * (1 + 1e-9)]
        raw = (self.high - self.low) / TICKS_WANTED
        unit = 10.0 ** math.floor(math.log10(raw))
        step = unit * min((1, 2, 2.5, 5, 10), key=lambda digit: abs(digit * unit - raw))
        first = math.ceil(self.low / step - 1e-9)
        return [round(n * step, 10) for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def curves(
    title: str, x: Axis, y: Axis, series: Mapping[str, Sequence[Point]], marks: Mapping[str, Sequence[Point]]
) -> str:
    """One line per name, with dots at its ``marks``."""
    to_x, to_y = x.scale(LEFT, WIDTH - RIGHT), y.scale(HEIGHT - BOTTOM, TOP)
    parts = [*_frame(title, x, y), *_ticks_below(x, to_x)]
    for number, (name, points) in enumerate(series.items()):
        colour = style.ROUTES[number]
        path = "M" + "L".join(f"{to_x(a):.1f} {to_y(b):.1f}" for a, b in points)
        parts.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{CURVE_WIDTH}" stroke-linejoin="round"/>'
        )
        parts += [f'<circle cx="{to_x(a):.1f}" cy="{to_y(b):.1f}" r="3.2" fill="{colour}"/>' for a, b in marks[name]]
    for number, name in enumerate(series):
        parts += _key(number, name, LEFT + 16, TOP + 8 + 20 * number)
    return _drawing(parts)


def distributions(title: str, y: Axis, names: Sequence[str], groups: Sequence[Mapping[str, Sequence[float]]]) -> str:
    """Per group one box per name: 5 to 95% as a line, 25 to 75% as a box, the median across it."""
    to_y = y.scale(HEIGHT - BOTTOM, TOP)
    parts = _frame(title, y=y, x=None)
    kinds = list(groups[0])
    for group, (name, values) in enumerate(zip(names, groups, strict=True)):
        left, width = _slot(group, len(names))
        parts.append(_group_name(left + width / 2, name))
        for number, kind in enumerate(kinds):
            middle = left + width * (number + 1) / (len(kinds) + 1)
            parts += _box(middle, width / (len(kinds) + 2), values[kind], to_y, style.ROUTES[number])
    return _drawing([*parts, *_legend(kinds)])


def bars(title: str, y: Axis, names: Sequence[str], groups: Sequence[Mapping[str, float]]) -> str:
    """Per group one bar per name, its value above it in percent."""
    to_y = y.scale(HEIGHT - BOTTOM, TOP)
    parts = _frame(title, y=y, x=None)
    kinds = list(groups[0])
    for group, (name, values) in enumerate(zip(names, groups, strict=True)):
        left, width = _slot(group, len(names))
        parts.append(_group_name(left + width / 2, name))
        bar = width * 0.8 / len(kinds)
        for number, kind in enumerate(kinds):
            at, top = left + width * 0.1 + bar * number, to_y(values[kind])
            parts.append(
                f'<rect x="{at:.1f}" y="{top:.1f}" width="{bar * 0.92:.1f}" height="{to_y(y.low) - top:.1f}" '
                f'fill="{style.ROUTES[number]}"/>'
            )
            parts.append(style.text(at + bar * 0.46, top - 5, f"{values[kind]:.0%}", size=11, anchor="middle"))
    return _drawing([*parts, *_legend(kinds)])


def _drawing(parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="{style.FONT}">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *parts, "</svg>"]) + "\n"


def _frame(title: str, x: Axis | None, y: Axis) -> list[str]:
    to_y = y.scale(HEIGHT - BOTTOM, TOP)
    parts = [style.text(LEFT, 20, title, size=15, bold=True), style.text(8, TOP - 14, y.words, size=12)]
    for value in y.ticks():
        at = to_y(value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="{style.GRID}"/>')
        parts.append(style.text(LEFT - 8, at + 4, _number(y, value), size=12, colour=style.MUTED, anchor="end"))
    bottom = HEIGHT - BOTTOM
    parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}" stroke="{style.MUTED}"/>')
    if x is not None:
        parts.append(style.text(WIDTH - RIGHT, HEIGHT - 12, x.words, size=12, anchor="end"))
    return parts


def _ticks_below(x: Axis, to_x: Scale) -> Iterator[str]:
    bottom = HEIGHT - BOTTOM
    for value in x.ticks():
        at = to_x(value)
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="{style.MUTED}"/>'
        yield style.text(at, bottom + 19, _number(x, value), size=12, colour=style.MUTED, anchor="middle")


def _number(axis: Axis, value: float) -> str:
    return f"{value:.0%}" if axis.words.startswith("share") else f"{value:g}"


def _legend(names: Sequence[str]) -> Iterator[str]:
    at = float(LEFT + 110)
    for number, name in enumerate(names):
        yield from _key(number, name, at, TOP - 25)
        at += 42 + text_width(name, 12)


def _key(number: int, name: str, x: float, y: float) -> Iterator[str]:
    yield f'<rect x="{x:.1f}" y="{y:.1f}" width="14" height="11" fill="{style.ROUTES[number]}"/>'
    yield style.text(x + 20, y + 10, name, size=12)


def _slot(group: int, count: int) -> tuple[float, float]:
    width = (WIDTH - LEFT - RIGHT) / count
    return LEFT + width * group, width


def _group_name(middle: float, name: str) -> str:
    return style.text(middle, HEIGHT - BOTTOM + 20, name, size=12, anchor="middle")


def _box(middle: float, width: float, values: Sequence[float], to_y: Scale, colour: str) -> Iterator[str]:
    ordered = sorted(values)
    low, first, median, third, high = (to_y(ordered[round(part * (len(ordered) - 1))]) for part in WHISKERS)
    line = f'stroke="{colour}" stroke-width="1.6"'
    yield f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{low:.1f}" y2="{high:.1f}" {line}/>'
    left, right = middle - width / 2, middle + width / 2
    yield (
        f'<rect x="{left:.1f}" y="{third:.1f}" width="{width:.1f}" height="{max(first - third, 1):.1f}" '
        f'fill="{colour}" fill-opacity="0.35" {line}/>'
    )
    where = f'x1="{left:.1f}" x2="{right:.1f}" y1="{median:.1f}" y2="{median:.1f}"'
    yield f'<line {where} stroke="{colour}" stroke-width="3.2"/>'
