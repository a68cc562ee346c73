"""Pictures of plans: a heading with figures, the routes on a map, and the frontier with the plan and its alternatives.

The SVG is written by hand: for some hundred elements, a plotting library would cost a second of start-up and 60 MB.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from tradewind.errors import UsageError
from tradewind.model.overlay import MulticastOverlay, UnicastOverlay
from tradewind.model.records import dataclass
from tradewind.model.region import Region, RegionInfo
from tradewind.model.units import format_duration, format_gbps, format_usd, format_volume
from tradewind.render import chart, style, world_map
from tradewind.render.labels import text_width

if TYPE_CHECKING:
    from tradewind.planner.frontier import Frontier

__all__ = ["Picture", "check_picture_path", "composed", "frontier_picture", "plan_picture"]

MARGIN = 24
TITLE_SIZE = 20
TEXT_SIZE = 13
LINE_HEIGHT = 22
TILES_HEIGHT = 64
TILE_WIDTH = 200
GAP = 12


@dataclass(frozen=True)
class Picture:
    """A drawing. A notebook shows it; `save` writes it as SVG or PNG."""

    svg: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture as SVG or PNG, by the suffix of the name.

        Raises:
            UsageError: another suffix, PNG without the extra `plot`, or a file that cannot be written.
        """
        content = self.svg.encode()
        if check_picture_path(os.fspath(path)) == "png":
            from tradewind.render.raster import png_of

            content = png_of(self.svg)
        try:
            Path(path).write_bytes(content)
        except OSError as error:
            raise UsageError(f"{os.fspath(path)}: {error.strerror}") from error

    def __repr__(self) -> str:
        return f"<Picture: SVG of {len(self.svg):,} characters>"

    def _repr_svg_(self) -> str:
        return self.svg


def check_picture_path(path: str) -> str:
    """Return `svg` or `png`. Raises UsageError for another suffix, a missing folder, or PNG without its library."""
    ending = path.rpartition(".")[2].lower() if "." in path else ""
    if ending not in ("svg", "png"):
        raise UsageError(f"a plot is an SVG or PNG file, not {path}", hint="use a name that ends in .svg or .png")
    if ending == "png":
        from tradewind.render.raster import require_rasteriser

        require_rasteriser()
    folder = Path(path).parent
    if not folder.is_dir():
        raise UsageError(f"{path}: there is no folder {folder}")
    return ending


def plan_picture(
    plan: UnicastOverlay | MulticastOverlay,
    frontier: Frontier | None,
    rivals: Sequence[chart.Mark],
    places: Mapping[Region, RegionInfo],
) -> Picture:
    """Return heading, map (if the regions' locations are known) and, with a frontier, the chart.

    `rivals` are alternatives for the same transfer. The one whose name begins with `direct` is also in the heading.
    """
    chosen = chart.Mark.of("this plan", plan)
    direct = next((mark for mark in rivals if mark.name.startswith("direct")), None)
    heading, height = _heading(plan.source, plan.destinations, plan.volume_gb, f", {plan.goal}")
    heading += _tiles(chosen, direct, height)
    blocks = []
    if world_map.can_be_mapped(plan, places):
        blocks.append((world_map.HEIGHT, list(world_map.draw_map(world_map.lay_out(plan, places)))))
        blocks.append(world_map.draw_legend(plan))
    if frontier is not None:
        blocks.append((chart.HEIGHT, list(chart.draw_chart(frontier, chosen, rivals))))
    return composed(heading, height + TILES_HEIGHT, blocks)


def frontier_picture(
    source: Region, destinations: Sequence[Region], volume_gb: float, frontier: Frontier, rivals: Sequence[chart.Mark]
) -> Picture:
    """Return heading and chart."""
    heading, height = _heading(source, destinations, volume_gb, ": every efficient pair of cost and rate")
    return composed(heading, height + 20, [(chart.HEIGHT, list(chart.draw_chart(frontier, None, rivals)))])


def _heading(source: Region, destinations: Sequence[Region], volume_gb: float, words: str) -> tuple[list[str], int]:
    """Return the lines of the heading, and the position of its last line.

    It has source and destinations and, smaller, the volume and `words`. Destinations that do not fit on one line wrap.
    """
    room = style.WIDTH - 2 * MARGIN
    names = ", ".join(map(str, destinations))
    lines = [f"{source} → {names}"]
    if text_width(lines[0], TITLE_SIZE) > room:
        lines = [f"{source} → {len(destinations)} destinations", *wrap(names, int(room / text_width("x", TEXT_SIZE)))]
    lines.append(f"{format_volume(volume_gb)}{' to each' if len(destinations) > 1 else ''}{words}")
    drawn = [style.text(MARGIN, 36, lines[0], size=TITLE_SIZE, bold=True)]
    for number, line in enumerate(lines[1:], 1):
        drawn.append(style.text(MARGIN, 36 + LINE_HEIGHT * number, line, size=TEXT_SIZE, colour=style.MUTED))
    return drawn, 36 + LINE_HEIGHT * (len(lines) - 1)


def _tiles(chosen: chart.Mark, direct: chart.Mark | None, below: int) -> Iterator[str]:
    tiles = [
        ("rate", format_gbps(chosen.gbps), direct and format_gbps(direct.gbps)),
        ("time", format_duration(chosen.time_s), direct and format_duration(direct.time_s)),
        ("cost", format_usd(chosen.cost_usd), direct and format_usd(direct.cost_usd)),
        ("machines", f"{chosen.machines}", direct and f"{direct.machines}"),
    ]
    for number, (name, figure, of_direct) in enumerate(tiles):
        x = MARGIN + TILE_WIDTH * number
        yield style.text(x, below + 34, figure, size=18, bold=True)
        words = f"{name} (direct: {of_direct})" if of_direct else name
        yield style.text(x, below + 52, words, size=11.5, colour=style.MUTED)


def composed(heading: Sequence[str], heading_height: int, blocks: Sequence[tuple[int, Sequence[str]]]) -> Picture:
    """Return a picture of a heading and, below it, blocks with their heights."""
    parts, top = list(heading), heading_height
    for height, elements in blocks:
        parts += [f'<g transform="translate(0 {top})">', *elements, "</g>"]
        top += height + GAP
    frame = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {style.WIDTH} {top}" width="{style.WIDTH}" '
        f'height="{top}" font-family="{style.FONT}" font-size="13" fill="{style.INK}">',
        f'<rect width="{style.WIDTH}" height="{top}" fill="white"/>',
    )
    return Picture("\n".join([*frame, *parts, "</svg>"]) + "\n")
