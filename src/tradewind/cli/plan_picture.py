"""Draws a plan as SVG: the frontier with the plan and its rivals, and the routes on a map of the world.

Written by hand: a drawing of some hundred elements needs no plotting library, which would cost the user a second of
start-up and 60 MB. Any browser and most notebooks show it; `rsvg-convert` or ImageMagick make a PNG of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from tradewind.model.amounts import format_gbps, format_usd, format_volume
from tradewind.model.overlay import OverlayPlan
from tradewind.model.region import Place, Region

if TYPE_CHECKING:
    from tradewind.planner.frontier import Frontier

WIDTH = 1000
MAP_HEIGHT = 430
CHART_HEIGHT = 380
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 70, 30, 50, 50
SAMPLES_PER_SEGMENT = 24
LATITUDE_TOP, LATITUDE_BOTTOM = 78.0, -56.0
COLOURS = ("#0b6e99", "#c05a1c", "#5a8f29", "#8a4fa3", "#b8860b", "#a83254")

Scale = Callable[[float], float]
Mark = tuple[str, OverlayPlan]


def draw(plan: OverlayPlan, frontier: Frontier, rivals: Sequence[Mark], places: Mapping[Region, Place]) -> str:
    """The whole picture. Without places (problem files have none) there is a chart and no map."""
    known = all(region in places for route in plan.routes for region in route.regions)
    map_height = MAP_HEIGHT if known else 0
    height = CHART_HEIGHT + map_height + 60
    title = f"{plan.source} → {plan.destination}, {format_volume(plan.volume_gb)}: {plan.goal}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#222">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{MARGIN_LEFT}" y="28" font-size="17" font-weight="bold">{escape(title)}</text>',
        *_chart(plan, frontier, rivals),
    ]
    if known:
        parts += [f'<g transform="translate(0 {CHART_HEIGHT + 50})">', *_map(plan, places), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _chart(plan: OverlayPlan, frontier: Frontier, rivals: Sequence[Mark]) -> Iterator[str]:
    curve = [point for part, _ in _curve(frontier) for point in part]
    marks = [*rivals, ("this plan", plan)]
    costs = [cost for cost, _ in curve] + [made.cost.total_usd for _, made in marks]
    rates = [rate for _, rate in curve] + [made.throughput_gbps for _, made in marks]
    spread = max(max(costs) - min(costs), 0.02 * max(costs))
    low_cost, high_cost = max(0.0, min(costs) - 0.08 * spread), max(costs) + 0.12 * spread
    top_rate = max(rates) * 1.12
    x = _scale(low_cost, high_cost, MARGIN_LEFT, WIDTH - MARGIN_RIGHT)
    y = _scale(0.0, top_rate, CHART_HEIGHT - MARGIN_BOTTOM, MARGIN_TOP)
    yield from _axes(x, y, low_cost, high_cost, top_rate)
    for part, proven in _curve(frontier):
        path = "M" + " L".join(f"{x(cost):.1f},{y(rate):.1f}" for cost, rate in part)
        dashes = "" if proven else ' stroke-dasharray="5 4"'
        yield f'<path d="{path}" fill="none" stroke="#0b6e99" stroke-width="2.5" stroke-linejoin="round"{dashes}/>'
    if not all(segment.proven for segment in frontier.segments):
        yield f'<text x="{MARGIN_LEFT}" y="{CHART_HEIGHT - 12}">dashed: found, not proven to be the best</text>'
    for rate, cost in frontier.elbows():
        yield f'<circle cx="{x(cost):.1f}" cy="{y(rate):.1f}" r="3" fill="#0b6e99"/>'
    taken: list[tuple[float, float]] = []
    for name, made in marks:
        yield from _mark(name, x(made.cost.total_usd), y(made.throughput_gbps), name == "this plan", taken)


def _curve(frontier: Frontier) -> Iterator[tuple[list[tuple[float, float]], bool]]:
    """(cost, rate) along each segment, and whether it is proven.

    Between segments the rate stays while money is added: a step, not a slope.
    """
    reached = 0.0
    for segment in frontier.segments:
        part = [(segment.cost_from_usd, reached)] if reached else []
        for step in range(SAMPLES_PER_SEGMENT + 1):
            along = step / SAMPLES_PER_SEGMENT
            reached = segment.rate_from_gbps + (segment.rate_to_gbps - segment.rate_from_gbps) * along
            line = segment.intercept_usd_per_s / reached + segment.slope_usd_per_gbit
            part.append((frontier.job.gbit * line + frontier.job.requests_usd, reached))
        yield part, segment.proven


def _axes(x: Scale, y: Scale, low_cost: float, high_cost: float, top_rate: float) -> Iterator[str]:
    bottom, right = CHART_HEIGHT - MARGIN_BOTTOM, WIDTH - MARGIN_RIGHT
    for value in _ticks(0.0, top_rate):
        yield f'<line x1="{MARGIN_LEFT}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#e4e4e4"/>'
        yield f'<text x="{MARGIN_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
    for value in _ticks(low_cost, high_cost):
        yield f'<line x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{bottom}" y2="{bottom + 5}" stroke="#777"/>'
        yield f'<text x="{x(value):.1f}" y="{bottom + 20}" text-anchor="middle">{format_usd(value)}</text>'
    yield f'<line x1="{MARGIN_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="#777"/>'
    yield f'<text x="{MARGIN_LEFT - 50}" y="{MARGIN_TOP - 6}">Gbit/s</text>'
    yield f'<text x="{right}" y="{bottom + 38}" text-anchor="end">cost of the transfer</text>'


def _mark(name: str, x: float, y: float, chosen: bool, taken: list[tuple[float, float]]) -> Iterator[str]:
    colour = "#c05a1c" if chosen else "#444"
    radius = 7 if chosen else 5
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}" stroke="white" stroke-width="1.5"/>'
    label_y = y + 4
    while any(abs(label_y - other_y) < 15 and abs(x - other_x) < 90 for other_x, other_y in taken):
        label_y += 15
    taken.append((x, label_y))
    beyond = x > WIDTH - MARGIN_RIGHT - 80
    anchor, label_x = ("end", x - 11) if beyond else ("start", x + 11)
    weight = ' font-weight="bold"' if chosen else ""
    yield (
        f'<text x="{label_x:.1f}" y="{label_y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight} '
        f'paint-order="stroke" stroke="white" stroke-width="3">{escape(name)}</text>'
    )


def _ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 6
    power = 10 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough)
    first = math.ceil(low / step)
    return [round(step * i, 10) for i in range(first, math.floor(high / step) + 1)]


def _scale(low: float, high: float, start: float, end: float) -> Scale:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _map(plan: OverlayPlan, places: Mapping[Region, Place]) -> Iterator[str]:
    centre = _centre(plan, places)
    x = _scale(-180.0, 180.0, 0.0, float(WIDTH))
    y = _scale(LATITUDE_TOP, LATITUDE_BOTTOM, 0.0, float(MAP_HEIGHT))
    yield f'<clipPath id="frame"><rect width="{WIDTH}" height="{MAP_HEIGHT}"/></clipPath><g clip-path="url(#frame)">'
    yield f'<rect width="{WIDTH}" height="{MAP_HEIGHT}" fill="#eef4f7"/>'
    for ring in _coastlines():
        turned = _unwrapped([(_turn(lon, centre), lat) for lon, lat in ring])
        for shift in (-360.0, 0.0, 360.0):
            shifted = [(lon + shift, lat) for lon, lat in turned]
            if max(lon for lon, _ in shifted) < -180 or min(lon for lon, _ in shifted) > 180:
                continue
            points = " ".join(f"{x(lon):.1f},{y(lat):.1f}" for lon, lat in shifted)
            yield f'<polygon points="{points}" fill="#d5dbd3" stroke="#b9c2b6" stroke-width="0.6"/>'
    where = {r: (x(_turn(p.longitude_deg, centre)), y(p.latitude_deg)) for r, p in places.items()}
    for number, route in enumerate(plan.routes):
        colour = COLOURS[number % len(COLOURS)]
        for src, dst in zip(route.regions, route.regions[1:], strict=False):
            yield _arc(where[src], where[dst], colour, 1.5 + 6 * route.share, number)
    taken: list[tuple[float, float]] = []
    for region, count in plan.machine_counts.items():
        yield from _station(region, count, where[region], taken)
    yield "</g>"
    for number, route in enumerate(plan.routes[: len(COLOURS)]):
        text = f"{route.share:.0%} {format_gbps(route.gbps)}"
        top = MAP_HEIGHT - 14 - 17 * (min(len(plan.routes), len(COLOURS)) - 1 - number)
        yield f'<rect x="12" y="{top - 9}" width="22" height="6" fill="{COLOURS[number]}"/>'
        yield f'<text x="42" y="{top}">{escape(text)}</text>'


def _centre(plan: OverlayPlan, places: Mapping[Region, Place]) -> float:
    """The meridian in the middle of the plan's regions, so that no route is cut by the map's edge."""
    angles = [math.radians(places[r].longitude_deg) for r in plan.machine_counts]
    east, north = sum(map(math.cos, angles)), sum(map(math.sin, angles))
    return math.degrees(math.atan2(north, east)) if math.hypot(east, north) > 0.1 else 0.0


def _turn(longitude_deg: float, centre_deg: float) -> float:
    return (longitude_deg - centre_deg + 180.0) % 360.0 - 180.0


def _unwrapped(ring: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """A ring that does not jump at the map's edge."""
    points = [ring[0]]
    for lon, lat in ring[1:]:
        last = points[-1][0]
        points.append((lon + 360.0 * round((last - lon) / 360.0), lat))
    return points


