"""The routes of a plan on a map: great circles, as wide as their share, side by side on shared hops.

A drawn route is a route to one destination, or a tree to several; regions that copy a tree's bytes are marked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from zlib import crc32

from tradewind.model.overlay import DistributionTree, MulticastOverlay, OverlayRoute, UnicastOverlay
from tradewind.model.records import dataclass
from tradewind.model.region import Region, RegionInfo
from tradewind.model.units import format_count, format_gbps
from tradewind.render import style
from tradewind.render.globe import Point, Window, coastlines, great_circle, window_on
from tradewind.render.labels import Box, Labels, text_width

__all__ = ["MapLayout", "can_be_mapped", "draw_legend", "draw_map", "lay_out"]

HEIGHT = 430
RIBBON_PX = 13.0
"""Width of a route with all bytes; smaller shares are proportionally narrower, down to a minimum width."""
HAIR_PX = 1.6
REGION_PX = 6.0
ROW_PX = 20
"""Height of a line of the legend."""
LEGEND_LEFT, WORDS_AFTER = 24.0, 30.0
COPIES_PX = 10.0
"""Radius of the dashed ring around a region where bytes are copied."""
REGION_WEIGHT = 8.0
"""Penalty for a label that covers a region."""
APART_PX = 17.0
"""Minimum distance between drawn regions: clouds share cities, so closer regions are pushed apart."""
PUSHES_MAX = 40
BENT_PX_MAX = 300.0
"""Maximum shift of a drawn region; a larger distance means a turn around the globe."""
STEP_PX = 0.8
"""Minimum distance between points of a coast; closer ones are merged."""
ROUTES_NAMED_MAX = len(style.ROUTES)
SHARE_NAMED_MIN = 0.005
"""Minimum share of a coloured route or tree; smaller ones are thin lines of one colour."""
REGIONS_NAMED_MAX = 2
"""Maximum regions that the legend names per route; the labels on the map name all."""

Hop = tuple[Region, Region]
AnyPlan = UnicastOverlay | MulticastOverlay


@dataclass(frozen=True, slots=True)
class _DrawnRoute:
    """A route or a tree."""

    hops: tuple[Hop, ...]
    share: float
    words: str


def can_be_mapped(plan: AnyPlan, places: Mapping[Region, RegionInfo]) -> bool:
    """Return whether the locations of all regions of the plan are known."""
    return all(region in places for edge in plan.edges for region in (edge.src, edge.dst))


@dataclass(frozen=True, slots=True)
class MapLayout:
    """Where a plan is drawn: its window of the world, its regions, and the great circle of each hop.

    `labels` has the areas that are covered. A layout is for one drawing, which adds to them.
    """

    plan: AnyPlan
    window: Window
    at: Mapping[Region, Point]
    circles: Mapping[Hop, Sequence[Point]]
    labels: Labels

    def lines(self, hop: Hop) -> list[list[Point]]:
        """Return the line of a hop in pixels; two if it leaves the map over one edge and returns over the other."""
        whole = self.window.lines(self.circles[hop])
        return [_anchored(line, self.at[hop[0]], self.at[hop[1]]) for line in whole]


def lay_out(plan: AnyPlan, places: Mapping[Region, RegionInfo]) -> MapLayout:
    """Return where the parts of a plan are on a map of `style.WIDTH` × `HEIGHT`."""
    circles = {hop: great_circle(places[hop[0]], places[hop[1]]) for route in _drawn_routes(plan) for hop in route.hops}
    window = window_on(list(circles.values()), style.WIDTH, HEIGHT)
    labels = Labels(Box(6, 6, style.WIDTH - 6, HEIGHT - 6))
    return MapLayout(plan, window, _region_points(plan, places, window), circles, labels)


def draw_map(layout: MapLayout, *, with_land: bool = True) -> Iterator[str]:
    """Yield SVG elements, `style.WIDTH` × `HEIGHT`."""
    plan, at, labels = layout.plan, layout.at, layout.labels
    clip = f"map-{crc32(repr(at).encode()):08x}"  # unique among the pictures of one notebook page
    yield f'<clipPath id="{clip}"><rect width="{style.WIDTH}" height="{HEIGHT}"/></clipPath>'
    yield f'<g clip-path="url(#{clip})">'
    yield f'<rect width="{style.WIDTH}" height="{HEIGHT}" fill="{style.SEA}"/>'
    if with_land:
        yield f'<path d="{_land(layout.window)}" fill="{style.LAND}" fill-rule="evenodd"/>'
    yield from _ribbons(layout)
    for region, (x, y) in at.items():
        half = COPIES_PX if region in _copies(plan) else REGION_PX + 2
        labels.take(Box(x - half, y - half, x + half, y + half), REGION_WEIGHT)
    for region, (x, y) in at.items():
        yield from _drawn_region(plan, region, x, y, labels)
    yield "</g>"


def _drawn_routes(plan: AnyPlan) -> list[_DrawnRoute]:
    if isinstance(plan, MulticastOverlay):
        return [_DrawnRoute(tree.hops, tree.share, _tree_words(plan, tree)) for tree in plan.trees]
    return [_DrawnRoute(tuple(itertools.pairwise(r.regions)), r.share, _route_words(r)) for r in plan.routes]


def _copies(plan: AnyPlan) -> Mapping[Region, int]:
    return plan.copies if isinstance(plan, MulticastOverlay) else {}


def _land(window: Window) -> str:
    """Return all rings as one path, so that lakes remain water. Rings cut by the map's edge appear twice."""
    parts = []
    for ring in coastlines():
        for turn in (-360.0, 0.0, 360.0, 720.0, -720.0):
            points = [window.xy((lon + turn, lat)) for lon, lat in ring]
            if max(x for x, _ in points) < 0 or min(x for x, _ in points) > window.width:
                continue
            if max(y for _, y in points) < 0 or min(y for _, y in points) > window.height:
                continue
            kept = _thinned(points)
            if len(kept) > 2:
                parts.append("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in kept) + "Z")
    return "".join(parts)


def _thinned(points: Sequence[Point]) -> list[Point]:
    kept = [points[0]]
    for x, y in points[1:]:
        if abs(x - kept[-1][0]) >= STEP_PX or abs(y - kept[-1][1]) >= STEP_PX:
            kept.append((x, y))
    return kept


def _region_points(plan: AnyPlan, places: Mapping[Region, RegionInfo], window: Window) -> dict[Region, Point]:
    """Return the position of each region, shifted slightly if another region is drawn there."""
    at = {region: window.home(places[region]) for edge in plan.edges for region in (edge.src, edge.dst)}
    for _ in range(PUSHES_MAX):
        moved = False
        for one, other in itertools.combinations(at, 2):
            (x1, y1), (x2, y2) = at[one], at[other]
            distance = math.hypot(x2 - x1, y2 - y1)
            if distance >= APART_PX - 0.1:
                continue
            dx, dy = ((x2 - x1) / distance, (y2 - y1) / distance) if distance > 0.5 else (1.0, 0.0)
            push = (APART_PX - distance) / 2
            at[one], at[other] = (x1 - dx * push, y1 - dy * push), (x2 + dx * push, y2 + dy * push)
            moved = True
        if not moved:
            break
    return at


def _ribbons(layout: MapLayout) -> Iterator[str]:
    """Yield each route's ribbon over each of its hops, side by side with the others of that hop."""
    drawn = _drawn_routes(layout.plan)
    users: dict[frozenset[Region], list[int]] = {}
    for number, route in enumerate(drawn):
        for hop in route.hops:
            users.setdefault(frozenset(hop), []).append(number)
    chevrons = []
    for number, route in reversed(list(enumerate(drawn))):
        for hop in route.hops:
            sharing = users[frozenset(hop)]
            widths = [_width(drawn[n]) for n in sharing]
            before = sum(widths[: sharing.index(number)])
            aside = before + _width(route) / 2 - sum(widths) / 2
            for whole in layout.lines(hop):
                line = _aside(whole, aside, hop[0] < hop[1])
                layout.labels.take_line(_dense(line), _width(route))
                points = "L".join(f"{x:.1f} {y:.1f}" for x, y in line)
                yield (
                    f'<path d="M{points}" fill="none" stroke="{_colour(number, route)}" '
                    f'stroke-width="{_width(route):.1f}" '
                    'stroke-linejoin="round" opacity="0.9"/>'
                )
                chevrons.append(_chevron(line, _width(route)))
    yield from filter(None, chevrons)


def _width(route: _DrawnRoute) -> float:
    return max(HAIR_PX, RIBBON_PX * route.share)


def _colour(number: int, route: _DrawnRoute) -> str:
    """Return the colour of a route; routes that the legend does not name share one."""
    return style.ROUTES[number] if number < ROUTES_NAMED_MAX and route.share >= SHARE_NAMED_MIN else style.OTHER_ROUTES


def _anchored(line: Sequence[Point], start: Point, end: Point) -> list[Point]:
    """Return the line, bent to the drawn positions of its regions, except for an end beyond the world's edge."""
    (x1, y1), (x2, y2) = line[0], line[-1]
    (dx1, dy1), (dx2, dy2) = (
        (0.0, 0.0) if math.hypot(*by) > BENT_PX_MAX else by
        for by in ((start[0] - x1, start[1] - y1), (end[0] - x2, end[1] - y2))
    )
    bent = []
    for index, (x, y) in enumerate(line):
        along = index / (len(line) - 1)
        bent.append((x + dx1 * (1 - along) + dx2 * along, y + dy1 * (1 - along) + dy2 * along))
    return bent


def _aside(line: Sequence[Point], distance: float, forwards: bool) -> list[Point]:
    """Return the line, moved sideways. Both directions of a hop agree on which side is left."""
    sign = distance if forwards else -distance
    moved = []
    for index, (x, y) in enumerate(line):
        (x1, y1), (x2, y2) = line[max(0, index - 1)], line[min(len(line) - 1, index + 1)]
        length = math.hypot(x2 - x1, y2 - y1) or 1.0
        moved.append((x - sign * (y2 - y1) / length, y + sign * (x2 - x1) / length))
    return moved


def _dense(line: Sequence[Point]) -> list[Point]:
    """Return the points of a line, close enough to each other to mark its whole area."""
    points = []
    for (x1, y1), (x2, y2) in itertools.pairwise(line):
        steps = max(1, math.ceil(math.hypot(x2 - x1, y2 - y1) / 6))
        points += [(x1 + (x2 - x1) * s / steps, y1 + (y2 - y1) * s / steps) for s in range(steps)]
    return [*points, line[-1]]


def _chevron(line: Sequence[Point], width: float) -> str:
    """Return an arrow in the direction of the bytes; none on thin lines and on very short hops."""
    points = _dense(line)
    if width < 4 or len(points) < 8:
        return ""
    middle = len(points) // 2
    (x1, y1), (x2, y2) = points[middle - 1], points[middle + 1]
    angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
    size = width * 0.28
    return (
        f'<path d="M{-size:.1f} {-size:.1f}L{size * 0.6:.1f} 0L{-size:.1f} {size:.1f}" fill="none" stroke="white" '
        f'stroke-width="{max(1.2, width * 0.16):.1f}" stroke-linecap="round" stroke-linejoin="round" '
        f'transform="translate({points[middle][0]:.1f} {points[middle][1]:.1f}) rotate({angle:.1f})"/>'
    )


def _drawn_region(plan: AnyPlan, region: Region, x: float, y: float, labels: Labels) -> Iterator[str]:
    name, machines = str(region), _machines(plan, region)
    width = max(text_width(name, 13) * 1.06, text_width(machines, 11.5))
    box, lead = labels.place(x, y, width, 29, COPIES_PX + 1)
    if lead:
        near_x, near_y = box.nearest(x, y)
        yield (
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{near_x:.1f}" y2="{near_y:.1f}" stroke="{style.INK}" '
            'stroke-width="0.8"/>'
        )
    ends = region == plan.source or region in plan.destinations
    if region in _copies(plan):
        yield _copies_ring(x, y, COPIES_PX)
    fill = style.INK if region == plan.source else "white"
    yield (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{REGION_PX if ends else REGION_PX - 1.5}" fill="{fill}" '
        f'stroke="{style.INK}" stroke-width="2"/>'
    )
    if region in plan.destinations:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{style.INK}"/>'
    right_aligned = box.right < x
    anchor, label_x = ("end", box.right) if right_aligned else ("start", box.left)
    if box.left < x < box.right and not lead:
        anchor, label_x = "middle", (box.left + box.right) / 2
    yield style.text(label_x, box.top + 12, name, bold=True, anchor=anchor, halo=True)
    yield style.text(label_x, box.top + 26, machines, size=11.5, colour=style.MUTED, anchor=anchor, halo=True)


def _machines(plan: AnyPlan, region: Region) -> str:
    here = [m for m in plan.machines if m.region == region]
    machines = f"{here[0].count} × {here[0].offer.name}" if here else ""
    if len(here) > 1:
        machines = f"{sum(m.count for m in here)} machines"
    count = _copies(plan).get(region)
    return f"{machines}, {format_count(count, 'copy', 'copies')}" if count else machines


def draw_legend(plan: AnyPlan) -> tuple[int, list[str]]:
    """Return height and SVG elements of the legend: colours and marks, in two columns if they fit."""
    drawn = _drawn_routes(plan)
    named = [route for route in drawn[:ROUTES_NAMED_MAX] if route.share >= SHARE_NAMED_MIN]
    entries = [(_colour(n, route), route.words) for n, route in enumerate(named)]
    others = drawn[len(named) :]
    if others:
        share = sum(route.share for route in others)
        much = f"{share:.0%}" if share >= SHARE_NAMED_MIN else "<1%"
        entries.append((style.OTHER_ROUTES, f"{much}: {len(others)} more {'routes' if len(others) > 1 else 'route'}"))
    if _copies(plan):
        entries.append(("", "bytes are copied here"))
    column_px = style.WIDTH / 2
    fits = all(text_width(words, 12) <= column_px - LEGEND_LEFT - WORDS_AFTER for _, words in entries)
    rows = math.ceil(len(entries) / 2) if fits else len(entries)
    parts = []
    for number, (colour, words) in enumerate(entries):
        x = LEGEND_LEFT + column_px * (number // rows)
        y = 16.0 + ROW_PX * (number % rows)
        if colour:
            parts.append(f'<rect x="{x:.0f}" y="{y - 8:.0f}" width="22" height="7" rx="1.5" fill="{colour}"/>')
        else:
            parts.append(_copies_ring(x + 11, y - 4, 6.0))
        parts.append(style.text(x + WORDS_AFTER, y, words, size=12))
    return rows * ROW_PX, parts


def _copies_ring(x: float, y: float, radius: float) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="none" stroke="{style.INK}" stroke-width="1.6" '
        'stroke-dasharray="3 2"/>'
    )


def _route_words(route: OverlayRoute) -> str:
    relays = route.regions[1:-1]
    return f"{route.share:.0%}: {format_gbps(route.gbps)} {'via ' + _few(relays) if relays else 'direct'}"


def _tree_words(plan: MulticastOverlay, tree: DistributionTree) -> str:
    """Return share, rate and the regions that copy."""
    copied = list(tree.copies(plan.destinations))
    relayed = [region for region in dict.fromkeys(src for src, _ in tree.hops) if region != plan.source]
    where = f"copied at {_few(copied)}" if copied else f"via {_few(relayed)}" if relayed else "direct"
    return f"{tree.share:.0%}: {format_gbps(tree.gbps)} {where}"


def _few(regions: Sequence[Region]) -> str:
    named = ", ".join(map(str, regions[:REGIONS_NAMED_MAX]))
    return f"{named} and {len(regions) - REGIONS_NAMED_MAX} more" if len(regions) > REGIONS_NAMED_MAX else named
