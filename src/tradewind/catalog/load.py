"""Loads the catalog: what the project packages, and over it what the user imported, refreshed and learned.

Layers, each over the one before: packaged files (`data/`, with source and date per figure), the modelled grid, the
user's files in the catalog folder (`links.csv`, `prices.csv`, `machines.csv`). A measured link is believed less as it
ages: after `HALF_LIFE_DAYS` half of it, the other half being the model's. Two measured grids ten months apart correlate
at 0.39 only.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path
from typing import get_args

from tradewind.catalog.modelled import LinkModel, modelled_links
from tradewind.catalog.tables import GBPS_MAX, RTT_MS_MAX, USD_PER_GB_MAX, Row, read_rows
from tradewind.model.catalog import Catalog
from tradewind.model.grid import Grid, Link
from tradewind.model.machine import MachineOffer, MachineType, StoreLimits
from tradewind.model.origin import Origin, OriginKind
from tradewind.model.price import EgressPrice, EgressRule, PriceBook, PriceTier
from tradewind.model.region import Place, Region

__all__ = ["catalog_folder", "load_catalog"]

HALF_LIFE_DAYS = 180.0
USD_PER_HOUR_MAX = 10_000.0
SPOT_PART = 0.4
"""Of the on-demand price, where no spot price is known. Providers advertise discounts of 60 to 90 per cent."""

_ASSUMED_SPOT = Origin("assumed", f"{SPOT_PART:.0%} of the on-demand price; `catalog refresh` asks", "")


def catalog_folder() -> Path:
    """Where the user's part of the catalog is: `$XDG_STATE_HOME/tradewind/catalog`."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "tradewind" / "catalog"


def load_catalog(folder: Path | None = None, *, today: datetime.date | None = None) -> Catalog:
    """The packaged catalog with the user's on top.

    Args:
        folder: the user's part; ``None`` for the packaged catalog alone.
        today: for the age of measured figures; ``None`` for the present date.

    Raises:
        ConfigError: a file of the user's cannot be understood; names file, line and column.
    """
    with as_file(files("tradewind.catalog") / "data") as data:
        places = {place.region: place for place in _places(data / "regions.csv")}
        rules = tuple(_rules(data / "egress_rules.csv"))
        models = dict(_models(data / "grid_model.csv"))
        offers = _by_provider(_offers(data / "machines.csv", "published"))
        stores = {limits.provider: limits for limits in _stores(data / "stores.csv")}
    links = dict(modelled_links(places, models))
    pairs: dict[tuple[Region, Region], EgressPrice] = {}
    region_offers: dict[Region, tuple[MachineOffer, ...]] = {}
    if folder is not None:
        now = today or datetime.datetime.now(datetime.timezone.utc).date()
        if (folder / "links.csv").exists():
            for pair, link in read_links(folder / "links.csv"):
                links[pair] = _aged(link, links.get(pair), now)
        if (folder / "prices.csv").exists():
            pairs.update(read_prices(folder / "prices.csv"))
        if (folder / "machines.csv").exists():
            region_offers = _refreshed(folder / "machines.csv", offers)
    return Catalog(places, PriceBook(pairs, rules), Grid(links), offers, region_offers, stores=stores)


def read_links(
    path: Path, kind: OriginKind = "imported", source: str = ""
) -> Iterator[tuple[tuple[Region, Region], Link]]:
    """Links of a CSV file: src, dst, gbps[, rtt_ms][, kind][, source][, date]; also Skyplane's profiles.

    Skyplane's columns are ``src_region``, ``dst_region`` (or ``src``, ``dst``), ``throughput_received`` [bit/s] and
    ``throughput_sent``. What was received is taken.

    Raises:
        ConfigError: names file, line and column.
    """
    rates = ["gbps", "received_gbps", "throughput_received", "throughput_recieved"]
    for row in read_rows(path, [["src", "src_region"], ["dst", "dst_region"], rates]):
        gbps = _rate(row)
        rtt = row.number("rtt_ms", low=0.0, high=RTT_MS_MAX) if row.has("rtt_ms") else None
        src, dst = row.region("src", "src_region"), row.region("dst", "dst_region")
        if src == dst:
            continue
        yield (src, dst), Link(gbps, _origin(row, kind, source or path.name), rtt)


def _rate(row: Row) -> float:
    for column in ("throughput_received", "throughput_recieved"):
        if row.has(column):
            return row.number(column, low=0.0, high=GBPS_MAX * 1e9) / 1e9
    return row.number("gbps", "received_gbps", low=0.0, high=GBPS_MAX)


def read_prices(path: Path) -> Iterator[tuple[tuple[Region, Region], EgressPrice]]:
    """Egress prices of a CSV file: src, dst, usd_per_gb[, kind][, source][, date].

    Raises:
        ConfigError: names file, line and column.
    """
    for row in read_rows(path, [["src"], ["dst"], ["usd_per_gb"]]):
        tier = PriceTier(0.0, row.number("usd_per_gb", low=0.0, high=USD_PER_GB_MAX))
        yield (row.region("src"), row.region("dst")), EgressPrice((tier,), _origin(row, "imported", path.name))


def _origin(row: Row, kind: OriginKind, source: str) -> Origin:
    named = row.fields.get("kind", "")
    if named and named not in get_args(OriginKind):
        raise row.wrong("kind", f"{named!r} is none of {', '.join(get_args(OriginKind))}")
    date = row.fields.get("date", "")
    if date:
        try:
            datetime.date.fromisoformat(date)
        except ValueError:
            raise row.wrong("date", f"{date!r} is not a date like 2024-05-01") from None
    chosen: OriginKind = named or kind  # type: ignore[assignment]  # checked above
    return Origin(chosen, row.fields.get("source", "") or source, date)


