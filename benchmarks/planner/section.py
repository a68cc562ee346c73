"""A section of the benchmark's page, and the statistics that all sections need."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Section:
    """One section of the page."""

    title: str
    lines: tuple[str, ...]
    pictures: dict[str, str] = field(default_factory=dict)
    """SVG by file name. `lines` refer to them with `picture`."""

    def text(self) -> str:
        """Return the section as Markdown, with prose wrapped."""
        return "\n".join([f"## {self.title}", "", *map(_wrapped, self.lines)]).rstrip("\n") + "\n"


COLUMNS = 120


def _wrapped(line: str) -> str:
    if line.startswith(("|", "!")):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


PICTURE_FOLDER = "planner-benchmarks"


def picture(name: str, words: str) -> str:
    """Return the line that shows a picture, with ``words`` as its alternative text."""
    return f"![{words}]({PICTURE_FOLDER}/{name})"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table and the empty line after it."""
    lines = [header, ["---"] * len(header), *rows]
    return [*("| " + " | ".join(line) + " |" for line in lines), ""]


def geomean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


def quantile(values: Sequence[float], part: float) -> float:
    """Return the entry that the fraction ``part`` of all entries do not exceed, without interpolation."""
    return sorted(values)[round(part * (len(values) - 1))]
