"""Pictures of plans: a heading with the figures, the routes on a map, the frontier with the plan and its rivals.

Written as SVG by hand: some hundred elements need no plotting library, which would cost a second of start-up and 60 MB.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.errors import UsageError
from tradewind.model.amounts import format_gbps, format_usd, format_volume
from tradewind.model.overlay import OverlayPlan
from tradewind.model.region import Place, Region
from tradewind.model.units import format_duration
from tradewind.planning import chart, style, world_map

if TYPE_CHECKING:
    from tradewind.planner.frontier import Frontier

__all__ = ["Picture", "check_picture_path", "frontier_picture", "plan_picture"]

HEADING_HEIGHT = 122
GAP = 26


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing. A notebook shows it; `save` writes it as SVG or PNG."""

    svg: str = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it; the name's end, `.svg` or `.png`, says in which form.

        Raises:
            UsageError: another ending, or PNG without the extra `plot`.
        """
        if check_picture_path(os.fspath(path)) == "svg":
            Path(path).write_text(self.svg, encoding="utf-8")
        else:
            from tradewind.planning.raster import png_of

            Path(path).write_bytes(png_of(self.svg))

    def _repr_svg_(self) -> str:
        return self.svg


def check_picture_path(path: str) -> str:
    """`svg` or `png`. Raises UsageError for a name that ends otherwise, or in `.png` where no PNG can be made."""
    ending = path.rpartition(".")[2].lower() if "." in path else ""
    if ending not in ("svg", "png"):
        raise UsageError(f"a picture is written as SVG or PNG, not as {path}", hint="end the name in .svg or .png")
    if ending == "png":
        from tradewind.planning.raster import require_rasteriser

        require_rasteriser()
    return ending


def plan_picture(
    plan: OverlayPlan, frontier: Frontier | None, rivals: Sequence[chart.Mark], places: Mapping[Region, Place]
) -> Picture:
    """Heading, map (problem files know no places: then none) and, with a frontier, the chart."""
    direct = next((made for name, made in rivals if name == "direct"), None)
    blocks = []
    if world_map.can_be_mapped(plan, places):
        blocks.append((world_map.HEIGHT, list(world_map.draw_map(plan, places))))
    if frontier is not None:
        blocks.append((chart.HEIGHT, list(chart.draw_chart(frontier, plan, rivals))))
    return _composed(list(_plan_heading(plan, direct)), HEADING_HEIGHT, blocks)


def frontier_picture(
    source: Region, destination: Region, volume_gb: float, frontier: Frontier, rivals: Sequence[chart.Mark]
) -> Picture:
    """Heading and chart."""
    heading = [
        style.text(24, 36, f"{source} → {destination}", size=20, bold=True),
        style.text(24, 58, f"{format_volume(volume_gb)}: every efficient pair of cost and rate", colour=style.MUTED),
    ]
    return _composed(heading, 78, [(chart.HEIGHT, list(chart.draw_chart(frontier, None, rivals)))])


def _plan_heading(plan: OverlayPlan, direct: OverlayPlan | None) -> Iterator[str]:
    yield style.text(24, 36, f"{plan.source} → {plan.destination}", size=20, bold=True)
    yield style.text(24, 58, f"{format_volume(plan.volume_gb)}, {plan.goal}", colour=style.MUTED)
    machines = sum(m.count for m in plan.machines)
    tiles = [
        ("rate", format_gbps(plan.throughput_gbps), direct and format_gbps(direct.throughput_gbps)),
        ("time", format_duration(plan.time_s), direct and format_duration(direct.time_s)),
        ("cost", format_usd(plan.cost.total_usd), direct and format_usd(direct.cost.total_usd)),
        ("machines", f"{machines}", direct and f"{sum(m.count for m in direct.machines)}"),
    ]
    for number, (name, figure, of_direct) in enumerate(tiles):
        x = 24 + 200 * number
        yield style.text(x, 92, figure, size=18, bold=True)
        words = f"{name} (direct: {of_direct})" if of_direct else name
        yield style.text(x, 110, words, size=11.5, colour=style.MUTED)


def _composed(heading: Sequence[str], heading_height: int, blocks: Sequence[tuple[int, Sequence[str]]]) -> Picture:
    parts, top = list(heading), heading_height
    for height, elements in blocks:
        parts += [f'<g transform="translate(0 {top})">', *elements, "</g>"]
        top += height + GAP
    if blocks:
        top -= GAP
    frame = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {style.WIDTH} {top}" width="{style.WIDTH}" '
        f'height="{top}" font-family="{style.FONT}" font-size="13" fill="{style.INK}">',
        f'<rect width="{style.WIDTH}" height="{top}" fill="white"/>',
    )
    return Picture("\n".join([*frame, *parts, "</svg>"]) + "\n")
