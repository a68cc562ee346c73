"""The user's tables: CSV rows, the valid content of each column, and the tables of links, quotas and stores."""

from __future__ import annotations

import csv
import datetime
import math
import os
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Protocol, TextIO, cast, get_args

from tradewind.catalog.ageing import Figure
from tradewind.errors import ConfigError
from tradewind.model.catalog import Catalog
from tradewind.model.files import open_regular
from tradewind.model.machine import StoreLimits
from tradewind.model.origin import Origin, OriginKind
from tradewind.model.price import CountedBy, EgressPrice, ListedUnit
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region
from tradewind.model.units import parse_number

__all__ = [
    "LINK_GBPS_MAX",
    "MACHINES_MAX",
    "OTHER_REQUEST_PRICES",
    "QUOTAS_FILE",
    "REQUEST_PRICES",
    "STORES_FILE",
    "STORE_RATES",
    "ImportCheck",
    "ImportedQuota",
    "Row",
    "RowCheck",
    "StoreFigures",
    "date_has_come",
    "format_tiers",
    "present",
    "read_links",
    "read_quotas",
    "read_rows",
    "read_stores",
    "skip_comments",
    "store_figures",
    "with_overrides",
    "write_table",
]

ROWS_MAX = 1_000_000
"""Maximum lines: more than a thousand regions squared."""
TABLE_BYTES_MAX = 128 << 20
"""Maximum length of a table."""
GBPS_MAX = 10_000.0
"""Maximum rate: faster than any machine pair; a higher figure is in another unit."""
USD_PER_GB_MAX = 100.0
"""Maximum price in a problem file, which may make a link too expensive to use."""
LISTED_USD_PER_GB_MAX = 5.0
"""Maximum price in a catalog: twenty times a cloud's highest list price; a higher figure is in another unit."""
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
        """Return the region in the first of ``columns`` that is present."""
        column = self.column(columns)
        text = self.fields[column]
        try:
            region = Region.parse(text)
        except ValueError as error:
            raise self.wrong(column, str(error)) from None
        return region

    def number(self, *columns: str, low: float, high: float, beyond: str | None = None) -> float:
        """Return the number in the first of ``columns`` that is present; ``beyond`` is the hint if it is too high."""
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
        """Return prices by monthly volume, `0:0.09;10240:0.085` (start of the tier and USD), or one price."""
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
        """Return the origin of the line's figures, from its columns `kind`, `source`, `date` and `method`.

        Args:
            source: used if the line names none.
            kinds: valid values of `kind`; the first applies if the line has none.
        """
        kind = next((kind for kind in kinds if kind == self.fields.get("kind")), None)
        if kind is None and self.has("kind"):
            raise self.wrong("kind", f"{self.fields['kind']!r} is not one of {', '.join(kinds)}")
        date = self.fields.get("date", "")
        if date:
            try:
                datetime.date.fromisoformat(date)
            except ValueError:
                raise self.wrong("date", f"{date!r} is not a date like 2024-05-01") from None
        return Origin(kind or kinds[0], self.fields.get("source", "") or source, date, self.fields.get("method", ""))

    def has(self, column: str) -> bool:
        """Return whether the column is present and not empty."""
        return bool(self.fields.get(column, "").strip())

    def word(self, column: str, words: Sequence[str]) -> str:
        """Return the column's word, which must be in ``words``; the first word if it is empty or missing."""
        text = self.fields.get(column, "") or words[0]
        if text not in words:
            raise self.wrong(column, f"{text!r} is not one of {', '.join(words)}")
        return text

    def egress_price(self, column: str, origin: Origin) -> EgressPrice:
        """Return a price with its tiers in ``column``, per `unit`; `counted` says which traffic fills the tiers."""
        counted = cast(CountedBy, self.word("counted", get_args(CountedBy)))
        unit = cast(ListedUnit, self.word("unit", get_args(ListedUnit)))
        return EgressPrice.listed(self.tiers(column), origin, unit, counted)

    def switch(self, column: str) -> bool:
        """Return a yes or no (or true or false); False if the column is empty or missing."""
        text = self.fields.get(column, "").lower()
        if text not in SWITCHES:
            raise self.wrong(column, f"{self.fields[column]!r} is neither yes nor no (nor true nor false)")
        return SWITCHES[text]

    def wrong(self, column: str, what: str, hint: str | None = None) -> ConfigError:
        """Return the error that names this place."""
        return ConfigError(f"{self.path}: line {self.line}, column {column}: {what}", hint=hint)

    def column(self, columns: Sequence[str]) -> str:
        """Return the first of ``columns`` that is present and not empty."""
        for column in columns:
            if self.has(column):
                return column
        raise self.wrong(columns[0], "is missing")


