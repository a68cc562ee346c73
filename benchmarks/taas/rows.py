"""Figures from the rows of a measurement: rates, their variation and times, with the spread over the rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tradewind.model.records import dataclass

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """The mean of the rounds, and their standard deviation; None for one round."""

    mean: float
    spread: float | None

    def shown(self, digits: int) -> str:
        """Return `mean ± spread`."""
        return f"{self.mean:.{digits}f}" + ("" if self.spread is None else f" ± {self.spread:.{digits}f}")

    def percent(self) -> str:
        """Return `mean ± spread` in percent."""
        return f"{self.mean:.0%}" + ("" if self.spread is None else f" ± {self.spread * 100:.0f}")

    def relative(self, base: Figure) -> str:
        """Return how far this is from another figure, in percent."""
        return f"{self.mean / base.mean - 1:+.0%}" if base.mean else ""


def rows_at(rows: Sequence[Row], option: str, x: float) -> list[Row]:
    """Return the rows of a point: one for each round."""
    return [row for row in rows if row["option"] == option and row["x"] == x]


def rate_mbps(rows: Sequence[Row]) -> Figure | None:
    """Return the mean rate of an application in the windows of a round [Mbit/s]; None without windows."""
    return _figure(rows, statistics.fmean)


def variation(rows: Sequence[Row]) -> Figure | None:
    """Return the coefficient of variation of the windows of a round: standard deviation over mean."""
    return _figure(rows, lambda rates: statistics.stdev(rates) / statistics.fmean(rates) if len(rates) > 1 else 0.0)


def elapsed_s(rows: Sequence[Row]) -> Figure | None:
    """Return the time of a transfer [s]."""
    return _over([statistics.fmean(row["elapsed_s"]) for row in rows])


def rounds_of(rows: Sequence[Row]) -> tuple[int, int]:
    """Return the least and the highest number of rounds of a point; (0, 0) without rows."""
    points = [row["key"].rsplit("/", 1)[0] for row in rows]
    counts = {points.count(point) for point in points} or {0}
    return min(counts), max(counts)


def fewest_windows(rows: Sequence[Row]) -> int:
    """Return the least number of windows of an application in a run."""
    return min((len(windows) for row in rows for windows in row["windows_mbps"]), default=0)


def _figure(rows: Sequence[Row], of: Callable[[Sequence[float]], float]) -> Figure | None:
    rounds = [[rate for windows in row["windows_mbps"] for rate in windows] for row in rows]
    return _over([of(rates) for rates in rounds if rates])


def _over(rounds: Sequence[float]) -> Figure | None:
    if not rounds:
        return None
    return Figure(statistics.fmean(rounds), statistics.stdev(rounds) if len(rounds) > 1 else None)
