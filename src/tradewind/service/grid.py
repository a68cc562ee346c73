"""The grid of the service's engine, kept in memory for a minute. Every transfer of the service adds to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from tradewind.engine.grid_export import GridRow, grid_rows
from tradewind.model.records import dataclass
from tradewind.service.limits import GRID_KEPT_S

__all__ = ["GridReader"]


@dataclass(frozen=True)
class _Grid:
    """The grid as it was read at a time by the monotonic clock."""

    rows: tuple[GridRow, ...]
    rates_gbps: Mapping[tuple[str, str], float]
    version: int
    read_s: float


class GridReader:
    """Reads the grid of an engine's state folder. Any thread may use it.

    While one thread reads it anew, the others get the grid as it was.
    """

    def __init__(self, state_dir: str) -> None:
        self._state_dir, self._reading = state_dir, threading.Lock()
        self._grid: _Grid | None = None

    def version(self) -> int:
        """Return a number that grows when a rate has changed. Raises ConfigError."""
        return self._present().version

    def rows(self) -> tuple[GridRow, ...]:
        """Return all links. Raises ConfigError."""
        return self._present().rows

    def rate_gbps(self, start: str, end: str) -> float | None:
        """Return the rate of a link [Gbit/s]; None if it is not known. Raises ConfigError."""
        return self._present().rates_gbps.get((start, end))

    def _present(self) -> _Grid:
        known = self._grid
        if known is not None and time.monotonic() - known.read_s <= GRID_KEPT_S:
            return known
        if not self._reading.acquire(blocking=known is None):
            assert known is not None
            return known
        try:
            if self._grid is known or self._grid is None:
                self._grid = self._read(self._grid)
            return self._grid
        finally:
            self._reading.release()

    def _read(self, before: _Grid | None) -> _Grid:
        rows = grid_rows(self._state_dir)
        rates_gbps = {(row.src, row.dst): row.gbps for row in rows if row.gbps > 0}
        if before is None:
            return _Grid(rows, rates_gbps, int(bool(rates_gbps)), time.monotonic())
        return _Grid(rows, rates_gbps, before.version + (rates_gbps != before.rates_gbps), time.monotonic())
