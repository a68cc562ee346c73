"""What a part of the benchmark hands back, and the few sums that all parts need."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Section:
    """One chapter of the page."""

    title: str
    lines: tuple[str, ...]
    pictures: dict[str, str] = field(default_factory=dict)
    """SVG by file name; `lines` refer to them through `picture`."""

    def text(self) -> str:
        """Markdown, prose wrapped."""
        return "\n".join([f"## {self.title}", "", *map(_wrapped, self.lines)]).rstrip("\n") + "\n"


COLUMNS = 120


def _wrapped(line: str) -> str:
    if line.startswith(("|", "!")):
        return line
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


PICTURE_FOLDER = "planner-benchmarks"


def picture(name: str, words: str) -> str:
    """The line that shows a picture; ``words`` say what it shows to those who do not see it."""
    return f"![{words}]({PICTURE_FOLDER}/{name})"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table and the empty line after it."""
    lines = [header, ["---"] * len(header), *rows]
    return [*("| " + " | ".join(line) + " |" for line in lines), ""]


def geomean(values: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


def quantile(values: Sequence[float], part: float) -> float:
    """The value that ``part`` of all do not exceed; an entry of the list, never between two."""
    return sorted(values)[round(part * (len(values) - 1))]