def _arc(start: tuple[float, float], end: tuple[float, float], colour: str, width: float, number: int) -> str:
    """A bowed line, each route bowed a little more, so that routes over the same hop stay apart."""
    (x1, y1), (x2, y2) = start, end
    bow = 0.12 + 0.05 * number
    control = ((x1 + x2) / 2 + (y1 - y2) * bow, (y1 + y2) / 2 - abs(x2 - x1) * bow)
    return (
        f'<path d="M{x1:.1f},{y1:.1f} Q{control[0]:.1f},{control[1]:.1f} {x2:.1f},{y2:.1f}" fill="none" '
        f'stroke="{colour}" stroke-width="{width:.1f}" stroke-linecap="round" opacity="0.85"/>'
    )


def _station(region: Region, count: int, at: tuple[float, float], taken: list[tuple[float, float]]) -> Iterator[str]:
    x, y = at
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="white" stroke="#222" stroke-width="2"/>'
    label = f"{region} ×{count}"
    label_y = y + 20
    while any(abs(label_y - other_y) < 15 and abs(x - other_x) < 7.2 * len(label) for other_x, other_y in taken):
        label_y += 15
    taken.append((x, label_y))
    half = 3.8 * len(label)
    label_x = min(max(x, half), WIDTH - half)
    yield (
        f'<text x="{label_x:.1f}" y="{label_y:.1f}" text-anchor="middle" paint-order="stroke" stroke="white" '
        f'stroke-width="3">{escape(label)}</text>'
    )


def _coastlines() -> list[list[tuple[float, float]]]:
    text = (files("tradewind.catalog") / "data" / "coastlines.txt").read_text(encoding="utf-8")
    rings = []
    for line in text.splitlines():
        if not line.startswith("#"):
            pairs = (point.split(",") for point in line.split())
            rings.append([(float(lon), float(lat)) for lon, lat in pairs])
    return rings
