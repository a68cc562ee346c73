"""Takes the user's tables into the user's part of the catalog: whole files, by rename, nothing is ever half there."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tradewind.catalog.ageing import Figure
from tradewind.catalog.links import read_links
from tradewind.catalog.load import (
    LINKS_FILE,
    MACHINES_FILE,
    PRICES_FILE,
    Pair,
    load_catalog,
    read_machine_prices,
    read_prices,
)
from tradewind.catalog.packaged import read_packaged
from tradewind.catalog.refreshed import MachinePrice
from tradewind.catalog.strict import ImportCheck
from tradewind.catalog.tables import format_tiers, skip_comments, write_table
from tradewind.errors import ConfigError
from tradewind.model.amounts import format_gbps
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice
from tradewind.model.units import format_count

__all__ = ["Imported", "import_table", "write_links"]

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did."""

    what: str
    """`link`, `egress price` or `machine price`."""
    taken: int
    """Figures that are in the user's part of the catalog now."""
    stayed: tuple[str, ...]
    """Figures that were there and are newer than the table's, in words: they were kept instead."""

    def __str__(self) -> str:
        return format_count(self.taken, self.what)


def import_table(path: Path, folder: Path, *, date: str, source: str = "", new_regions: bool = False) -> Imported:
    """Take a CSV of links, egress prices or machine prices; the columns decide which. Says what was taken.

    A figure takes the place of the one of the same kind that is there, unless that one's date is later.

    Args:
        path: the table.
        folder: the user's part of the catalog.
        date: of lines that name none.
        source: of lines that name none; the file's name unless given.
        new_regions: regions that the catalog does not know are meant; else only `site:…` may be new.

    Raises:
        ConfigError: names file, line and column; nothing has been taken then.
    """
    header = _header(path)
    check = ImportCheck(load_catalog(folder), datetime.datetime.now(datetime.timezone.utc), new_regions=new_regions)
    if "usd_per_hour" in header:
        machines = list(read_machine_prices(path, read_packaged(), source, check))
        return _store_machines(folder, machines, date)
    if "usd_per_gb" in header:
        return _store_prices(folder, dict(read_prices(path, source, check)), date)
    return _store_links(folder, list(read_links(path, source, check)), date)


def _merged(
    kept: Mapping[Key, Value], new: Mapping[Key, Value], date_of: Callable[[Value], str]
) -> tuple[dict[Key, Value], list[Key]]:
    """The newer figure of each entry, the new one where both are of one day; and whose old one stayed."""
    stayed = [key for key, value in new.items() if key in kept and date_of(kept[key]) > date_of(value)]
    return {**kept, **new, **{key: kept[key] for key in stayed}}, stayed


def _header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = [name.strip() for name in next(csv.reader(skip_comments(file)[1]), [])]
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a CSV table: {error}") from None
    return header


def _store_links(folder: Path, links: list[tuple[Pair, Figure]], date: str) -> Imported:
    path = folder / LINKS_FILE
    kept = {(pair, f.origin.kind): f for pair, f in (read_links(path) if path.exists() else ())}
    new = {(pair, f.origin.kind): replace(f, origin=_dated(f.origin, date)) for pair, f in links}
    merged, stayed = _merged(kept, new, lambda figure: figure.origin.date)
    write_links(path, [(pair, figure) for (pair, _), figure in merged.items()])
    words = (_stays(map(str, key[0]), format_gbps(kept[key].gbps), kept[key].origin) for key in stayed)
    return Imported("link", len(new) - len(stayed), tuple(words))


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


def _store_prices(folder: Path, prices: dict[Pair, EgressPrice], date: str) -> Imported:
    path = folder / PRICES_FILE
    kept = dict(read_prices(path)) if path.exists() else {}
    new = {pair: replace(price, origin=_dated(price.origin, date)) for pair, price in prices.items()}
    merged, stayed = _merged(kept, new, lambda price: price.origin.date)
    rows = (
        [*map(str, pair), format_tiers(price.tiers), *_origin_fields(price.origin)]
        for pair, price in sorted(merged.items(), key=lambda entry: entry[0])
    )
    write_table(path, ["src", "dst", "usd_per_gb", "source", "date", "method"], rows)
    words = (_stays(map(str, pair), f"{kept[pair].tiers[0].usd_per_gb:g} USD/GB", kept[pair].origin) for pair in stayed)
    return Imported("egress price", len(new) - len(stayed), tuple(words))


def _store_machines(folder: Path, machines: list[MachinePrice], date: str) -> Imported:
    path = folder / MACHINES_FILE
    there = read_machine_prices(path, read_packaged()) if path.exists() else ()
    kept = {(m.region, m.type, m.spot): m for m in there}
    new = {(m.region, m.type, m.spot): replace(m, origin=_dated(m.origin, date)) for m in machines}
    merged, stayed = _merged(kept, new, lambda machine: machine.origin.date)
    rows = (
        [str(m.region), m.type, "yes" if m.spot else "no", repr(m.usd_per_hour), *_origin_fields(m.origin)]
        for _, m in sorted(merged.items(), key=lambda entry: entry[0])
    )
    write_table(path, ["region", "type", "spot", "usd_per_hour", "source", "date", "method"], rows)
    words = (_stays((f"{key[0]} {key[1]}",), f"{kept[key].usd_per_hour:g} USD/h", kept[key].origin) for key in stayed)
    return Imported("machine price", len(new) - len(stayed), tuple(words))


def _stays(about: Iterable[str], figure: str, origin: Origin) -> str:
    return f"{' → '.join(about)} stays {figure} of {origin.date}"


def _dated(origin: Origin, date: str) -> Origin:
    return origin if origin.date else replace(origin, date=date)


def _origin_fields(origin: Origin) -> list[str]:
    return [origin.source, origin.date, origin.method]
