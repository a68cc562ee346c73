"""A table of one suite, in which an invalid run is marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from testbed.sky import valid
from tradewind.errors import SkyInvalid
from tradewind.sky.running import Sky

#: Shown in place of a figure if the emulator was too late in every attempt.
INVALID = "invalid"
Figure = float | int | str


@dataclass
class Table:
    """Rows of figures. `picture` is an SVG or empty."""

    title: str
    columns: Sequence[str]
    rows: list[list[Figure]] = field(default_factory=list)
    picture: str = ""

    def markdown(self) -> str:
        """Return the table as Markdown, with figures to three digits."""
        lines = ["| " + " | ".join(self.columns) + " |", "|" + "---|" * len(self.columns)]
        lines += ["| " + " | ".join(_shown(figure) for figure in row) + " |" for row in self.rows]
        return "\n".join(lines)


def counted(sky: Sky, measure: Callable[[], float]) -> Figure:
    """Return the measured figure, or INVALID."""
    try:
        return valid(sky, measure)
    except SkyInvalid:
        return INVALID


def _shown(figure: Figure) -> str:
    if isinstance(figure, str):
        return figure
    return str(figure) if isinstance(figure, int) else f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"
