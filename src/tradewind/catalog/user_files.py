"""Imports tables into the user's part of the catalog: whole files, replaced by rename."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Generic, TypeVar

from tradewind.catalog import tables
from tradewind.catalog.ageing import Figure, age_weight
from tradewind.catalog.load import (
    LINKS_FILE,
    MACHINES_FILE,
    PRICES_FILE,
    MachineKey,
    Pair,
    load_catalog,
    read_machine_prices,
    read_prices,
)
from tradewind.catalog.locked import one_writer
from tradewind.catalog.packaged import read_packaged
from tradewind.catalog.refreshed import ListedMachinePrice
from tradewind.catalog.tables import (
    OTHER_REQUEST_PRICES,
    QUOTAS_FILE,
    REQUEST_PRICES,
    STORE_RATES,
    STORES_FILE,
    ImportedQuota,
    RowCheck,
    StoreFigures,
    format_tiers,
    read_links,
    read_quotas,
    read_stores,
    skip_comments,
    write_table,
)
from tradewind.errors import ConfigError
from tradewind.model.origin import OriginKind
from tradewind.model.price import EgressPrice
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region
from tradewind.model.units import format_count, format_gbps

__all__ = ["Imported", "import_table", "write_links"]

LinkKey = tuple[Pair, OriginKind]
AFTER_REFUSAL = "nothing was imported; fix the line and import the file again"
NO_TABLE = "give a CSV table; `tradewind catalog --help` lists the tables"
NOTHING_THERE = "rows below the header, each for two different regions, one region or one provider"
Key = TypeVar("Key", LinkKey, Pair, MachineKey, Region, str)
Value = TypeVar("Value", Figure, EgressPrice, ListedMachinePrice, ImportedQuota, StoreFigures)


@dataclass(frozen=True, slots=True)
class Table(Generic[Key, Value]):
    """One of the user's tables: its file, and how its lines are read and written."""

    what: str
    """Name of one entry, for people."""
    file: str
    columns: tuple[str, ...]
    """Columns except those of the origin, which are common to all tables."""
    read: Callable[[Path, str, RowCheck | None], Iterable[tuple[Key, Value]]]
    fields: Callable[[Key, Value], list[str]]
    about: Callable[[Key], str]
    figure: Callable[[Value], str]


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of an import."""

    what: str
    """`link`, `egress price`, `machine price`, `quota` or `store`."""
    taken: int
    """Number of figures from the table that are now in the user's part of the catalog."""
    stayed: tuple[str, ...]
    """Existing figures, as text, that were kept because they are newer than the table's."""
    too_old: int = 0
    """Number of links whose imported figure has no effect, because a newer one is known."""

    def __str__(self) -> str:
        return format_count(self.taken, self.what)


def import_table(path: Path, folder: Path, *, date: str, source: str = "", new_regions: bool = False) -> Imported:
    """Import a CSV table of links, prices, quotas or object stores; its columns decide which. Returns the result.

    A figure replaces an existing one of the same kind unless that one has a later date.

    Args:
        path: the table.
        folder: the user's part of the catalog.
        date: for lines without one.
        source: for lines without one; the file's name unless given.
        new_regions: accept regions that the catalog does not know; otherwise only `site:…` may be new.

    Raises:
        ConfigError: names file, line and column, or the file has no entries; then nothing is imported.
    """
    try:
        return _import_table(path, folder, date=date, source=source, new_regions=new_regions)
    except ConfigError as error:
        error.hint = error.hint or AFTER_REFUSAL
        raise


def _import_table(path: Path, folder: Path, *, date: str, source: str, new_regions: bool) -> Imported:
    header = _header(path)
    known = load_catalog(folder)
    check = tables.ImportCheck(known, new_regions=new_regions)
    if "usd_per_hour" in header:
        return _store(MACHINE_PRICES, folder, _entries(MACHINE_PRICES, path, source, check), date)
    if "usd_per_gb" in header:
        return _store(EGRESS_PRICES, folder, _entries(EGRESS_PRICES, path, source, check), date)
    if "machines" in header:
        return _store(QUOTAS, folder, _entries(QUOTAS, path, source, check), date)
    if "provider" in header:
        return _store(STORES, folder, _entries(STORES, path, source, check), date)
    links = _entries(LINKS, path, source, check)
    dates = (figure.origin.date or date for (pair, _), figure in links if known.grid.link(*pair) is not None)
    too_old = sum(age_weight(of, tables.present().date()) == 0 for of in dates)
    return replace(_store(LINKS, folder, links, date), too_old=too_old)


def _entries(table: Table[Key, Value], path: Path, source: str, check: RowCheck) -> list[tuple[Key, Value]]:
    """Return all entries of a table. Raises ConfigError for none: the file is the wrong one or in another format."""
    entries = list(table.read(path, source, check))
    if not entries:
        raise ConfigError(f"{path}: no usable row in it", hint=f"a table needs {NOTHING_THERE}")
    return entries


def _header(path: Path) -> list[str]:
    try:
        with tables.open_table(path) as file:
            header = [name.strip() for name in next(csv.reader(skip_comments(file)[1]), [])]
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint=NO_TABLE) from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a CSV table: {error}", hint=NO_TABLE) from None
    return header


