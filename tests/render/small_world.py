"""A catalog of five real places with invented links, in which planning takes milliseconds."""

from __future__ import annotations

from dataclasses import replace

from tests.planner.worlds import MADE, offer
from tradewind.catalog.load import load_catalog
from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.price import EgressPrice, PriceBook, PriceTier
from tradewind.model.region import Region

TOKYO, SEATTLE, TORONTO = Region("gcp", "asia-northeast1"), Region("azure", "westus2"), Region("azure", "canadacentral")
OSAKA, LONDON = Region("azure", "japanwest"), Region("aws", "eu-west-2")

#: Gbit/s of a machine pair and USD per GB. The path over Seattle is fast and expensive, the direct one slow and cheap.
LINKS = {
    (TORONTO, TOKYO): (4.0, 0.08),
    (TORONTO, SEATTLE): (12.0, 0.02),
    (SEATTLE, TOKYO): (9.0, 0.09),
    (TORONTO, OSAKA): (3.0, 0.05),
    (OSAKA, TOKYO): (9.0, 0.12),
    (TORONTO, LONDON): (6.0, 0.09),
}


def small_world() -> Catalog:
    """Return a catalog of the links above, with one machine type per provider."""
    places = {region: place for region, place in load_catalog().places.items() if any(region in p for p in LINKS)}
    prices = {pair: EgressPrice((PriceTier(0.0, usd),), MADE) for pair, (_, usd) in LINKS.items()}
    return Catalog(
        places=places,
        prices=PriceBook(prices),
        grid=Grid({pair: Link(gbps, MADE) for pair, (gbps, _) in LINKS.items()}),
        offers={
            "aws": (offer("aws", 5, 10, 0.4, 0.0),),
            "azure": (offer("azure", 16, 16, 0.4, 0.0),),
            "gcp": (offer("gcp", 7, 16, 0.2, 0.0),),
        },
    )


def without_places(catalog: Catalog) -> Catalog:
    """Return the catalog without places, as from a problem file."""
    return replace(catalog, places={})