def format_tiers(price: EgressPrice) -> str:
    """Return tiers in the form that `Row.tiers` reads, per `EgressPrice.unit`."""
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


def open_table(path: Path) -> TextIO:
    """Open a CSV file of at most TABLE_BYTES_MAX. Raises OSError."""
    return open(open_regular(path, bytes_max=TABLE_BYTES_MAX), newline="", encoding="utf-8-sig")


def read_rows(path: Path, required: Sequence[Sequence[str]]) -> Iterator[Row]:
    """Yield the lines of a CSV file with a header, which lines that begin with `#` may precede.

    Args:
        path: the file.
        required: groups of column names; the header must have one of each group.

    Raises:
        ConfigError: no such file, not a table, or a column is missing.
    """
    try:
        with open_table(path) as file:
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
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a CSV table: {error}") from None


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file under a temporary name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    temporary.replace(path)


FURTHEST_EAST = datetime.timezone(datetime.timedelta(hours=14))
"""The time zone in which a day begins first: a date that has begun there may be today for the author."""
OWN_SITES = "site"
"""Provider of places outside clouds: `site:lab`."""


class RowCheck(Protocol):
    """Called with each parsed line of a table. Raises ConfigError."""

    def __call__(self, row: Row, names: Sequence[Sequence[str]], entry: Hashable) -> None:
        """`names`: columns for each region of the line, or its provider; `entry`: the key of the line."""


class ImportCheck:
    """Refuse invalid entries of one table."""

    def __init__(self, known: Catalog, *, new_regions: bool) -> None:
        """With `new_regions`, regions that `known` does not have are accepted."""
        self._known = known
        self._regions = set(known.places) | set(known.grid.regions())
        self._new_regions = new_regions
        self._lines: dict[Hashable, int] = {}

    def __call__(self, row: Row, names: Sequence[Sequence[str]], entry: Hashable) -> None:
        """Check one line."""
        for columns in names:
            if row.column(columns) == "provider":
                self._check_provider(row)
            else:
                self._check_region(row, columns)
        date = row.fields.get("date", "")
        if date and not date_has_come(datetime.date.fromisoformat(date)):
            raise row.wrong("date", f"{date} is in the future")
        first = self._lines.setdefault(entry, row.line)
        if first != row.line:
            what = " → ".join(row.fields[row.column(columns)] for columns in names)
            raise row.wrong(row.column(names[0]), f"{what} is already in line {first}", hint="keep one of them")

    def _check_provider(self, row: Row) -> None:
        provider, known = row.fields["provider"].lower(), {region.provider for region in self._regions}
        if not (self._new_regions or provider in known or provider == OWN_SITES):
            raise row.wrong("provider", f"unknown provider {provider}", hint=f"known: {', '.join(sorted(known))}")

    def _check_region(self, row: Row, columns: Sequence[str]) -> None:
        region = row.region(*columns)
        if self._new_regions or region in self._regions or region.provider == OWN_SITES:
            return
        near = self._known.nearest_names(region)
        guess = f"did you mean {' or '.join(near)}? " if near else ""
        hint = f"{guess}--new-regions accepts regions that the catalog does not know"
        raise row.wrong(row.column(columns), f"unknown region {region}", hint=hint)


def date_has_come(date: datetime.date) -> bool:
    """Return whether this day has begun anywhere on earth."""
    return date <= present().astimezone(FURTHEST_EAST).date()


def present() -> datetime.datetime:
    """Return the present time, with a time zone."""
    return datetime.datetime.now(datetime.timezone.utc)


