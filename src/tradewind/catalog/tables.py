"""CSV tables of links and prices, read strictly: a bad figure names its file, line and column, and nothing is kept."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tradewind.errors import ConfigError
from tradewind.model.region import Region

__all__ = ["Row", "read_rows"]

ROWS_MAX = 1_000_000
"""More than a thousand regions squared; a file beyond it is not a table of links."""
GBPS_MAX = 10_000.0
"""Faster than any machine pair; a figure beyond it is in another unit."""
USD_PER_GB_MAX = 100.0
RTT_MS_MAX = 10_000.0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    path: Path
    line: int
    fields: Mapping[str, str]

    def region(self, *columns: str) -> Region:
        """The region in the first of ``columns`` that is there."""
        column = self._column(columns)
        text = self.fields[column]
        try:
            region = Region.parse(text)
        except ValueError as error:
            raise self.wrong(column, str(error)) from None
        return region

    def number(self, *columns: str, low: float, high: float) -> float:
        """The number in the first of ``columns`` that is there, within bounds."""
        column = self._column(columns)
        try:
            value = float(self.fields[column])
        except ValueError:
            raise self.wrong(column, f"{self.fields[column]!r} is not a number") from None
        if not math.isfinite(value) or not low <= value <= high:
            raise self.wrong(column, f"{self.fields[column]} is not between {low:g} and {high:g}")
        return value

    def has(self, column: str) -> bool:
        """Whether the column is there and not empty."""
        return bool(self.fields.get(column, "").strip())

    def wrong(self, column: str, what: str) -> ConfigError:
        """The error that names this place."""
        return ConfigError(f"{self.path}: line {self.line}, column {column}: {what}")

    def _column(self, columns: Sequence[str]) -> str:
        for column in columns:
            if self.has(column):
                return column
        raise self.wrong(columns[0], "is missing")


def read_rows(path: Path, required: Sequence[Sequence[str]]) -> Iterator[Row]:
    """The lines of a CSV file with a header.

    Args:
        path: the file.
        required: column names that must be in the header; of each group one.

    Raises:
        ConfigError: no such file, not a table, or a column is missing.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = header
            for group in required:
                if not any(name in header for name in group):
                    raise ConfigError(
                        f"{path}: line 1: no column {' or '.join(group)}", hint=f"the columns are {', '.join(header)}"
                    )
            for count, fields in enumerate(reader):
                if count >= ROWS_MAX:
                    raise ConfigError(f"{path}: more than {ROWS_MAX} lines")
                if None in fields:
                    raise ConfigError(f"{path}: line {reader.line_num}: more fields than the header has")
                yield Row(path, reader.line_num, {k: (v or "").strip() for k, v in fields.items()})
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a CSV table: {error}") from None