def _aged(link: Link, model: Link | None, today: datetime.date) -> Link:
    """What an old measurement is still worth, the rest being the model's."""
    if model is None or not link.origin.date:
        return link
    age_days = max(0, (today - datetime.date.fromisoformat(link.origin.date)).days)
    weight = 0.5 ** (age_days / HALF_LIFE_DAYS)
    if weight > 0.99:
        return link
    gbps = weight * link.gbps + (1 - weight) * model.gbps
    source = f"{link.origin.source}, {age_days} days old: {weight:.0%} of {link.gbps:.4g}, the rest modelled"
    return Link(gbps, Origin(link.origin.kind, source, link.origin.date), link.rtt_ms or model.rtt_ms)


def _places(path: Path) -> Iterator[Place]:
    for row in read_rows(path, [["region"]]):
        yield Place(
            row.region("region"),
            row.fields["label"],
            row.number("latitude_deg", low=-90, high=90),
            row.number("longitude_deg", low=-180, high=180),
            row.fields["continent"],
        )


def _rules(path: Path) -> Iterator[EgressRule]:
    for row in read_rows(path, [["src"], ["dst"], ["usd_per_gb_from_gb"]]):
        tiers = [part.split(":") for part in row.fields["usd_per_gb_from_gb"].split(";")]
        price = EgressPrice(
            tuple(PriceTier(float(start), float(usd)) for start, usd in tiers), _origin(row, "published", path.name)
        )
        yield EgressRule(row.fields["src"], row.fields["dst"], price)


def _models(path: Path) -> Iterator[tuple[tuple[str, str], LinkModel]]:
    for row in read_rows(path, [["src_provider"], ["dst_provider"]]):
        model = LinkModel(
            row.number("cap_gbps", low=0, high=GBPS_MAX),
            row.number("half_km", low=1, high=1e6),
            row.number("steepness", low=0.01, high=100),
            _origin(row, "modelled", path.name),
        )
        yield (row.fields["src_provider"], row.fields["dst_provider"]), model


def _offers(path: Path, kind: OriginKind) -> Iterator[MachineOffer]:
    for row in read_rows(path, [["provider"], ["type"], ["usd_per_hour"]]):
        origin = _origin(row, kind, path.name)
        machine = MachineType(
            row.fields["provider"],
            row.fields["type"],
            int(row.number("vcpus", low=1, high=10_000)),
            row.number("nic_gbps", low=0.001, high=GBPS_MAX),
            row.number("egress_gbps", low=0.001, high=GBPS_MAX),
            row.number("ingress_gbps", low=0.001, high=GBPS_MAX),
            row.number("boot_s", low=0, high=86_400),
            origin,
        )
        usd_per_hour = row.number("usd_per_hour", low=0, high=USD_PER_HOUR_MAX)
        yield MachineOffer(machine, usd_per_hour, spot=False, origin=origin)
        yield MachineOffer(machine, usd_per_hour * SPOT_PART, spot=True, origin=_ASSUMED_SPOT)


def _by_provider(offers: Iterator[MachineOffer]) -> dict[str, tuple[MachineOffer, ...]]:
    found: dict[str, list[MachineOffer]] = {}
    for offer in offers:
        found.setdefault(offer.machine.provider, []).append(offer)
    return {provider: tuple(of) for provider, of in found.items()}


def _refreshed(path: Path, offers: dict[str, tuple[MachineOffer, ...]]) -> dict[Region, tuple[MachineOffer, ...]]:
    """Offers per region where prices are known (region, type, spot, usd_per_hour); the packaged caps stay."""
    known = {(o.machine.provider, o.machine.name): o.machine for of in offers.values() for o in of}
    prices: dict[Region, dict[tuple[str, bool], MachineOffer]] = {}
    for row in read_rows(path, [["region"], ["type"], ["usd_per_hour"]]):
        region = row.region("region")
        machine = known.get((region.provider, row.fields["type"]))
        if machine is None:
            raise row.wrong("type", f"{row.fields['type']!r} is not a machine type that the catalog knows")
        spot = row.fields.get("spot", "") == "yes"
        price = row.number("usd_per_hour", low=0, high=USD_PER_HOUR_MAX)
        offer = MachineOffer(machine, price, spot, _origin(row, "refreshed", path.name))
        prices.setdefault(region, {})[machine.name, spot] = offer
    complete: dict[Region, tuple[MachineOffer, ...]] = {}
    for region, of in prices.items():
        packaged = {(o.machine.name, o.spot): o for o in offers.get(region.provider, ())}
        complete[region] = tuple({**packaged, **of}.values())
    return complete


def _stores(path: Path) -> Iterator[StoreLimits]:
    for row in read_rows(path, [["provider"]]):
        yield StoreLimits(
            row.fields["provider"],
            row.number("read_gbps", low=0.001, high=GBPS_MAX) if row.has("read_gbps") else float("inf"),
            row.number("write_gbps", low=0.001, high=GBPS_MAX) if row.has("write_gbps") else float("inf"),
            row.number("get_usd_per_1000", low=0, high=100),
            row.number("put_usd_per_1000", low=0, high=100),
            _origin(row, "published", path.name),
        )
