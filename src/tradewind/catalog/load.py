"""Loads the catalog: the packaged tables, overridden by measured, learned, imported and refreshed figures.

docs/concepts/catalog.md describes the order of these layers, for links and for prices.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tradewind.catalog.ageing import Figure, layered
from tradewind.catalog.learned import LEARNED_FILE, learned_figures, read_samples
from tradewind.catalog.modelled import modelled_links
from tradewind.catalog.packaged import Packaged, read_packaged
from tradewind.catalog.refreshed import ListedMachinePrice, read_machine_price, read_refreshed, refreshed_files
from tradewind.catalog.tables import (
    QUOTAS_FILE,
    STORES_FILE,
    RowCheck,
    read_links,
    read_quotas,
    read_rows,
    read_stores,
    with_overrides,
)
from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.files import state_home
from tradewind.model.machine import MachineOffer, MachineType
from tradewind.model.network_tier import NetworkTier
from tradewind.model.price import EgressPrice, EgressRule, PriceBook, StandardTier
from tradewind.model.records import replace
from tradewind.model.region import Region

__all__ = [
    "LINKS_FILE",
    "MACHINES_FILE",
    "PRICES_FILE",
    "catalog_folder",
    "load_catalog",
    "machine_price_files",
    "offers_with_own_prices",
    "read_prices",
]

LINKS_FILE, PRICES_FILE, MACHINES_FILE = "links.csv", "prices.csv", "machines.csv"

Pair = tuple[Region, Region]
STANDARD: NetworkTier = "standard"
MachineKey = tuple[Region, str, bool]
"""Region, type, whether spot."""


def catalog_folder(state_dir: str | None = None) -> Path:
    """Return the folder of the user's part of the catalog: `catalog` in the state folder (setting `state_dir`)."""
    return Path(state_home(state_dir), "catalog")


def load_catalog(folder: Path | None = None, *, today: datetime.date | None = None) -> Catalog:
    """Return the packaged catalog with the user's part on top.

    Args:
        folder: the user's part; ``None`` for the packaged catalog alone.
        today: for the age of figures; ``None`` for the present date.

    Raises:
        ConfigError: a file of the user cannot be parsed; the error names file, line and column.
    """
    packaged = read_packaged()
    links = dict(_modelled())
    if folder is None:
        return _catalog(packaged, links, PriceBook(rules=packaged.rules), {})
    now = today or datetime.datetime.now(datetime.timezone.utc).date()
    links.update(_user_links(folder, links, now))
    refreshed = [figure for path in refreshed_files(folder) for figure in read_refreshed(path)]
    prices = _price_book(folder, packaged, [figure for figure in refreshed if isinstance(figure, EgressRule)])
    machine_prices = [figure for figure in refreshed if isinstance(figure, ListedMachinePrice)]
    machine_prices += _own_machine_prices(folder, packaged)
    catalog = _catalog(packaged, links, prices, _region_offers(machine_prices, packaged))
    catalog = replace(catalog, standard_links=dict(_standard_links(folder, links, packaged.standard_tiers, now)))
    if (folder / STORES_FILE).exists():
        catalog = replace(catalog, stores=with_overrides(packaged.stores, dict(read_stores(folder / STORES_FILE))))
    if (folder / QUOTAS_FILE).exists():
        quotas = dict(read_quotas(folder / QUOTAS_FILE))
        catalog = replace(
            catalog,
            quotas={region: quota.machines for region, quota in quotas.items()},
            quota_origins={region: quota.origin for region, quota in quotas.items()},
        )
    return catalog


@cache
def _modelled() -> Mapping[Pair, Link]:
    """Return the modelled links of the packaged catalog. A service loads the catalog each minute."""
    packaged = read_packaged()
    return dict(modelled_links(packaged.places, packaged.models))


def machine_price_files(folder: Path) -> list[Path]:
    """Return the files of the user's part of the catalog that may have machine prices."""
    own = folder / MACHINES_FILE
    return [*refreshed_files(folder), *([own] if own.exists() else [])]


def offers_with_own_prices(folder: Path, provider: str) -> dict[Region, tuple[MachineOffer, ...]]:
    """Return the offers of a provider's regions for which the user's part of the catalog has machine prices.

    Raises ConfigError.
    """
    packaged = read_packaged()
    figures = (figure for path in refreshed_files(folder) for figure in read_refreshed(path))
    prices = [figure for figure in figures if isinstance(figure, ListedMachinePrice)]
    prices += _own_machine_prices(folder, packaged)
    return _region_offers((price for price in prices if price.region.provider == provider), packaged)


def _own_machine_prices(folder: Path, packaged: Packaged) -> Iterator[ListedMachinePrice]:
    """Yield the machine prices that the user has imported."""
    if (folder / MACHINES_FILE).exists():
        yield from read_machine_prices(folder / MACHINES_FILE, packaged)


def _catalog(
    packaged: Packaged,
    links: Mapping[Pair, Link],
    prices: PriceBook,
    region_offers: Mapping[Region, tuple[MachineOffer, ...]],
) -> Catalog:
    return Catalog(
        packaged.places,
        prices,
        Grid(links),
        packaged.offers,
        region_offers,
        stores=packaged.stores,
        standard_tiers=packaged.standard_tiers,
    )


