"""The grid of the service's engine, kept in memory for a minute. Every transfer of the service adds to it."""

from __future__ import annotations

import threading
import time

from tradewind.engine.grid_export import GridRow, grid_rows
from tradewind.service.limits import GRID_KEPT_S

__all__ = ["GridReader"]


class GridReader:
    """Reads the grid of an engine's state folder. Any thread may use it."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir, self._lock = state_dir, threading.Lock()
        self._rows: tuple[GridRow, ...] = ()
        self._rates_gbps: dict[tuple[str, str], float] = {}
        self._read_s = float("-inf")
        self._version = 0

    def version(self) -> int:
        """Return a number that grows when a rate has changed. Raises ConfigError."""
        with self._lock:
            self._read()
            return self._version

    def rows(self) -> tuple[GridRow, ...]:
        """Return all links. Raises ConfigError."""
        with self._lock:
            self._read()
            return self._rows

    def rate_gbps(self, start: str, end: str) -> float | None:
        """Return the rate of a link [Gbit/s]; None if it is not known. Raises ConfigError."""
        with self._lock:
            self._read()
            return self._rates_gbps.get((start, end))

    def _read(self) -> None:
        if time.monotonic() - self._read_s > GRID_KEPT_S:
            self._rows = grid_rows(self._state_dir)
            before = self._rates_gbps
            self._rates_gbps = {(row.src, row.dst): row.gbps for row in self._rows if row.gbps > 0}
            self._version += self._rates_gbps != before
            self._read_s = time.monotonic()