QUOTAS_FILE, STORES_FILE = "quotas.csv", "stores.csv"
MACHINES_MAX = 100_000
USD_PER_1000_MAX = 100.0
STORE_RATES = ("read_gbps", "write_gbps")
REQUEST_PRICES = ("get_usd_per_1000", "put_usd_per_1000")
OTHER_REQUEST_PRICES = ("list_usd_per_1000", "head_usd_per_1000")
"""Columns that a table may omit: a LIST then costs as much as a PUT, and a HEAD as much as a GET."""


@dataclass(frozen=True, slots=True)
class ImportedQuota:
    """Machines that the account may still start in a region."""

    machines: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """Figures of one table for a provider's object store; None for a missing figure."""

    read_gbps: float | None
    """Rate per machine; the same holds for `write_gbps`."""
    write_gbps: float | None
    get_usd_per_1000: float | None
    put_usd_per_1000: float | None
    """Prices of requests; a table has both or neither."""
    origin: Origin
    list_usd_per_1000: float | None = None
    head_usd_per_1000: float | None = None


def read_quotas(path: Path, source: str = "", check: RowCheck | None = None) -> Iterator[tuple[Region, ImportedQuota]]:
    """Yield the quotas of a CSV file: region, machines[, source][, date]. ``check`` is called with each line.

    Raises:
        ConfigError: names file, line and column.
    """
    for row in read_rows(path, [["region"], ["machines"]]):
        count = row.number("machines", low=0, high=MACHINES_MAX)
        if count != int(count):
            raise row.wrong("machines", f"{count:g} is not a whole number")
        region = row.region("region")
        if check is not None:
            check(row, [["region"]], region)
        yield region, ImportedQuota(int(count), row.origin(source or path.name, "imported"))


def read_stores(path: Path, source: str = "", check: RowCheck | None = None) -> Iterator[tuple[str, StoreFigures]]:
    """Yield the object stores of a CSV file: provider with rates [Gbit/s per machine], request prices, or both.

    The columns are provider[, read_gbps][, write_gbps][, get_usd_per_1000, put_usd_per_1000][, list_usd_per_1000]
    [, head_usd_per_1000][, source][, date].

    Raises:
        ConfigError: names file, line and column; also raised for a line without figures, or with a single price.
    """
    for row in read_rows(path, [["provider"], [*STORE_RATES, *REQUEST_PRICES]]):
        provider = row.fields[row.column(["provider"])].lower()
        figures = store_figures(row, row.origin(source or path.name, "imported"))
        if check is not None:
            check(row, [["provider"]], provider)
        yield provider, figures


def store_figures(row: Row, origin: Origin) -> StoreFigures:
    """Return the figures of one line. Raises ConfigError."""
    if not any(row.has(column) for column in (*STORE_RATES, *REQUEST_PRICES)):
        row.column([*STORE_RATES, *REQUEST_PRICES])
    read, write = (row.number(c, low=0.001, high=GBPS_MAX) if row.has(c) else None for c in STORE_RATES)
    if not any(row.has(column) for column in REQUEST_PRICES):
        return StoreFigures(read, write, None, None, origin)
    get, put = (row.number(column, low=0, high=USD_PER_1000_MAX) for column in REQUEST_PRICES)
    other = (row.number(c, low=0, high=USD_PER_1000_MAX) if row.has(c) else None for c in OTHER_REQUEST_PRICES)
    return StoreFigures(read, write, get, put, origin, *other)


def with_overrides(known: Mapping[str, StoreLimits], overrides: Mapping[str, StoreFigures]) -> dict[str, StoreLimits]:
    """Return the stores of a catalog with the figures of another table in place of theirs."""
    return {
        **known,
        **{provider: _with_override(provider, known.get(provider), said) for provider, said in overrides.items()},
    }