def write_links(path: Path, links: Iterable[tuple[Pair, Figure]]) -> None:
    """Write a table of links that `import_table` can read."""
    _write(LINKS, path, {(pair, figure.origin.kind): figure for pair, figure in links})


def _store(table: Table[Key, Value], folder: Path, entries: Iterable[tuple[Key, Value]], date: str) -> Imported:
    """Add entries, replacing older ones; ``date`` is for those without one."""
    with one_writer(folder):
        return _store_locked(table, folder / table.file, entries, date)


def _store_locked(table: Table[Key, Value], path: Path, entries: Iterable[tuple[Key, Value]], date: str) -> Imported:
    kept = dict(table.read(path, "", None)) if path.exists() else {}
    new = {key: _dated(value, date) for key, value in entries}
    stayed = [key for key, value in new.items() if key in kept and kept[key].origin.date > value.origin.date]
    _write(table, path, {**kept, **new, **{key: kept[key] for key in stayed}})
    words = (f"{table.about(key)} stays {table.figure(kept[key])} of {kept[key].origin.date}" for key in stayed)
    return Imported(table.what, len(new) - len(stayed), tuple(words))


def _write(table: Table[Key, Value], path: Path, entries: Mapping[Key, Value]) -> None:
    columns = [*table.columns, "source", "date", "method"]
    write_table(path, columns, (_line(table, key, value) for key, value in sorted(entries.items(), key=itemgetter(0))))


def _line(table: Table[Key, Value], key: Key, value: Value) -> list[str]:
    origin = value.origin
    return [*table.fields(key, value), origin.source, origin.date, origin.method]


def _dated(value: Value, date: str) -> Value:
    return value if value.origin.date else replace(value, origin=replace(value.origin, date=date))


def _read_links(path: Path, source: str, check: RowCheck | None) -> Iterator[tuple[LinkKey, Figure]]:
    return (((pair, figure.origin.kind), figure) for pair, figure in read_links(path, source, check))


def _read_machines(path: Path, source: str, check: RowCheck | None) -> Iterator[tuple[MachineKey, ListedMachinePrice]]:
    return (((m.region, m.type, m.spot), m) for m in read_machine_prices(path, read_packaged(), source, check))


def _number(figure: float | None) -> str:
    return "" if figure is None else repr(figure)


def _store_fields(provider: str, store: StoreFigures) -> list[str]:
    figures = (
        store.read_gbps,
        store.write_gbps,
        store.get_usd_per_1000,
        store.put_usd_per_1000,
        store.list_usd_per_1000,
        store.head_usd_per_1000,
    )
    return [provider, *map(_number, figures)]


def _store_words(store: StoreFigures) -> str:
    columns = (*STORE_RATES, *REQUEST_PRICES, *OTHER_REQUEST_PRICES)
    return ", ".join(f"{c} {text}" for c, text in zip(columns, _store_fields("", store)[1:], strict=True) if text)


LINKS: Table[LinkKey, Figure] = Table(
    what="link",
    file=LINKS_FILE,
    columns=("src", "dst", "gbps", "rtt_ms", "kind"),
    read=_read_links,
    fields=lambda key, figure: [*map(str, key[0]), repr(figure.gbps), _number(figure.rtt_ms), key[1]],
    about=lambda key: " → ".join(map(str, key[0])),
    figure=lambda figure: format_gbps(figure.gbps),
)
EGRESS_PRICES: Table[Pair, EgressPrice] = Table(
    what="egress price",
    file=PRICES_FILE,
    columns=("src", "dst", "usd_per_gb", "unit", "counted"),
    read=read_prices,
    fields=lambda pair, price: [*map(str, pair), format_tiers(price), price.unit, price.counted],
    about=lambda pair: " → ".join(map(str, pair)),
    figure=lambda price: f"{price.listed_tiers[0][1]:g} USD/{price.unit}",
)
MACHINE_PRICES: Table[MachineKey, ListedMachinePrice] = Table(
    what="machine price",
    file=MACHINES_FILE,
    columns=("region", "type", "spot", "usd_per_hour"),
    read=_read_machines,
    fields=lambda key, price: [str(key[0]), key[1], "yes" if key[2] else "no", repr(price.usd_per_hour)],
    about=lambda key: f"{key[0]} {key[1]}",
    figure=lambda price: f"{price.usd_per_hour:g} USD/h",
)
QUOTAS: Table[Region, ImportedQuota] = Table(
    what="quota",
    file=QUOTAS_FILE,
    columns=("region", "machines"),
    read=read_quotas,
    fields=lambda region, quota: [str(region), str(quota.machines)],
    about=str,
    figure=lambda quota: format_count(quota.machines, "machine"),
)
STORES: Table[str, StoreFigures] = Table(
    what="store",
    file=STORES_FILE,
    columns=("provider", *STORE_RATES, *REQUEST_PRICES, *OTHER_REQUEST_PRICES),
    read=read_stores,
    fields=_store_fields,
    about=lambda provider: f"the store of {provider}",
    figure=_store_words,
)
