"""The picture of routes over which others draw: the lines of the hops are where the picture has them."""

from __future__ import annotations

from xml.etree import ElementTree

import tradewind
from tests.render.small_world import SEATTLE, TOKYO, TORONTO, small_world
from tradewind.catalog.packaged import read_packaged
from tradewind.model.region import Region, RegionInfo
from tradewind.render import style
from tradewind.render.route_map import RouteMap, route_map

SVG = "{http://www.w3.org/2000/svg}"


def mapped(places: dict[Region, RegionInfo]) -> RouteMap:
    plan = tradewind.plan(str(TORONTO), str(TOKYO), volume_gb=50, max_vms=2, goal="fastest", catalog=small_world())
    return route_map(plan.overlay, places)


def test_hops_begin_and_end_at_their_regions() -> None:
    found = mapped(dict(read_packaged().places))
    drawn = ElementTree.fromstring(found.svg)
    assert (float(drawn.get("width", 0)), float(drawn.get("height", 0))) == (style.WIDTH, found.height)
    dots = {
        (float(dot.get("cx", 0)), float(dot.get("cy", 0))) for dot in drawn.iter(f"{SVG}circle") if dot.get("stroke")
    }
    assert {(hop.src, hop.dst) for hop in found.hops} >= {(TORONTO, SEATTLE), (SEATTLE, TOKYO)}
    for hop in found.hops:
        for end in (hop.lines[0][0], hop.lines[0][-1]):
            assert min(abs(end[0] - x) + abs(end[1] - y) for x, y in dots) < 0.2
        assert 0 < hop.figures_at[0] < style.WIDTH and 0 < hop.figures_at[1] < found.height


def test_regions_without_locations_are_drawn_in_columns_without_land() -> None:
    found = mapped({})
    assert style.LAND not in found.svg
    first = next(hop for hop in found.hops if hop.src == TORONTO)
    last = next(hop for hop in found.hops if hop.dst == TOKYO)
    assert first.lines[0][0][0] < first.lines[0][-1][0] <= last.lines[0][-1][0]