def _with_override(provider: str, known: StoreLimits | None, said: StoreFigures) -> StoreLimits:
    base = known or StoreLimits(provider, math.inf, math.inf, 0.0, 0.0, said.origin)
    rated = said.read_gbps is not None or said.write_gbps is not None
    priced = said.get_usd_per_1000 is not None and said.put_usd_per_1000 is not None
    return StoreLimits(
        provider,
        base.read_gbps if said.read_gbps is None else said.read_gbps,
        base.write_gbps if said.write_gbps is None else said.write_gbps,
        base.get_usd_per_1000 if said.get_usd_per_1000 is None else said.get_usd_per_1000,
        base.put_usd_per_1000 if said.put_usd_per_1000 is None else said.put_usd_per_1000,
        said.origin if priced else base.origin,
        said.origin if rated else base.rate_origin,
        said.list_usd_per_1000 if priced else base.list_usd_per_1000,
        said.head_usd_per_1000 if priced else base.head_usd_per_1000,
    )


LINK_GBPS_MAX = 400.0
"""Rate of the fastest network card that clouds rent; a higher rate for one machine pair is in another unit."""

LINK_RATES = ("gbps", "received_gbps", "throughput_received", "throughput_recieved")
"""Columns of a rate; the last two are Skyplane's, in bit/s (one is spelled as in its profiles)."""


TIERS, PREMIUM = ("src_tier", "dst_tier"), "PREMIUM"
"""Skyplane measured Google's two network tiers separately, but plans with the premium tier only."""
SUCCESS = "success"
"""Skyplane keeps lines of failed probes, with `False` here."""
ENDS = ("src", "dst", "src_region", "dst_region")
ZONE = re.compile(r"(?i)(gcp:.*\d)-[a-z]")
"""A Google zone, which Skyplane names instead of its region; prices and machines belong to regions."""


def read_links(
    path: Path, source: str = "", check: RowCheck | None = None
) -> Iterator[tuple[tuple[Region, Region], Figure]]:
    """Yield links of a CSV file: src, dst, gbps[, rtt_ms][, kind][, source][, date][, method]; or Skyplane's profiles.

    Skyplane's columns are ``src_region``, ``dst_region`` (or ``src``, ``dst``), ``throughput_received`` [bit/s] and
    ``throughput_sent``. The received rate is used. Lines of other network tiers than premium and of failed probes are
    left out. Google's zones (``gcp:us-east4-a``) count as their regions.
    ``kind`` is ``imported`` unless a line says ``measured``. ``check`` is called with each line.

    Raises:
        ConfigError: names file, line and column.
    """
    for row in read_rows(path, [["src", "src_region"], ["dst", "dst_region"], LINK_RATES]):
        if any(row.has(tier) and row.fields[tier].upper() != PREMIUM for tier in TIERS):
            continue
        if row.fields.get(SUCCESS, "").lower() == "false":
            continue
        row = _with_regions(row)
        rate = _gbps(row)
        rtt_ms = row.number("rtt_ms", low=0.0, high=RTT_MS_MAX) if row.has("rtt_ms") else None
        src, dst = row.region("src", "src_region"), row.region("dst", "dst_region")
        origin = row.origin(source or path.name, "imported", "measured")
        if check is not None:
            check(row, [["src", "src_region"], ["dst", "dst_region"]], (src, dst, origin.kind))
        if src != dst:
            yield (src, dst), Figure(rate, origin, rtt_ms)


def _region_of(text: str) -> str:
    zone = ZONE.fullmatch(text)
    return zone.group(1) if zone else text


def _with_regions(row: Row) -> Row:
    """Return the line with regions in place of zones."""
    fields = {name: _region_of(text) if name in ENDS else text for name, text in row.fields.items()}
    return replace(row, fields=fields)


def _gbps(row: Row) -> float:
    for column in LINK_RATES[2:]:
        if row.has(column):
            return row.number(column, low=0.0, high=LINK_GBPS_MAX * 1e9, beyond=_beyond("bit/s")) / 1e9
    return row.number(*LINK_RATES[:2], low=0.0, high=LINK_GBPS_MAX, beyond=_beyond("Gbit/s"))


def _beyond(unit: str) -> str:
    meant = "; is this one in Mbit/s?" if unit == "Gbit/s" else ""
    return f"rates are in {unit} of a machine pair, and no network card is faster than {LINK_GBPS_MAX:g} Gbit/s{meant}"
