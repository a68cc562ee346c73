"""Limits of an account and its object stores: machine quotas, and the rate of a store for one machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tradewind.catalog.strict import RowCheck
from tradewind.catalog.tables import GBPS_MAX, Row, read_rows
from tradewind.model.machine import StoreLimits
from tradewind.model.origin import Origin
from tradewind.model.region import Region

__all__ = [
    "MACHINES_MAX",
    "OTHER_REQUEST_PRICES",
    "QUOTAS_FILE",
    "RATES",
    "REQUEST_PRICES",
    "STORES_FILE",
    "Quota",
    "StoreFigures",
    "over",
    "read_quotas",
    "read_stores",
    "store_figures",
]

QUOTAS_FILE, STORES_FILE = "quotas.csv", "stores.csv"
MACHINES_MAX = 100_000
USD_PER_1000_MAX = 100.0
RATES = ("read_gbps", "write_gbps")
REQUEST_PRICES = ("get_usd_per_1000", "put_usd_per_1000")
OTHER_REQUEST_PRICES = ("list_usd_per_1000", "head_usd_per_1000")
"""Columns that a table may leave out: a LIST then costs as much as a PUT, and a HEAD as much as a GET."""


@dataclass(frozen=True, slots=True)
class Quota:
    """Machines that the account may still start in a region."""

    machines: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """Figures of one table for a provider's object store; None for a missing figure."""

    read_gbps: float | None
    """Rate per machine, as is `write_gbps`."""
    write_gbps: float | None
    get_usd_per_1000: float | None
    put_usd_per_1000: float | None
    """Prices of requests; a table has both or neither."""
    origin: Origin
    list_usd_per_1000: float | None = None
    head_usd_per_1000: float | None = None


def read_quotas(path: Path, source: str = "", check: RowCheck | None = None) -> Iterator[tuple[Region, Quota]]:
    """Quotas of a CSV file, by region: region, machines[, source][, date]. ``check`` sees each line.

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
        yield region, Quota(int(count), row.origin(source or path.name, "imported"))


def read_stores(path: Path, source: str = "", check: RowCheck | None = None) -> Iterator[tuple[str, StoreFigures]]:
    """Object stores of a CSV file, by provider: provider and rates [Gbit/s a machine], request prices, or both.

    The columns are provider[, read_gbps][, write_gbps][, get_usd_per_1000, put_usd_per_1000][, list_usd_per_1000]
    [, head_usd_per_1000][, source][, date].

    Raises:
        ConfigError: names file, line and column; also for a line without any figure, or with one price alone.
    """
    for row in read_rows(path, [["provider"], [*RATES, *REQUEST_PRICES]]):
        provider = row.fields[row.column(["provider"])].lower()
        figures = store_figures(row, row.origin(source or path.name, "imported"))
        if check is not None:
            check(row, [["provider"]], provider)
        yield provider, figures


def store_figures(row: Row, origin: Origin) -> StoreFigures:
    """The figures of one line. Raises ConfigError."""
    if not any(row.has(column) for column in (*RATES, *REQUEST_PRICES)):
        row.column([*RATES, *REQUEST_PRICES])
    read, write = (row.number(c, low=0.001, high=GBPS_MAX) if row.has(c) else None for c in RATES)
    if not any(row.has(column) for column in REQUEST_PRICES):
        return StoreFigures(read, write, None, None, origin)
    get, put = (row.number(column, low=0, high=USD_PER_1000_MAX) for column in REQUEST_PRICES)
    other = (row.number(c, low=0, high=USD_PER_1000_MAX) if row.has(c) else None for c in OTHER_REQUEST_PRICES)
    return StoreFigures(read, write, get, put, origin, *other)


def over(known: Mapping[str, StoreLimits], told: Mapping[str, StoreFigures]) -> dict[str, StoreLimits]:
    """The stores of a catalog with what another table says in their figures' place."""
    return {**known, **{provider: _over(provider, known.get(provider), said) for provider, said in told.items()}}


def _over(provider: str, known: StoreLimits | None, said: StoreFigures) -> StoreLimits:
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
