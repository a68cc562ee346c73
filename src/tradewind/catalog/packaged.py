"""The tables that the project packages in `data/`; each line states the source and date of its figures."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

from tradewind.catalog.modelled import LinkModel
from tradewind.catalog.tables import GBPS_MAX, USD_PER_HOUR_MAX, StoreFigures, read_rows, store_figures, with_overrides
from tradewind.model.machine import MachineOffer, MachineType, StoreLimits
from tradewind.model.origin import Origin
from tradewind.model.price import EgressRule, StandardTier
from tradewind.model.records import dataclass, replace
from tradewind.model.region import Region, RegionInfo

__all__ = ["Packaged", "read_packaged"]

SPOT_PART = 0.4
"""Assumed share of the on-demand price if no spot price is known. Providers advertise discounts of 60 to 90%."""

_ASSUMED_SPOT = Origin("assumed", f"{SPOT_PART:.0%} of the on-demand price", "")


@dataclass(frozen=True, slots=True)
class Packaged:
    """Contents of the packaged tables."""

    places: dict[Region, RegionInfo]
    rules: tuple[EgressRule, ...]
    models: dict[tuple[str, str], LinkModel]
    offers: dict[str, tuple[MachineOffer, ...]]
    """Machine offers by provider."""
    stores: dict[str, StoreLimits]
    standard_tiers: dict[str, StandardTier]
    """Standard network tiers by provider."""


def read_packaged() -> Packaged:
    """Return the contents of all packaged tables."""
    with as_file(files("tradewind.catalog") / "data") as data:
        return Packaged(
            {place.region: place for place in _places(data / "regions.csv")},
            tuple(_rules(data / "egress_rules.csv")),
            dict(_models(data / "grid_model.csv")),
            _by_provider(_offers(data / "machines.csv")),
            with_overrides({}, dict(_stores(data / "stores.csv"))),
            dict(_standard_tiers(data / "network_tiers.csv", tuple(_rules(data / "standard_egress.csv")))),
        )


def _places(path: Path) -> Iterator[RegionInfo]:
    for row in read_rows(path, [["region"]]):
        yield RegionInfo(
            row.region("region"),
            row.fields["label"],
            row.number("latitude_deg", low=-90, high=90),
            row.number("longitude_deg", low=-180, high=180),
            row.fields["continent"],
            row.origin(path.name, "published", "assumed"),
        )


def _rules(path: Path) -> Iterator[EgressRule]:
    for row in read_rows(path, [["src"], ["dst"], ["usd_per_gb_from_gb"]]):
        price = row.egress_price("usd_per_gb_from_gb", row.origin(path.name, "published"))
        yield EgressRule(row.fields["src"], row.fields["dst"], price)


def _standard_tiers(path: Path, rules: tuple[EgressRule, ...]) -> Iterator[tuple[str, StandardTier]]:
    for row in read_rows(path, [["provider"], ["name"], ["rate_source"]]):
        provider = row.fields["provider"]
        yield (
            provider,
            StandardTier(
                row.fields["name"],
                tuple(rule for rule in rules if rule.src.partition(":")[0] == provider),
                tuple(map(Region.parse, row.fields["not_offered_in"].split())),
                row.origin(path.name, "published"),
                Origin("assumed", row.fields["rate_source"], ""),
            ),
        )


def _models(path: Path) -> Iterator[tuple[tuple[str, str], LinkModel]]:
    for row in read_rows(path, [["src_provider"], ["dst_provider"]]):
        model = LinkModel(
            row.number("cap_gbps", low=0, high=GBPS_MAX),
            row.number("half_km", low=1, high=1e6),
            row.number("steepness", low=0.01, high=100),
            replace(row.origin(path.name, "modelled"), method="cap and distance"),
        )
        yield (row.fields["src_provider"], row.fields["dst_provider"]), model


def _offers(path: Path) -> Iterator[MachineOffer]:
    for row in read_rows(path, [["provider"], ["type"], ["usd_per_hour"]]):
        machine = MachineType(
            row.fields["provider"],
            row.fields["type"],
            int(row.number("vcpus", low=1, high=10_000)),
            row.number("nic_gbps", low=0.001, high=GBPS_MAX),
            row.number("egress_gbps", low=0.001, high=GBPS_MAX),
            row.number("ingress_gbps", low=0.001, high=GBPS_MAX),
            row.number("boot_s", low=0, high=86_400),
            Origin("published", row.fields["caps_source"], row.fields["caps_date"]),
            Origin("assumed", row.fields["boot_source"], ""),
            row.number("billed_s_min", low=0, high=86_400),
            Origin("published" if row.fields["provider"] != "azure" else "assumed", row.fields["billed_source"], ""),
        )
        usd_per_hour = row.number("usd_per_hour", low=0, high=USD_PER_HOUR_MAX)
        yield MachineOffer(machine, usd_per_hour, spot=False, origin=row.origin(path.name, "published"))
        yield MachineOffer(machine, round(usd_per_hour * SPOT_PART, 6), spot=True, origin=_ASSUMED_SPOT)


def _by_provider(offers: Iterator[MachineOffer]) -> dict[str, tuple[MachineOffer, ...]]:
    found: dict[str, list[MachineOffer]] = {}
    for offer in offers:
        found.setdefault(offer.machine.provider, []).append(offer)
    return {provider: tuple(of) for provider, of in found.items()}


def _stores(path: Path) -> Iterator[tuple[str, StoreFigures]]:
    for row in read_rows(path, [["provider"]]):
        yield row.fields["provider"], store_figures(row, row.origin(path.name, "published"))
