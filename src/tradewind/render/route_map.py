"""The routes of a plan as a picture that others draw over: with the line of each hop, and a place for its figures.

Regions whose locations are not all known, such as a user's own sites, are drawn in columns from the source to the
destination, without land.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from tradewind.model.overlay import UnicastOverlay
from tradewind.model.records import dataclass
from tradewind.model.region import Region, RegionInfo
from tradewind.render import style, world_map
from tradewind.render.picture import GAP, composed

__all__ = ["MappedHop", "RouteMap", "route_map"]

FIGURE_WIDTH, FIGURE_HEIGHT = 124, 24
"""Size of the figures of a hop."""
FIGURE_GAP = 9.0
COLUMNS_DEG, ROWS_DEG = 50.0, 24.0
"""Extent of the columns without land, as if they were around the equator, where the map is true to shape."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class MappedHop:
    """The flow from one region to the next: its lines, and the middle of its figures [px]."""

    src: Region
    dst: Region
    lines: Sequence[Sequence[Point]]
    figures_at: Point


@dataclass(frozen=True, slots=True)
class RouteMap:
    """An SVG picture, its size [px], and the hops on it."""

    svg: str
    width: int
    height: int
    hops: tuple[MappedHop, ...]


def route_map(plan: UnicastOverlay, places: Mapping[Region, RegionInfo]) -> RouteMap:
    """Draw the routes of a plan, with a legend."""
    has_land = world_map.can_be_mapped(plan, places)
    layout = world_map.lay_out(plan, places if has_land else _columns(plan))
    drawn = list(world_map.draw_map(layout, with_land=has_land))
    legend_height, legend = world_map.draw_legend(plan)
    hops = []
    for src, dst in dict.fromkeys(hop for route in plan.routes for hop in itertools.pairwise(route.regions)):
        lines = layout.lines((src, dst))
        x, y = lines[0][len(lines[0]) // 2]
        box, _ = layout.labels.place(x, y, FIGURE_WIDTH, FIGURE_HEIGHT, FIGURE_GAP)
        hops.append(MappedHop(src, dst, lines, ((box.left + box.right) / 2, (box.top + box.bottom) / 2)))
    blocks = [(world_map.HEIGHT, drawn), (legend_height, legend)]
    height = sum(block + GAP for block, _ in blocks)
    return RouteMap(composed((), 0, blocks).svg, style.WIDTH, height, tuple(hops))


def _columns(plan: UnicastOverlay) -> dict[Region, RegionInfo]:
    """Return invented locations: the source on the left, the destination on the right, relays between."""
    column = {plan.source: 0}
    for route in plan.routes:
        for number, region in enumerate(route.regions):
            column[region] = max(number, column.get(region, 0))
    last = column[plan.destination] = max(column.values())
    made = {}
    for number in range(last + 1):
        here = [region for region in column if column[region] == number]
        for row, region in enumerate(here):
            aside = (row + 1) / (len(here) + 1) - 0.5
            # Alone between the ends, a relay would be on the direct route.
            lifted = 0.3 if len(here) == 1 and region not in plan.ends else aside
            place = ROWS_DEG * lifted, COLUMNS_DEG * (number / last - 0.5)
            made[region] = RegionInfo(region, region.name, *place, "")
    return made
