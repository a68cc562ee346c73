"""CSV tables of links and prices.

Read strictly: a bad figure names its file, line and column, and nothing is kept. Written whole, by rename.
"""

from __future__ import annotations

import csv
import datetime
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import cast, get_args

from tradewind.errors import ConfigError
from tradewind.model.amounts import parse_number
from tradewind.model.origin import Origin, OriginKind
from tradewind.model.price import CountedBy, EgressPrice, ListedUnit
from tradewind.model.region import Region

__all__ = ["Row", "format_tiers", "read_rows", "skip_comments", "write_table"]

ROWS_MAX = 1_000_000
"""More than a thousand regions squared; a file beyond it is not a table of links."""
GBPS_MAX = 10_000.0
"""Faster than any machine pair; a figure beyond it is in another unit."""
USD_PER_GB_MAX = 100.0
"""Limit in a problem, which may make a link too expensive to use."""
LISTED_USD_PER_GB_MAX = 5.0
"""Limit in a catalog: twenty times a cloud's highest list price; a higher figure is in another unit."""
USD_PER_HOUR_MAX = 10_000.0
TIERS_MAX = 100
GB_MAX = 1e12
EMPTY_HINT = "the file is empty; its first line names its columns, e.g. src,dst,gbps"
IN_CENTS = "prices are in USD per GB; is this one in cents?"
RTT_MS_MAX = 10_000.0
SWITCHES = {"": False, "no": False, "false": False, "yes": True, "true": True}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    path: Path
    line: int
    fields: Mapping[str, str]

    def region(self, *columns: str) -> Region:
        """The region in the first of ``columns`` that is there."""
        column = self.column(columns)
        text = self.fields[column]
        try:
            region = Region.parse(text)
        except ValueError as error:
            raise self.wrong(column, str(error)) from None
        return region

    def number(self, *columns: str, low: float, high: float, beyond: str | None = None) -> float:
        """The number in the first of ``columns`` that is there, within bounds; ``beyond`` is a hint if it is above."""
        column = self.column(columns)
        return self._within(column, self.fields[column], low, high, beyond)

    def _within(self, column: str, text: str, low: float, high: float, beyond: str | None = None) -> float:
        try:
            value = parse_number(text)
        except ValueError:
            raise self.wrong(column, f"{text!r} is not a number") from None
        if not math.isfinite(value) or not low <= value <= high:
            raise self.wrong(
                column, f"{text} is not between {low:g} and {high:g}", hint=beyond if value > high else None
            )
        return value

    def tiers(self, column: str) -> tuple[tuple[float, float], ...]:
        """Prices by monthly volume, `0:0.09;10240:0.085`: volume from which a price holds, and USD; or one price."""
        parts = self.fields.get(column, "").split(";")
        if len(parts) > TIERS_MAX:
            raise self.wrong(column, f"more than {TIERS_MAX} tiers")
        tiers = []
        for part in parts:
            start, colon, usd = part.rpartition(":")
            volume = self._within(column, start if colon else "0", 0.0, GB_MAX)
            tiers.append((volume, self._within(column, usd, 0.0, LISTED_USD_PER_GB_MAX, IN_CENTS)))
        if tiers[0][0] != 0 or any(a[0] >= b[0] for a, b in pairwise(tiers)):
            raise self.wrong(column, "tiers begin at 0 and rise")
        return tuple(tiers)

    def origin(self, source: str, *kinds: OriginKind) -> Origin:
        """Where the line's figures are from, by its columns `kind`, `source`, `date` and `method`.

        Args:
            source: where the line names none.
            kinds: what may stand in `kind`; the first holds where nothing does.
        """
        kind = next((kind for kind in kinds if kind == self.fields.get("kind")), None)
        if kind is None and self.has("kind"):
            raise self.wrong("kind", f"{self.fields['kind']!r} is none of {', '.join(kinds)}")
        date = self.fields.get("date", "")
        if date:
            try:
                datetime.date.fromisoformat(date)
            except ValueError:
                raise self.wrong("date", f"{date!r} is not a date like 2024-05-01") from None
        return Origin(kind or kinds[0], self.fields.get("source", "") or source, date, self.fields.get("method", ""))

    def has(self, column: str) -> bool:
        """Return whether the column is there and not empty."""
        return bool(self.fields.get(column, "").strip())

    def word(self, column: str, words: Sequence[str]) -> str:
        """One of ``words``; the first where the column is empty or missing."""
        text = self.fields.get(column, "") or words[0]
        if text not in words:
            raise self.wrong(column, f"{text!r} is none of {', '.join(words)}")
        return text

    def egress_price(self, column: str, origin: Origin) -> EgressPrice:
        """A price with its tiers in ``column``, per `unit`; `counted` says which traffic fills these together."""
        counted = cast(CountedBy, self.word("counted", get_args(CountedBy)))
        unit = cast(ListedUnit, self.word("unit", get_args(ListedUnit)))
        return EgressPrice.listed(self.tiers(column), origin, unit, counted)

    def switch(self, column: str) -> bool:
        """Yes or no, or true or false; no where the column is empty or missing."""
        text = self.fields.get(column, "").lower()
        if text not in SWITCHES:
            raise self.wrong(column, f"{self.fields[column]!r} is neither yes nor no (nor true nor false)")
        return SWITCHES[text]

    def wrong(self, column: str, what: str, hint: str | None = None) -> ConfigError:
        """The error that names this place."""
        return ConfigError(f"{self.path}: line {self.line}, column {column}: {what}", hint=hint)

    def column(self, columns: Sequence[str]) -> str:
        """The first of ``columns`` that is there and not empty."""
        for column in columns:
            if self.has(column):
                return column
        raise self.wrong(columns[0], "is missing")


def format_tiers(price: EgressPrice) -> str:
    """As `Row.tiers` reads them, per `EgressPrice.unit`."""
    return ";".join(f"{start:.12g}:{usd:.10g}" for start, usd in price.listed_tiers)


def skip_comments(file: Iterable[str]) -> tuple[int, Iterator[str]]:
    """Return the number of leading lines that begin with `#`, and the lines after them."""
    lines = iter(file)
    above = 0
    for line in lines:
        if not line.startswith("#"):
            return above, chain([line], lines)
        above += 1
    return above, iter(())


def read_rows(path: Path, required: Sequence[Sequence[str]]) -> Iterator[Row]:
    """The lines of a CSV file with a header; above it there may be lines that begin with `#`.

    Args:
        path: the file.
        required: column names that must be in the header; of each group one.

    Raises:
        ConfigError: no such file, not a table, or a column is missing.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            above, lines = skip_comments(file)
            reader = csv.DictReader(lines)
            header = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = header
            for group in required:
                if not any(name in header for name in group):
                    wanted, there = " or ".join(group), ", ".join(header)
                    raise ConfigError(
                        f"{path}: line {above + 1}: no column {wanted}",
                        hint=f"the columns are {there}" if there else EMPTY_HINT,
                    )
            for count, fields in enumerate(reader):
                if count >= ROWS_MAX:
                    raise ConfigError(f"{path}: more than {ROWS_MAX} lines")
                if None in fields:
                    raise ConfigError(f"{path}: line {above + reader.line_num}: more fields than the header has")
                yield Row(path, above + reader.line_num, {k: (v or "").strip() for k, v in fields.items()})
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a CSV table: {error}") from None


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file beside its place, then rename it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    temporary.replace(path)
