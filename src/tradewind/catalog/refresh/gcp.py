"""Google Cloud Billing Catalog API: paged SKUs of Compute Engine. It needs an API key, sent as a header.

Machines have no price of their own: their price is vCPUs times the core price plus memory times the price per GiB.
SKUs name places in words ("Virginia", "Americas"). SKUs of cores state both the word and its regions, so they map words
to regions. Egress is priced per GiB.

https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from tradewind.catalog.refresh.fetch import Fetcher
from tradewind.catalog.refresh.figures import Prices, Tier, Wanted
from tradewind.errors import PriceApiError, PriceApiRefused
from tradewind.model.machine import MachineType
from tradewind.model.origin import Origin
from tradewind.model.region import Region

__all__ = ["ENDPOINT", "KEY_VARIABLE", "fetch_prices"]

ENDPOINT = "https://cloudbilling.googleapis.com"
KEY_VARIABLE = "TRADEWIND_GCP_API_KEY"
COMPUTE_ENGINE = "6F81-5844-456A"
"""Service id; it has never changed."""
PAGE_ITEMS = 5000
PAGES_MAX = 200
"""Maximum pages of a listing. Compute Engine has about ten thousand SKUs."""
SOURCE = "Google Cloud Billing Catalog API"
PROVIDER = "gcp"

GIB_PER_VCPU = {"n2-standard": 4.0, "n2-highmem": 8.0, "n2-highcpu": 1.0}
"""Memory per vCPU of each family [GiB]. Other families are not requested."""

CONTINENTS = {
    "Middle East": ("middle-east",),
    "Africa": ("africa",),
    "South America": ("south-america",),
    "Australia": ("oceania",),
    "Oceania": ("oceania",),
    "EMEA": ("europe", "middle-east", "africa"),
    "Western Europe": ("europe",),
    "Americas": ("north-america", "south-america"),
    "North America": ("north-america",),
    "APAC": ("asia",),
    "Asia Pacific": ("asia",),
}
"""Destinations of internet traffic, as named in SKUs and price lists; for each continent, the first match applies.
Single countries (China, India, Korea) are finer than the catalog's places and are left out."""

_CORE = re.compile(r"(Spot Preemptible )?(\w+) Instance (Core|Ram) running in (.+)")
_BETWEEN = re.compile(r"Network Inter Region (?:Data Transfer Out|Egress) from (.+) to (.+)")
_INTERNET = re.compile(r"Network Internet (?:Data Transfer Out|Egress) from (.+) to (.+)")


def fetch_prices(fetcher: Fetcher, wanted: Wanted, key: str, endpoint: str = ENDPOINT) -> Prices:
    """Return egress and machine prices, on demand and spot, of the requested regions.

    Raises:
        PriceApiRefused: the key is missing or was not accepted.
        PriceApiError: or a subclass; then none of the prices may be used.
    """
    if not key:
        raise PriceApiRefused(
            "gcp: the Billing Catalog API needs an API key",
            hint=f"put one into {KEY_VARIABLE}; a key of any project works",
        )
    prices = Prices()
    try:
        skus = [sku for sku in _skus(fetcher, endpoint, key) if sku["category"]["resourceFamily"] in _FAMILIES]
        _read_machines(skus, wanted, prices)
        _read_egress(skus, wanted, prices)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise PriceApiError(f"gcp: the SKUs cannot be understood: {error!r}") from None
    prices.note_missing(wanted)
    return prices


_FAMILIES = ("Compute", "Network")


def _skus(fetcher: Fetcher, endpoint: str, key: str) -> Iterator[Mapping[str, Any]]:
    token = ""
    for page_number in range(PAGES_MAX):
        query = {"currencyCode": "USD", "pageSize": PAGE_ITEMS} | ({"pageToken": token} if token else {})
        url = f"{endpoint}/v1/services/{COMPUTE_ENGINE}/skus?{urlencode(query)}"
        page = _page(fetcher, f"gcp SKUs, page {page_number + 1}", url, key)
        yield from page.get("skus", ())
        token = page.get("nextPageToken", "")
        if not token:
            return
    raise PriceApiError(f"gcp SKUs: more than {PAGES_MAX} pages")


def _page(fetcher: Fetcher, what: str, url: str, key: str) -> Mapping[str, Any]:
    try:
        page: Mapping[str, Any] = fetcher.json(what, url, {"X-Goog-Api-Key": key})
    except PriceApiRefused as error:
        raise PriceApiRefused(str(error), hint=f"is the key in {KEY_VARIABLE} right, and the API enabled?") from None
    except PriceApiError as error:
        # An invalid key is answered with 400, not 401.
        if "API key not valid" in str(error):
            raise PriceApiRefused(str(error), hint=f"the key is read from {KEY_VARIABLE}") from None
        raise
    return page


