"""Placement of labels beside their points, covering as little as possible."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tradewind.model.records import dataclass

__all__ = ["Box", "Labels", "text_width"]

EM_WIDTH = 0.6
"""Mean width of a character relative to the font size: of wide fonts, so that narrow ones fit too."""
DISTANCES = (1.0, 1.5, 2.2, 3.0, 4.0, 5.2, 6.5, 9.0)
"""Distances between a label and its point that are tried, as multiples of the gap."""
LEAD_FROM = 2.0
"""Multiple of the gap from which a thin line connects label and point."""
LABEL_WEIGHT = 4.0
"""Penalty for covering a label, or for a connecting line that crosses a label or region; covering a line costs 0.6."""
LEAD_STEP_PX = 4.0


def text_width(text: str, size_px: float) -> float:
    """Return the approximate width of a text [px]."""
    return EM_WIDTH * size_px * len(text)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle [px]."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Box) -> float:
        """Return the common area."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.bottom, other.bottom) - max(self.top, other.top)
        return wide * high if wide > 0 and high > 0 else 0.0

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """Return the point of the box that is nearest to the given one."""
        return min(max(x, self.left), self.right), min(max(y, self.top), self.bottom)

    def outside(self, frame: Box) -> float:
        """Return the area outside of `frame`."""
        return (self.right - self.left) * (self.bottom - self.top) - self.overlap(frame)


class Labels:
    """Occupied parts of a picture, and the best place for the next label."""

    def __init__(self, frame: Box) -> None:
        self._frame = frame
        self._taken: list[tuple[Box, float]] = []

    def take(self, box: Box, weight: float = 1.0) -> None:
        """Mark a box as occupied; `weight` is the penalty for covering it."""
        self._taken.append((box, weight))

    def take_line(self, points: list[tuple[float, float]], width: float, weight: float = 0.6) -> None:
        """Mark the area of a line as occupied."""
        half = max(width / 2, 2.0)
        for x, y in points:
            self.take(Box(x - half, y - half, x + half, y + half), weight)

    def place(self, x: float, y: float, width: float, height: float, gap: float) -> tuple[Box, bool]:
        """Return the box for a point's label, and whether it needs a line to the point."""
        best: tuple[float, Box, bool] | None = None
        for rank, (box, lead) in enumerate(_candidates(x, y, width, height, gap)):
            cost = 20 * box.outside(self._frame) + sum(box.overlap(other) * weight for other, weight in self._taken)
            if lead:
                crossed = sum(other.overlap(part) for part in _lead(x, y, box) for other, w in self._taken if w >= 1)
                cost += LABEL_WEIGHT * crossed
            cost += 0.5 * rank
            if best is None or cost < best[0]:
                best = (cost, box, lead)
        assert best is not None  # the list of candidates is never empty
        self.take(best[1], LABEL_WEIGHT)
        for part in _lead(x, y, best[1]) if best[2] else ():
            self.take(part, LABEL_WEIGHT)
        return best[1], best[2]


def _lead(x: float, y: float, box: Box) -> Iterator[Box]:
    """Return the area that the line from a label to its point covers, without its end at the point."""
    near_x, near_y = box.nearest(x, y)
    steps = int(math.hypot(near_x - x, near_y - y) / LEAD_STEP_PX)
    for step in range(3, steps):
        at_x, at_y = x + (near_x - x) * step / steps, y + (near_y - y) * step / steps
        yield Box(at_x - 2, at_y - 2, at_x + 2, at_y + 2)


def _candidates(x: float, y: float, width: float, height: float, gap: float) -> Iterator[tuple[Box, bool]]:
    for distance in DISTANCES:
        off = gap * distance
        lead = distance >= LEAD_FROM
        near = off * 0.7
        for left, top in (
            (x + off, y - height / 2),
            (x - off - width, y - height / 2),
            (x - width / 2, y + off),
            (x - width / 2, y - off - height),
            (x + near, y + near),
            (x + near, y - near - height),
            (x - near - width, y + near),
            (x - near - width, y - near - height),
        ):
            yield Box(left, top, left + width, top + height), lead
