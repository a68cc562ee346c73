"""The frontier between cost and rate, with the plan and its alternatives marked on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tradewind.model.overlay import Overlay
from tradewind.model.records import dataclass
from tradewind.model.units import format_gbps, format_usd
from tradewind.render import style
from tradewind.render.axes import Scale, axis_break, format_ticks_usd, scale, ticks
from tradewind.render.labels import Box, Labels, text_width

if TYPE_CHECKING:
    from tradewind.planner.frontier import Frontier

__all__ = ["Mark", "draw_chart"]

HEIGHT = 380
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 30, 58
SAMPLES_PER_SEGMENT = 24
ELBOWS_SHOWN_MAX = 40
"""Maximum elbows that get dots; with more, the dots would look like a second line."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The figures of one alternative, such as `direct` or `RON`."""

    name: str
    gbps: float
    cost_usd: float
    time_s: float
    machines: int

    @classmethod
    def of(cls, name: str, plan: Overlay) -> Mark:
        """Return the mark of a plan."""
        machines = sum(m.count for m in plan.machines)
        return cls(name, plan.throughput_gbps, plan.cost.total_usd, plan.time_s, machines)


def draw_chart(frontier: Frontier, chosen: Mark | None, rivals: Sequence[Mark]) -> Iterator[str]:
    """Yield SVG elements, `style.WIDTH` × `HEIGHT`."""
    marks = [*rivals, *([chosen] if chosen else [])]
    curve = [point for part, _ in _curve(frontier) for point in part]
    x, y, costs, rates = _scales(curve, marks)
    yield from _axes(x, y, costs, rates)
    labels = Labels(Box(LEFT, TOP - 14, style.WIDTH - RIGHT, HEIGHT - BOTTOM))
    for proven, parts in itertools.groupby(_curve(frontier), key=lambda part: part[1]):
        # One path, so that dashes do not restart in each piece.
        points = [(x(cost), y(rate)) for part, _ in parts for cost, rate in part]
        labels.take_line(points, 8)
        path = "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        dashes = "" if proven else ' stroke-dasharray="6 4"'
        yield (
            f'<path d="{path}" fill="none" stroke="{style.FRONTIER}" stroke-width="2.5" stroke-linejoin="round" '
            f'stroke-linecap="round"{dashes}/>'
        )
    elbows = frontier.elbows()
    for rate, cost in elbows if len(elbows) <= ELBOWS_SHOWN_MAX else ():
        yield f'<circle cx="{x(cost):.1f}" cy="{y(rate):.1f}" r="2.6" fill="{style.FRONTIER}"/>'
    for mark in marks:
        px, py = x(mark.cost_usd), y(mark.gbps)
        labels.take(Box(px - 8, py - 8, px + 8, py + 8), 3.0)
    for mark in marks:
        yield from _mark(mark, x(mark.cost_usd), y(mark.gbps), mark is chosen, labels)
    yield from _legend(all(segment.proven for segment in frontier.segments))


def _curve(frontier: Frontier) -> Iterator[tuple[list[tuple[float, float]], bool]]:
    """Yield (cost, rate) along each segment, and whether it is proven.

    Between segments the rate is constant while cost rises: a step, not a slope.
    """
    reached, paid_usd = 0.0, 0.0
    for segment in frontier.segments:
        part = [(paid_usd, reached), (segment.cost_from_usd, reached)] if reached else []
        for step in range(SAMPLES_PER_SEGMENT + 1):
            along = step / SAMPLES_PER_SEGMENT
            reached = segment.rate_from_gbps + (segment.rate_to_gbps - segment.rate_from_gbps) * along
            line = segment.intercept_usd_per_s / reached + segment.slope_usd_per_gbit
            paid_usd = frontier.demand.gbit * line + frontier.demand.requests_usd
            part.append((paid_usd, reached))
        yield part, segment.proven


def _scales(
    curve: Sequence[tuple[float, float]], marks: Sequence[Mark]
) -> tuple[Scale, Scale, tuple[float, float], tuple[float, float]]:
    costs = [cost for cost, _ in curve] + [mark.cost_usd for mark in marks]
    rates = [rate for _, rate in curve] + [mark.gbps for mark in marks]
    spread = max(max(costs) - min(costs), 0.02 * max(costs))
    low, high = max(0.0, min(costs) - 0.08 * spread), max(costs) + 0.12 * spread
    bottom, top = 0.0, max(rates) * 1.14
    x = scale(low, high, LEFT, style.WIDTH - RIGHT)
    y = scale(bottom, top, HEIGHT - BOTTOM, TOP)
    return x, y, (low, high), (bottom, top)


