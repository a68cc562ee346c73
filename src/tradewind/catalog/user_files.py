"""Takes the user's tables into the user's part of the catalog: whole files, by rename, nothing is ever half there."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from tradewind.catalog.ageing import Figure
from tradewind.catalog.links import read_links
from tradewind.catalog.load import LINKS_FILE, MACHINES_FILE, PRICES_FILE, Pair, read_machine_prices, read_prices
from tradewind.catalog.packaged import read_packaged
from tradewind.catalog.refreshed import MachinePrice
from tradewind.catalog.tables import format_tiers, skip_comments, write_table
from tradewind.errors import ConfigError
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice

__all__ = ["import_table", "store_links", "write_links"]


def import_table(path: Path, folder: Path, *, date: str, source: str = "") -> str:
    """Take a CSV of links, egress prices or machine prices; the columns decide which. Says what was taken.

    Args:
        path: the table.
        folder: the user's part of the catalog.
        date: of lines that name none.
        source: of lines that name none; the file's name unless given.

    Raises:
        ConfigError: names file, line and column; nothing has been taken then.
    """
    header = _header(path)
    if "usd_per_hour" in header:
        machines = list(read_machine_prices(path, read_packaged(), source))
        _store_machines(folder, machines, date)
        return f"{_count(len(machines), 'machine price')} from {path}"
    if "usd_per_gb" in header:
        prices = dict(read_prices(path, source))
        _store_prices(folder, prices, date)
        return f"{_count(len(prices), 'egress price')} from {path}"
    links = list(read_links(path, source))
    store_links(folder, links, date)
    return f"{_count(len(links), 'link')} from {path}"


def _header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [name.strip() for name in next(csv.reader(skip_comments(file)[1]), [])]
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a CSV table: {error}") from None


def store_links(folder: Path, links: list[tuple[Pair, Figure]], date: str) -> None:
    """Put links over those of the same kind that the user's catalog has. Links without a date get ``date``."""
    path = folder / LINKS_FILE
    kept = {(pair, f.origin.kind): f for pair, f in (read_links(path) if path.exists() else ())}
    kept.update({(pair, f.origin.kind): replace(f, origin=_dated(f.origin, date)) for pair, f in links})
    write_links(path, [(pair, figure) for (pair, _), figure in kept.items()])


def write_links(path: Path, links: list[tuple[Pair, Figure]]) -> None:
    """Write a table of links in the form that `import_table` takes."""
    rows = (
        [
            *map(str, pair),
            repr(f.gbps),
            "" if f.rtt_ms is None else repr(f.rtt_ms),
            f.origin.kind,
            *_origin_fields(f.origin),
        ]
        for pair, f in sorted(links, key=lambda entry: (entry[0], entry[1].origin.kind))
    )
    write_table(path, ["src", "dst", "gbps", "rtt_ms", "kind", "source", "date", "method"], rows)


def _store_prices(folder: Path, prices: dict[Pair, EgressPrice], date: str) -> None:
    path = folder / PRICES_FILE
    kept = dict(read_prices(path)) if path.exists() else {}
    kept.update({pair: replace(price, origin=_dated(price.origin, date)) for pair, price in prices.items()})
    rows = (
        [*map(str, pair), format_tiers(price.tiers), *_origin_fields(price.origin)]
        for pair, price in sorted(kept.items(), key=lambda entry: entry[0])
    )
    write_table(path, ["src", "dst", "usd_per_gb", "source", "date", "method"], rows)


def _store_machines(folder: Path, machines: list[MachinePrice], date: str) -> None:
    path = folder / MACHINES_FILE
    kept = {
        (m.region, m.type, m.spot): m for m in (read_machine_prices(path, read_packaged()) if path.exists() else ())
    }
    kept.update({(m.region, m.type, m.spot): replace(m, origin=_dated(m.origin, date)) for m in machines})
    rows = (
        [str(m.region), m.type, "yes" if m.spot else "no", repr(m.usd_per_hour), *_origin_fields(m.origin)]
        for _, m in sorted(kept.items(), key=lambda entry: entry[0])
    )
    write_table(path, ["region", "type", "spot", "usd_per_hour", "source", "date", "method"], rows)


def _dated(origin: Origin, date: str) -> Origin:
    return origin if origin.date else replace(origin, date=date)


def _origin_fields(origin: Origin) -> list[str]:
    return [origin.source, origin.date, origin.method]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
