"""The frontier of a placement: the total completion time for each budget, found and proven."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tradewind.model.units import format_count, format_duration, format_usd
from tradewind.placement.plan import PlacementPlan
from tradewind.render import style
from tradewind.render.axes import Scale, format_ticks_usd, scale, ticks
from tradewind.render.picture import MARGIN, Picture, composed

__all__ = ["placement_picture"]

HEIGHT = 380
HEADING_HEIGHT = 80
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 30, 58
ABOVE = 1.08
"""The time axis ends at this multiple of the longest total."""
CENTS_PER_USD = 100.0

Point = tuple[float, float]


def placement_picture(plan: PlacementPlan, frontier: Sequence[PlacementPlan]) -> Picture:
    """Return the total completion time over the budget, with a plan marked, and a bound where all plans prove one.

    `frontier` has plans for rising budgets.
    """
    title = f"{format_count(len(plan.flows), 'flow')} by {plan.algorithm}: completion time for each budget"
    figures = f"this plan: {format_duration(plan.total_fct_s)} for all flows together, {format_usd(_usd(plan))}"
    heading = [
        style.text(MARGIN, 36, title, size=20, bold=True),
        style.text(MARGIN, 58, figures, colour=style.MUTED),
    ]
    return composed(heading, HEADING_HEIGHT, [(HEIGHT, list(_chart(plan, frontier)))])


def _chart(plan: PlacementPlan, frontier: Sequence[PlacementPlan]) -> Iterator[str]:
    right = max(1e-9, _usd(plan), *(_usd(one) for one in frontier))
    highest_s = max(1e-9, plan.total_fct_s, *(one.total_fct_s for one in frontier)) * ABOVE
    x = scale(0.0, right, LEFT, style.WIDTH - RIGHT)
    y = scale(0.0, highest_s, HEIGHT - BOTTOM, TOP)
    yield from _axes(x, y, right, highest_s)
    found = [(_usd(one), one.total_fct_s) for one in frontier]
    bounds = [(_usd(one), one.total_fct_s * (1 - one.gap)) for one in frontier if one.gap is not None]
    if proven := len(bounds) == len(frontier):
        yield _line(x, y, _bound_steps(bounds), ' stroke-dasharray="6 4" opacity="0.7"')
    # A plan can be carried out with more money, too.
    yield _line(x, y, _found_steps([*found, (right, found[-1][1])]), "")
    for usd, total_s in found:
        yield f'<circle cx="{x(usd):.1f}" cy="{y(total_s):.1f}" r="2.6" fill="{style.FRONTIER}"/>'
    px, py = x(_usd(plan)), y(plan.total_fct_s)
    yield (
        f'<path d="M{px:.1f} {py - 7.5:.1f}l7.5 7.5l-7.5 7.5l-7.5 -7.5Z" fill="{style.CHOSEN}" stroke="white" '
        'stroke-width="1.5"><title>this plan</title></path>'
    )
    yield from _legend(proven)


def _found_steps(points: Sequence[Point]) -> Iterator[Point]:
    """Yield the corners of a line that keeps each total until the next budget."""
    last_s = points[0][1]
    for usd, total_s in points:
        yield usd, last_s
        yield usd, total_s
        last_s = total_s


def _bound_steps(points: Sequence[Point]) -> Iterator[Point]:
    """Yield the corners of a line that keeps each bound from the budget before: less money never shortens the total."""
    before_usd = points[0][0]
    for usd, bound_s in points:
        yield before_usd, bound_s
        yield usd, bound_s
        before_usd = usd


def _line(x: Scale, y: Scale, points: Iterator[Point], form: str) -> str:
    path = "M" + "L".join(f"{x(usd):.1f} {y(total_s):.1f}" for usd, total_s in points)
    return (
        f'<path d="{path}" fill="none" stroke="{style.FRONTIER}" stroke-width="2.5" stroke-linejoin="round" '
        f'stroke-linecap="round"{form}/>'
    )


def _axes(x: Scale, y: Scale, right_usd: float, highest_s: float) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, style.WIDTH - RIGHT
    yield style.text(24, TOP - 12, "completion time of all flows together", size=12, colour=style.MUTED)
    for total_s in ticks(0.0, highest_s):
        yield f'<line x1="{LEFT}" x2="{right}" y1="{y(total_s):.1f}" y2="{y(total_s):.1f}" stroke="{style.GRID}"/>'
        words = format_duration(total_s)
        yield style.text(LEFT - 9, y(total_s) + 4, words, size=12, colour=style.MUTED, anchor="end")
    values = ticks(0.0, right_usd)
    for usd, amount in zip(values, format_ticks_usd(values), strict=True):
        yield f'<line x1="{x(usd):.1f}" x2="{x(usd):.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="{style.MUTED}"/>'
        yield style.text(x(usd), bottom + 20, amount, size=12, colour=style.MUTED, anchor="middle")
    yield f'<line x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="{style.MUTED}"/>'
    yield style.text(right, bottom + 42, "budget", size=12, colour=style.MUTED, anchor="end")


def _legend(proven: bool) -> Iterator[str]:
    y = HEIGHT - 20
    entries = [("found", "")]
    if proven:
        entries.append(("proven: no placement is faster", ' stroke-dasharray="6 4" opacity="0.7"'))
    for number, (words, form) in enumerate(entries):
        left = LEFT + 120 * number
        yield (
            f'<line x1="{left}" x2="{left + 28}" y1="{y}" y2="{y}" stroke="{style.FRONTIER}" stroke-width="2.5"{form}/>'
        )
        yield style.text(left + 36, y + 4, words, size=12, colour=style.MUTED)


def _usd(plan: PlacementPlan) -> float:
    return plan.budget_cents / CENTS_PER_USD
