"""Prices of rented machines: those of the user's part of the catalog, which a refresh changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.catalog.load import load_catalog
from tradewind.catalog.packaged import read_packaged
from tradewind.catalog.refreshed import ListedMachinePrice, store_refreshed
from tradewind.fleet.catalog_offers import CatalogOffers
from tradewind.model.origin import Origin
from tradewind.model.region import Region

HERE, ELSEWHERE = "gcp:us-central1", "gcp:europe-west4"
REFRESHED = Origin("refreshed", "a price API", "2026-11-01")


def store_price(folder: Path, usd_per_hour: float, name: str, provider: str = "gcp", region: str = HERE) -> None:
    price = ListedMachinePrice(Region.parse(region), name, False, usd_per_hour, REFRESHED)
    store_refreshed(folder, provider, [], [price])


@pytest.mark.parametrize(
    ("provider", "region", "other"),
    [
        ("aws", "aws:us-east-1", "aws:eu-west-1"),
        ("azure", "azure:eastus", "azure:westeurope"),
        ("gcp", HERE, ELSEWHERE),
    ],
)
def test_a_refresh_changes_the_prices_of_its_region_and_no_others(
    tmp_path: Path, provider: str, region: str, other: str
) -> None:
    prices, packaged = CatalogOffers(provider, tmp_path), read_packaged().offers[provider]
    assert prices.offers(region) == prices.offers(other) == prices.packaged == packaged
    first = next(offer for offer in packaged if not offer.spot)
    for usd_per_hour in (7.0, 8.0):
        store_price(tmp_path, usd_per_hour, first.machine.name, provider, region)
        found = {(offer.machine.name, offer.spot): offer for offer in prices.offers(region)}
        changed = found[first.machine.name, False]
        assert (changed.usd_per_hour, changed.origin) == (usd_per_hour, REFRESHED)
        assert set(found) == {(offer.machine.name, offer.spot) for offer in packaged}
    assert prices.offers(other) == packaged
    assert load_catalog(tmp_path).machine_offers(Region.parse(region)) == prices.offers(region)


def test_an_unreadable_file_leaves_the_prices_before_it(tmp_path: Path) -> None:
    """Machines that run must be healed and ended; whoever plans gets the error."""
    prices = CatalogOffers("gcp", tmp_path)
    name = prices.packaged[0].machine.name
    store_price(tmp_path, 7.0, name)
    before = prices.offers(HERE)
    assert 7.0 in [offer.usd_per_hour for offer in before]
    (tmp_path / "refreshed-gcp.csv").write_text("nonsense\n")
    assert prices.offers(HERE) == before