def _axes(x: Scale, y: Scale, costs: tuple[float, float], rates: tuple[float, float]) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, style.WIDTH - RIGHT
    yield style.text(24, TOP - 12, "rate [Gbit/s]", size=12, colour=style.MUTED)
    for value in ticks(*rates):
        yield f'<line x1="{LEFT}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="{style.GRID}"/>'
        yield style.text(LEFT - 9, y(value) + 4, f"{value:g}", size=12, colour=style.MUTED, anchor="end")
    values = ticks(*costs)
    for value, amount in zip(values, format_ticks_usd(values), strict=True):
        yield f'<line x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="{style.MUTED}"/>'
        yield style.text(x(value), bottom + 20, amount, size=12, colour=style.MUTED, anchor="middle")
    yield f'<line x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="{style.MUTED}"/>'
    if costs[0] > 0:
        title = "<title>the axis does not begin at $0</title>"
        yield f'<path d="{axis_break(LEFT, bottom)}" fill="none" stroke="{style.MUTED}">{title}</path>'
    yield style.text(
        right, bottom + 42, "cost of the transfer, machines included", size=12, colour=style.MUTED, anchor="end"
    )


def _mark(mark: Mark, x: float, y: float, chosen: bool, labels: Labels) -> Iterator[str]:
    colour = style.CHOSEN if chosen else style.INK
    yield f'<path d="{_shape(mark.name, x, y, chosen)}" fill="{colour}" stroke="white" stroke-width="1.5"/>'
    figures = f"{format_gbps(mark.gbps)}, {format_usd(mark.cost_usd)}"
    width = max(text_width(mark.name, 13) * 1.06, text_width(figures, 11.5))
    box, lead = labels.place(x, y, width, 29, 12)
    anchor, label_x = ("end", box.right) if box.right < x else ("start", box.left)
    if lead:
        near_x, near_y = box.nearest(x, y)
        yield (
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{near_x:.1f}" y2="{near_y:.1f}" stroke="{colour}" '
            'stroke-width="0.8"/>'
        )
    elif box.left < x < box.right:
        anchor, label_x = "middle", (box.left + box.right) / 2
    yield style.text(label_x, box.top + 12, mark.name, colour=colour, bold=True, anchor=anchor, halo=True)
    yield style.text(label_x, box.top + 26, figures, size=11.5, colour=style.MUTED, anchor=anchor, halo=True)


def _shape(name: str, x: float, y: float, chosen: bool) -> str:
    """Return a diamond for the plan, a square for RON, a triangle for several plans, a circle for the direct path."""
    size = 7.5 if chosen else 5.0
    if chosen:
        return f"M{x:.1f} {y - size:.1f}l{size} {size}l-{size} {size}l-{size} -{size}Z"
    if name == "RON":
        return f"M{x - size:.1f} {y - size:.1f}h{2 * size}v{2 * size}h-{2 * size}Z"
    if not name.startswith("direct"):
        return f"M{x:.1f} {y - size - 1:.1f}l{size + 1} {2 * size}h-{2 * size + 2}Z"
    return f"M{x - size:.1f} {y:.1f}a{size} {size} 0 1 0 {2 * size} 0a{size} {size} 0 1 0 -{2 * size} 0Z"


def _legend(all_proven: bool) -> Iterator[str]:
    y = HEIGHT - 20
    yield f'<line x1="{LEFT}" x2="{LEFT + 28}" y1="{y}" y2="{y}" stroke="{style.FRONTIER}" stroke-width="2.5"/>'
    yield style.text(LEFT + 36, y + 4, "highest rate for each cost, proven", size=12, colour=style.MUTED)
    if not all_proven:
        yield (
            f'<line x1="{LEFT + 270}" x2="{LEFT + 298}" y1="{y}" y2="{y}" stroke="{style.FRONTIER}" '
            'stroke-width="2.5" stroke-dasharray="6 4"/>'
        )
        yield style.text(LEFT + 306, y + 4, "found, not proven to be the highest", size=12, colour=style.MUTED)