def _read_machines(skus: list[Mapping[str, Any]], wanted: Wanted, prices: Prices) -> None:
    """Read rates of cores and memory by region, spot or not; then calculate each wanted type from them."""
    rates: dict[tuple[Region, str, bool], dict[str, tuple[float, str]]] = defaultdict(dict)
    for sku in skus:
        match = _CORE.fullmatch(sku["description"])
        usage = sku["category"]["usageType"]
        if match is None or usage not in ("OnDemand", "Preemptible"):
            continue
        family, part = match.group(2).lower(), match.group(3)
        (tier, *_), unit, since = _tiers(sku)
        if unit != {"Core": "h", "Ram": "GiBy.h"}[part]:
            raise ValueError(f"{sku['description']} is priced per {unit}")
        for name in sku["serviceRegions"]:
            rates[Region(PROVIDER, name), family, usage == "Preemptible"][part] = (tier[1], since)
    for region in wanted.places:
        for machine in wanted.machines.values():
            memory_gib = _memory_gib(machine)
            for spot in (False, True):
                of = rates.get((region, machine.name.partition("-")[0], spot), {})
                if memory_gib is not None and len(of) == 2:
                    usd_per_hour = machine.vcpus * of["Core"][0] + memory_gib * of["Ram"][0]
                    since = max(date for _, date in of.values())
                    origin = Origin("refreshed", f"{SOURCE}, in effect since {since}", wanted.date, "cores and memory")
                    prices.add_machine(region, machine.name, usd_per_hour, origin, spot=spot)


def _memory_gib(machine: MachineType) -> float | None:
    family = machine.name.rpartition("-")[0]
    return machine.vcpus * GIB_PER_VCPU[family] if family in GIB_PER_VCPU else None


def _read_egress(skus: list[Mapping[str, Any]], wanted: Wanted, prices: Prices) -> None:
    words = _regions_by_word(skus)
    between: dict[tuple[Region, Region], Mapping[str, Any]] = {}
    internet: dict[tuple[Region, str], Mapping[str, Any]] = {}
    skipped: set[str] = set()
    for sku in skus:
        if sku["category"]["usageType"] != "OnDemand":
            continue
        sources = [Region(PROVIDER, n) for n in sku["serviceRegions"] if Region(PROVIDER, n) in wanted.places]
        if match := _BETWEEN.fullmatch(sku["description"]):
            targets = words.get(match.group(2))
            if targets is None:
                skipped.add(match.group(2))
            between.update({(a, b): sku for a in sources for b in targets or () if a != b and b in wanted.known})
        elif match := _INTERNET.fullmatch(sku["description"]):
            internet.update({(source, match.group(2)): sku for source in sources})
    for (src, dst), sku in sorted(between.items(), key=lambda entry: entry[0]):
        _add(prices, src, str(dst), sku, wanted)
    for src in sorted(wanted.places):
        named: set[str] = set()
        for word, continents in CONTINENTS.items():
            for continent in continents:
                if (src, word) in internet and continent not in named:
                    named.add(continent)
                    _add(prices, src, f"internet:{continent}", internet[src, word], wanted)
    if skipped:
        prices.notes.append(f"gcp: places that match no region were left out: {', '.join(sorted(skipped)[:5])}")


def _regions_by_word(skus: list[Mapping[str, Any]]) -> dict[str, set[Region]]:
    words: dict[str, set[Region]] = defaultdict(set)
    for sku in skus:
        match = _CORE.fullmatch(sku["description"])
        if match is not None and sku["category"]["usageType"] == "OnDemand":
            words[match.group(4)].update(Region(PROVIDER, name) for name in sku["serviceRegions"])
    return words


def _add(prices: Prices, src: Region, dst: str, sku: Mapping[str, Any], wanted: Wanted) -> None:
    tiers, unit, since = _tiers(sku)
    origin = Origin("refreshed", f"{SOURCE}, in effect since {since}", wanted.date)
    prices.add_rule(src, dst, tiers, origin, unit=unit, counted="continents")


def _tiers(sku: Mapping[str, Any]) -> tuple[list[Tier], str, str]:
    """Return current rates, their unit, and their effective date. Amounts of money are `units` and `nanos`."""
    newest = max(sku["pricingInfo"], key=lambda info: str(info["effectiveTime"]))
    expression = newest["pricingExpression"]
    tiers = [
        (
            float(rate["startUsageAmount"]),
            int(rate["unitPrice"]["units"]) + int(rate["unitPrice"]["nanos"]) / 1e9,
        )
        for rate in expression["tieredRates"]
    ]
    return tiers, str(expression["usageUnit"]), str(newest["effectiveTime"])[:10]
