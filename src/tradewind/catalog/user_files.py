"""Writes the user's part of the catalog: whole files, by rename, so that nothing is ever half there."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tradewind.catalog.load import read_links, read_prices
from tradewind.errors import ConfigError
from tradewind.model.grid import Link
from tradewind.model.price import EgressPrice
from tradewind.model.region import Region

__all__ = ["import_table", "store_links", "store_prices", "write_table"]

Pair = tuple[Region, Region]


def import_table(path: Path, folder: Path, *, date: str, source: str = "") -> str:
    """Take a CSV of links or of prices into the user's catalog; the columns decide which. Says what was taken.

    Raises:
        ConfigError: names file, line and column; nothing has been taken then.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = [name.strip() for name in next(csv.reader(file), [])]
    name = source or path.name
    if "usd_per_gb" in header:
        prices = dict(read_prices(path))
        store_prices(folder, prices, date, name)
        return f"{len(prices)} prices from {path}"
    links = dict(read_links(path, "imported", name))
    store_links(folder, links, date)
    return f"{len(links)} links from {path}"


def store_links(folder: Path, links: dict[Pair, Link], date: str) -> None:
    """Put links over those that the user's catalog has. Links without a date get ``date``."""
    path = folder / "links.csv"
    kept = dict(read_links(path)) if path.exists() else {}
    kept.update(links)
    rows = (
        [
            *map(str, pair),
            repr(link.gbps),
            "" if link.rtt_ms is None else repr(link.rtt_ms),
            link.origin.kind,
            link.origin.source,
            link.origin.date or date,
        ]
        for pair, link in sorted(kept.items())
    )
    write_table(path, ["src", "dst", "gbps", "rtt_ms", "kind", "source", "date"], rows)


def store_prices(folder: Path, prices: dict[Pair, EgressPrice], date: str, source: str) -> None:
    """Put prices over those that the user's catalog has."""
    path = folder / "prices.csv"
    kept = dict(read_prices(path)) if path.exists() else {}
    kept.update(prices)
    rows = (
        [
            *map(str, pair),
            repr(price.usd_per_gb),
            price.origin.kind,
            price.origin.source or source,
            price.origin.date or date,
        ]
        for pair, price in sorted(kept.items())
    )
    write_table(path, ["src", "dst", "usd_per_gb", "kind", "source", "date"], rows)


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file beside its place, then rename it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    temporary.replace(path)
