"""Pictures: well-formed, geographically correct, without overlaps, and as PNG if the optional package is installed."""

from __future__ import annotations

import itertools
import re
import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import tradewind
from tests.planner.worlds import random_world
from tests.render.small_world import OSAKA, SEATTLE, TOKYO, TORONTO, small_world, without_places
from tradewind.catalog.load import load_catalog
from tradewind.cli.main import main
from tradewind.errors import TradewindError, UsageError
from tradewind.model.region import Region
from tradewind.planner.frontier import Frontier
from tradewind.render import raster, style
from tradewind.render.chart import BOTTOM, HEIGHT, draw_chart
from tradewind.render.globe import coastlines, great_circle, window_on
from tradewind.render.labels import Box, Labels, text_width

SVG = "{http://www.w3.org/2000/svg}"
ENDS = (str(TORONTO), str(TOKYO))


def picture(**kwargs: Any) -> ElementTree.Element:
    catalog = kwargs.pop("catalog", None) or small_world()
    plan = tradewind.plan(*ENDS, volume_gb=50, max_vms=2, goal="fastest", catalog=catalog)
    return ElementTree.fromstring(plan.plot().svg)


def words_of(svg: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in svg.iter(f"{SVG}text")]


def test_a_picture_states_the_plan() -> None:
    words = words_of(picture())
    assert words[0] == "azure:canadacentral → gcp:asia-northeast1"
    assert "50.0 GB, fastest at any cost" in words
    for name in ("direct", "RON", "this plan", str(TOKYO), str(TORONTO), str(SEATTLE)):
        assert words.count(name) == 1, name
    assert any(w.endswith("via azure:westus2") for w in words)


def test_regions_of_problem_files_are_located_by_their_names() -> None:
    svg = picture(catalog=without_places(small_world()))
    assert svg.find(f".//{SVG}clipPath") is not None
    assert words_of(svg).count(str(SEATTLE)) == 1


def test_pictures_on_one_page_do_not_share_names() -> None:
    names = {clip.get("id") for clip in picture().iter(f"{SVG}clipPath")}
    straight = tradewind.plan(*ENDS, volume_gb=50, max_vms=2, goal="cheapest", catalog=small_world())
    others = {clip.get("id") for clip in ElementTree.fromstring(straight.plot().svg).iter(f"{SVG}clipPath")}
    assert names
    assert others
    assert not names & others


def test_unknown_regions_are_not_mapped() -> None:
    catalog = random_world(1, 4)
    plan = tradewind.plan("p:r0", "p:r2", volume_gb=50, max_vms=1, goal="fastest", catalog=catalog)
    svg = ElementTree.fromstring(plan.plot().svg)
    assert "this plan" in words_of(svg)
    assert svg.find(f".//{SVG}clipPath") is None


def test_the_legend_is_below_the_map_and_inside_the_picture() -> None:
    svg = picture()
    words = [text for text in svg.iter(f"{SVG}text") if (text.text or "").endswith("via azure:westus2")]
    assert len(words) == 1
    legend = next(group for group in svg.iter(f"{SVG}g") if words[0] in list(group))
    assert legend.find(f"{SVG}clipPath") is None, "the legend is not drawn onto the map"
    assert float(words[0].get("x", "0")) + text_width(words[0].text or "", 12) <= style.WIDTH


def drawn_chart(frontier: Frontier) -> ElementTree.Element:
    return ElementTree.fromstring(f"<svg>{''.join(draw_chart(frontier, None, []))}</svg>")


def test_the_rate_axis_begins_at_zero_even_if_all_rates_are_equal() -> None:
    whole = tradewind.frontier(str(TORONTO), str(TOKYO), volume_gb=50, max_vms=2, catalog=small_world()).frontier
    alike = replace(whole, segments=whole.segments[-1:])
    assert alike.segments[0].rate_from_gbps > 0.5 * alike.segments[0].rate_to_gbps
    chart = drawn_chart(alike)
    zero = next(text for text in chart.iter("text") if text.text == "0")
    axis = [line for line in chart.iter("line") if line.get("y1") == str(HEIGHT - BOTTOM)]
    assert axis
    assert float(zero.get("y", "0")) == pytest.approx(HEIGHT - BOTTOM + 4)


def test_an_axis_of_costs_that_does_not_begin_at_zero_is_marked() -> None:
    whole = tradewind.frontier(str(TORONTO), str(TOKYO), volume_gb=50, max_vms=2, catalog=small_world()).frontier
    assert [title.text for title in drawn_chart(whole).iter("title")] == ["the axis does not begin at $0"]


def test_labels_overlap_neither_each_other_nor_stations() -> None:
    labels = Labels(Box(0, 0, 1000, 400))
    stations = [(500.0 + 17 * i, 200.0) for i in range(4)]
    for x, y in stations:
        labels.take(Box(x - 8, y - 8, x + 8, y + 8), 3.0)
    placed = [labels.place(x, y, 120, 29, 10)[0] for x, y in stations]
    for one, other in itertools.combinations(placed, 2):
        assert one.overlap(other) == 0
    for box in placed:
        assert all(box.overlap(Box(x - 8, y - 8, x + 8, y + 8)) == 0 for x, y in stations)
        assert box.outside(Box(0, 0, 1000, 400)) == 0


