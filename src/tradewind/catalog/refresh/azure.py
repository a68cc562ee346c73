"""Azure Retail Prices API: paged JSON with filter expressions, no credentials.

Machines are ``Virtual Machines`` by ``armSkuName``, egress is the service ``Bandwidth``: to the internet over
Microsoft's network (``Rtn Preference: MGN``, the default of a machine), and between regions within or beyond a
continent.

https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from tradewind.catalog.refresh.fetch import Fetcher, same_host
from tradewind.catalog.refresh.figures import UNITS, Prices, Wanted
from tradewind.errors import PriceApiError
from tradewind.model.origin import Origin
from tradewind.model.region import RegionInfo

__all__ = ["ENDPOINT", "fetch_prices"]

ENDPOINT = "https://prices.azure.com/api/retail/prices"
PAGES_MAX = 500
"""Maximum pages of one query. A page has 100 or 1,000 items; Bandwidth has a few thousand in total."""
SOURCE = "Azure Retail Prices API"
GLOBAL_NETWORK = "Rtn Preference: MGN"

_WITHIN = re.compile(r"Intra[- ]Continent Data Transfer Out")
_BEYOND = re.compile(r"Inter[- ]Continent Data Transfer Out")


def fetch_prices(fetcher: Fetcher, wanted: Wanted, endpoint: str = ENDPOINT) -> Prices:
    """Return egress and machine prices, on demand and spot, of the requested regions.

    Raises:
        PriceApiError: or a subclass; then none of the prices may be used.
    """
    prices = Prices()
    try:
        for name in sorted(wanted.machines):
            question = f"serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armSkuName eq '{name}'"
            _read_machines(_items(fetcher, f"azure {name}", endpoint, question, wanted), name, wanted, prices)
        question = "serviceName eq 'Bandwidth' and priceType eq 'Consumption'"
        _read_bandwidth(_items(fetcher, "azure bandwidth", endpoint, question, wanted), wanted, prices)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PriceApiError(f"azure: the prices cannot be understood: {error!r}") from None
    prices.note_missing(wanted)
    return prices


def _items(
    fetcher: Fetcher, what: str, endpoint: str, question: str, wanted: Wanted
) -> Iterator[tuple[RegionInfo, Mapping[str, Any]]]:
    """Yield the items of all pages in wanted regions, in USD; one query per region if the user named regions."""
    regions = sorted(region.name for region in wanted.places) if wanted.named else [""]
    for region in regions:
        narrowed = f"{question} and armRegionName eq '{region}'" if region else question
        url = f"{endpoint}?{urlencode({'$filter': narrowed})}"
        for _ in range(PAGES_MAX):
            page = fetcher.json(what, url)
            for item in page["Items"]:
                place = wanted.place(item["armRegionName"])
                if place is not None and item["currencyCode"] == "USD" and item["type"] == "Consumption":
                    yield place, item
            if not page.get("NextPageLink"):
                break
            url = same_host(endpoint, page["NextPageLink"])
        else:
            raise PriceApiError(f"{what}: more than {PAGES_MAX} pages")


def _read_machines(
    items: Iterator[tuple[RegionInfo, Mapping[str, Any]]], name: str, wanted: Wanted, prices: Prices
) -> None:
    newest: dict[tuple[RegionInfo, bool], Mapping[str, Any]] = {}
    for place, item in items:
        # The same size is also listed for Windows and as Low Priority, the predecessor of spot.
        words = f"{item['productName']} {item['skuName']}"
        if item["unitOfMeasure"] != "1 Hour" or "Windows" in words or "Low Priority" in words:
            continue
        if item.get("armSkuName") != name or item["retailPrice"] <= 0 or "Dedicated Host" in words:
            continue
        key = (place, item["skuName"].endswith(" Spot"))
        if key not in newest or item["effectiveStartDate"] > newest[key]["effectiveStartDate"]:
            newest[key] = item
    for (place, spot), item in newest.items():
        origin = _origin([item], wanted)
        prices.add_machine(place.region, name, float(item["retailPrice"]), origin, spot=spot)


def _read_bandwidth(items: Iterator[tuple[RegionInfo, Mapping[str, Any]]], wanted: Wanted, prices: Prices) -> None:
    """Read tiers by source and kind of destination. Of two prices for one tier the later effective date applies."""
    found: dict[tuple[RegionInfo, str], dict[float, Mapping[str, Any]]] = defaultdict(dict)
    for place, item in items:
        target = _target(place, item)
        if target is None or item["unitOfMeasure"] not in UNITS:
            continue
        tiers = found[place, target]
        start = float(item["tierMinimumUnits"])
        if start not in tiers or item["effectiveStartDate"] > tiers[start]["effectiveStartDate"]:
            tiers[start] = item
    # Specific before general: a continent, then the provider, then the internet.
    order = {"internet": 2, "azure:*": 1}
    for (place, target), tiers in sorted(found.items(), key=lambda e: (e[0][0].region, order.get(e[0][1], 0))):
        priced = [(start, float(item["retailPrice"])) for start, item in tiers.items()]
        units = {str(item["unitOfMeasure"]) for item in tiers.values()}
        if len(units) != 1:
            raise ValueError(f"{place.region} to {target} is priced per {' and '.join(sorted(units))}")
        prices.add_rule(place.region, target, priced, _origin(list(tiers.values()), wanted), unit=units.pop())


def _target(place: RegionInfo, item: Mapping[str, Any]) -> str | None:
    meter = item["meterName"]
    if item["productName"] == GLOBAL_NETWORK:
        return "internet" if meter == "Standard Data Transfer Out" else None
    if _WITHIN.search(meter):
        return f"azure:{place.continent}"
    return "azure:*" if _BEYOND.search(meter) else None


def _origin(items: list[Mapping[str, Any]], wanted: Wanted) -> Origin:
    since = max(str(item["effectiveStartDate"])[:10] for item in items)
    return Origin("refreshed", f"{SOURCE}, in effect since {since}", wanted.date)