def _user_links(folder: Path, modelled: Mapping[Pair, Link], today: datetime.date) -> Iterator[tuple[Pair, Link]]:
    """Yield every link in the user's part, combined from all layers."""
    figures: dict[Pair, list[Figure]] = defaultdict(list)
    if (folder / LINKS_FILE).exists():
        for pair, figure in read_links(folder / LINKS_FILE):
            figures[pair] = [f for f in figures[pair] if f.origin.kind != figure.origin.kind] + [figure]
    if (folder / LEARNED_FILE).exists():
        samples = (sample for sample in read_samples(folder / LEARNED_FILE) if sample.network_tier != STANDARD)
        for pair, figure in learned_figures(samples, today).items():
            figures[pair].append(figure)
    for pair, of in figures.items():
        model = modelled.get(pair)
        if model is not None:
            of.append(Figure(model.gbps, model.origin, model.rtt_ms, model.rtt_origin))
        yield pair, layered(of, today)


def _standard_links(
    folder: Path, links: Mapping[Pair, Link], tiers: Mapping[str, StandardTier], today: datetime.date
) -> Iterator[tuple[Pair, Link]]:
    """Yield the links whose rate from the standard network tier was learned, above the assumed one."""
    if not (folder / LEARNED_FILE).exists():
        return
    samples = (sample for sample in read_samples(folder / LEARNED_FILE) if sample.network_tier == STANDARD)
    for pair, figure in learned_figures(samples, today).items():
        figures, tier, link = [figure], tiers.get(pair[0].provider), links.get(pair)
        if tier is not None and link is not None:
            assumed = replace(tier.rate_origin, kind="modelled")
            figures.append(Figure(link.gbps, assumed, link.rtt_ms, link.rtt_origin or link.origin))
        yield pair, layered(figures, today)


def _price_book(folder: Path, packaged: Packaged, refreshed: Iterable[EgressRule]) -> PriceBook:
    """Return egress prices: the user's imported pairs first, then those of price APIs, then the packaged rules."""
    by_name = {str(region): region for region in packaged.places}
    pairs: dict[Pair, EgressPrice] = {}
    rules: dict[Region, tuple[EgressRule, ...]] = {}
    for rule in refreshed:
        src = Region.parse(rule.src)
        if rule.dst in by_name:
            pairs[src, by_name[rule.dst]] = rule.price
        else:
            rules[src] = (*rules.get(src, ()), rule)
    if (folder / PRICES_FILE).exists():
        pairs.update(read_prices(folder / PRICES_FILE))
    return PriceBook(pairs, packaged.rules, rules)


def read_prices(path: Path, source: str = "", check: RowCheck | None = None) -> Iterator[tuple[Pair, EgressPrice]]:
    """Yield the egress prices of a CSV file: src, dst, usd_per_gb[, unit][, counted][, source][, date].

    A price may have tiers, each with the monthly volume in GB from which it applies: `0:0.09;10240:0.085`. With `GiB`
    as `unit`, price and tiers are per GiB. `counted` says which traffic fills the tiers of this price: that of the
    `account` (the default), of the source `region`, or between two `continents`. ``check`` is called with each line.

    Raises:
        ConfigError: names file, line and column.
    """
    for row in read_rows(path, [["src"], ["dst"], ["usd_per_gb"]]):
        price = row.egress_price("usd_per_gb", row.origin(source or path.name, "imported"))
        pair = (row.region("src"), row.region("dst"))
        if check is not None:
            check(row, [["src"], ["dst"]], pair)
        yield pair, price


def read_machine_prices(
    path: Path, packaged: Packaged, source: str = "", check: RowCheck | None = None
) -> Iterator[ListedMachinePrice]:
    """Yield machine prices of a CSV file: region, type, usd_per_hour[, spot][, source][, date].

    ``check`` is called with each line.

    Raises:
        ConfigError: names file, line and column; also raised for a type that is not in the catalog.
    """
    known = _machine_types(packaged)
    for row in read_rows(path, [["region"], ["type"], ["usd_per_hour"]]):
        price = read_machine_price(row, row.origin(source or path.name, "imported"))
        if (price.region.provider, price.type) not in known:
            of = sorted(name for provider, name in known if provider == price.region.provider)
            raise row.wrong("type", f"{price.type!r} is not a machine type of the catalog ({', '.join(of) or 'none'})")
        if check is not None:
            check(row, [["region"]], (price.region, price.type, price.spot))
        yield price


def _machine_types(packaged: Packaged) -> dict[tuple[str, str], MachineType]:
    return {(o.machine.provider, o.machine.name): o.machine for of in packaged.offers.values() for o in of}


def _region_offers(prices: Iterable[ListedMachinePrice], packaged: Packaged) -> dict[Region, tuple[MachineOffer, ...]]:
    """Return all offers of each region with a known price; later prices override earlier and packaged ones."""
    known = _machine_types(packaged)
    by_region: dict[Region, dict[tuple[str, bool], MachineOffer]] = {}
    for price in prices:
        machine = known.get((price.region.provider, price.type))
        # A refreshed file may be older than the program: a type that no longer exists is not offered.
        if machine is not None:
            offers = by_region.setdefault(
                price.region, {(o.machine.name, o.spot): o for o in packaged.offers[price.region.provider]}
            )
            offers[price.type, price.spot] = MachineOffer(machine, price.usd_per_hour, price.spot, price.origin)
    return {region: tuple(offers.values()) for region, offers in by_region.items()}