def test_links_are_drawn_as_great_circles() -> None:
    places = load_catalog().places
    london, tokyo = places[Region("aws", "eu-west-2")], places[Region("aws", "ap-northeast-1")]
    way = great_circle(london, tokyo)
    assert way[0] == pytest.approx((london.longitude_deg, london.latitude_deg))
    assert way[-1] == pytest.approx((tokyo.longitude_deg, tokyo.latitude_deg))
    assert max(lat for _, lat in way) == pytest.approx(71.2, abs=1.0)  # over the Arctic coast of Siberia


def test_a_link_over_the_pacific_is_not_split() -> None:
    places = load_catalog().places
    way = great_circle(places[TOKYO], places[SEATTLE])
    window = window_on([way], 1000, 430)
    (line,) = window.lines(way)
    assert all(0 < x < 1000 and 0 < y < 430 for x, y in line)
    assert max(abs(a - b) for (a, _), (b, _) in itertools.pairwise(line)) < 60


def test_a_link_around_the_world_is_split_once_and_no_line_crosses_the_map() -> None:
    names = ["aws:us-east-1", "aws:eu-west-1", "aws:ap-northeast-1", "gcp:australia-southeast1"]
    around = [load_catalog().places[Region.parse(name)] for name in names]
    lines = [great_circle(a, b) for a, b in zip(around, [*around[1:], around[0]], strict=True)]
    window = window_on(lines, 1000, 430)
    drawn = [window.lines(line) for line in lines]
    assert sorted(map(len, drawn)) == [1, 1, 1, 2], "one line leaves over one edge and enters over the other"
    for place, line, copies in zip(around, lines, drawn, strict=True):
        x, y = window.home(place)
        assert 30 < x < 970, "the split is not beside a station"
        assert any(copy[0] == pytest.approx((x, y)) for copy in copies), line[0]
        assert all(abs(a - b) < 100 for copy in copies for (a, _), (b, _) in itertools.pairwise(copy))


def test_lines_to_labels_do_not_cross_other_labels() -> None:
    labels = Labels(Box(0, 0, 1000, 400))
    labels.take(Box(380, 120, 580, 195), 4.0)
    labels.take(Box(380, 205, 580, 280), 4.0)
    labels.take(Box(300, 100, 495, 300), 4.0)
    box, lead = labels.place(500, 200, 120, 29, 10)
    assert lead
    assert box.left >= 580, "not above or below the occupied area"


def test_regions_of_one_city_are_drawn_apart() -> None:
    assert load_catalog().places[OSAKA] != load_catalog().places[TOKYO]
    svg = picture()
    circles = [
        (float(c.get("cx", "0")), float(c.get("cy", "0"))) for c in svg.iter(f"{SVG}circle") if c.get("r") != "2.4"
    ]
    stations = [c for c in circles if c[1] < 430]
    assert len(stations) >= 3
    for (x1, y1), (x2, y2) in itertools.combinations(set(stations), 2):
        assert abs(x1 - x2) + abs(y1 - y2) > 10


def test_the_coastlines_are_closed_and_on_the_globe() -> None:
    rings = list(coastlines())
    assert len(rings) > 200
    for ring in rings:
        assert len(ring) >= 4
        assert ring[0] == ring[-1]
        assert all(-61 <= lat <= 90 and -200 <= lon <= 200 for lon, lat in ring)
        assert all(abs(a - b) < 180 for (a, _), (b, _) in itertools.pairwise(ring))


def test_png_shows_the_same_as_svg(tmp_path: Path) -> None:
    plan = tradewind.plan(*ENDS, volume_gb=50, max_vms=2, goal="fastest", catalog=small_world())
    drawing = plan.plot(tmp_path / "plan.png")
    content = (tmp_path / "plan.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', drawing.svg)
    assert size is not None
    assert (width, height) == (int(size[1]) * raster.PNG_ZOOM, int(size[2]) * raster.PNG_ZOOM)


def test_png_without_a_font_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raster, "_has_fonts", lambda _: False)
    with pytest.raises(TradewindError, match="none of the fonts") as refused:
        raster.png_of("<svg xmlns='http://www.w3.org/2000/svg'/>")
    assert refused.value.hint is not None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("plan.png", "PNG needs the optional package resvg-py"),
        ("plan.pdf", "a plot is an SVG or PNG file, not plan.pdf"),
        ("plan", "a plot is an SVG or PNG file, not plan"),
    ],
)
def test_an_undrawable_picture_is_refused_before_planning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    assert main(["plan", "aws:us-east-1", "no:where", "--plot", name]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 2
    assert words in lines[0]
    assert lines[1].startswith("hint: ")
    with pytest.raises(UsageError, match=words):
        tradewind.Picture("<svg/>").save(name)
