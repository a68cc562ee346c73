"""AWS Price List, bulk API: files over HTTPS, no credentials.

Egress is the offer ``AWSDataTransfer``, a JSON file of some MB per region. Machines are in ``AmazonEC2``, which has
hundreds of MB per region: its CSV form is read line by line until all wanted types are found, and only for regions
that the user names. Spot prices are not in the price list; the EC2 API has them, but needs credentials.

https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-the-aws-price-list-bulk-api.html
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from typing import Any

from tradewind.catalog.refresh.fetch import Fetcher, same_host
from tradewind.catalog.refresh.figures import Prices, Tier, Wanted
from tradewind.errors import PriceApiError
from tradewind.model.origin import Origin
from tradewind.model.region import Region

__all__ = ["ENDPOINT", "fetch_prices"]

ENDPOINT = "https://pricing.us-east-1.amazonaws.com"
HEAD_LINES_MAX = 20
"""Maximum lines before the column names; usually five."""
PROVIDER = "aws"

_SPOT = "aws: spot prices are not in the price list; 40% of on demand is assumed"


def fetch_prices(fetcher: Fetcher, wanted: Wanted, endpoint: str = ENDPOINT) -> Prices:
    """Return egress prices of all requested regions, and machine prices of the regions that the user named.

    Raises:
        PriceApiError: or a subclass; then none of the prices may be used.
    """
    prices = Prices(notes=[_SPOT])
    for region, url in _files(fetcher, wanted, endpoint, "AWSDataTransfer"):
        document = fetcher.json(f"{region} data transfer", url)
        _read_transfer(document, region, wanted, prices)
    if wanted.named:
        for region, url in _files(fetcher, wanted, endpoint, "AmazonEC2"):
            csv_url = url.removesuffix(".json") + ".csv"
            _read_machines(fetcher, region, csv_url, wanted, prices)
    else:
        prices.notes.append(
            "aws: machine prices were not fetched: each region's list has hundreds of MB; name regions with --region"
        )
    prices.note_missing(wanted)
    return prices


def _files(fetcher: Fetcher, wanted: Wanted, endpoint: str, offer: str) -> Iterator[tuple[Region, str]]:
    """Yield the address of each wanted region's file, from the offer's region index."""
    index_url = f"{endpoint}/offers/v1.0/aws/{offer}/current/region_index.json"
    index = fetcher.json(f"aws {offer} regions", index_url)
    try:
        links = {str(entry["regionCode"]): str(entry["currentVersionUrl"]) for entry in index["regions"].values()}
    except (KeyError, TypeError, AttributeError):
        raise PriceApiError(f"aws {offer}: the region index cannot be understood") from None
    for region in sorted(wanted.places):
        if region.name in links:
            yield region, same_host(index_url, links[region.name])


def _read_transfer(document: Any, region: Region, wanted: Wanted, prices: Prices) -> None:
    """Read products and terms of ``AWSDataTransfer``: to other regions and to the internet."""
    try:
        source = f"AWS Price List, AWSDataTransfer, published {str(document['publicationDate'])[:10]}"
        products, terms = document["products"], document["terms"]["OnDemand"]
        for sku, product in products.items():
            target = _target(product["attributes"], region, wanted)
            if target and sku in terms:
                origin = Origin("refreshed", source, wanted.date)
                # Each region's traffic has its own usage type, and tiers are filled by usage type.
                tiers, unit = _tiers(terms[sku])
                prices.add_rule(region, target, tiers, origin, unit=unit, counted="region")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PriceApiError(f"{region} data transfer: the price list cannot be understood: {error!r}") from None


def _target(attributes: Mapping[str, str], region: Region, wanted: Wanted) -> str | None:
    """Return the destination that a product prices, if it is ordinary traffic out of the region.

    Accelerated transfers and multi-region access points have the same transfer type, but another operation or usage
    type; traffic of the account's free allowance comes from ``Global`` or ``Any``.
    """
    if attributes.get("fromRegionCode") != region.name or attributes.get("operation", "") != "":
        return None
    kind, usage = attributes.get("transferType"), attributes.get("usagetype", "")
    if kind == "InterRegion Outbound" and usage.endswith("-AWS-Out-Bytes"):
        there = Region(PROVIDER, attributes.get("toRegionCode", ""))
        return str(there) if there in wanted.known and there != region else None
    if kind == "AWS Outbound" and attributes.get("toLocation") == "External":
        return "internet" if usage.endswith("DataTransfer-Out-Bytes") else None
    return None


def _tiers(term: Mapping[str, Any]) -> tuple[list[Tier], str]:
    """Return tiers and their unit."""
    dimensions = [dimension for offer in term.values() for dimension in offer["priceDimensions"].values()]
    units = {str(dimension["unit"]) for dimension in dimensions}
    if len(units) != 1:
        raise ValueError(f"priced per {' and '.join(sorted(units))}")
    return [(float(d["beginRange"]), float(d["pricePerUnit"]["USD"])) for d in dimensions], units.pop()


def _read_machines(fetcher: Fetcher, region: Region, url: str, wanted: Wanted, prices: Prices) -> None:
    try:
        found, published = fetcher.lines(f"{region} machines", url, lambda lines: _machine_rows(lines, region, wanted))
    except (csv.Error, ValueError) as error:
        raise PriceApiError(f"{region} machines: the price list cannot be understood: {error}") from None
    origin = Origin("refreshed", f"AWS Price List, AmazonEC2, published {published[:10]}", wanted.date)
    for name, usd_per_hour in found.items():
        prices.add_machine(region, name, usd_per_hour, origin, spot=False)
    missing = sorted(set(wanted.machines) - set(found))
    if missing:
        prices.notes.append(f"{region} does not offer {', '.join(missing)}")


def _machine_rows(lines: Iterator[str], region: Region, wanted: Wanted) -> tuple[dict[str, float], str]:
    """Return the price per type [USD/h] and the list's publication date. Stops reading once all types are found."""
    rows = csv.reader(lines)
    published, columns = _head(rows, region)
    need = {
        columns["TermType"]: "OnDemand",
        columns["Unit"]: "Hrs",
        columns["Currency"]: "USD",
        columns["Tenancy"]: "Shared",
        columns["Operating System"]: "Linux",
        columns["CapacityStatus"]: "Used",
        columns["Pre Installed S/W"]: "NA",
    }
    if "MarketOption" in columns:
        need[columns["MarketOption"]] = "OnDemand"
    type_column, price_column = columns["Instance Type"], columns["PricePerUnit"]
    found: dict[str, float] = {}
    for row in rows:
        if len(row) < len(columns) or row[type_column] not in wanted.machines:
            continue
        if all(row[column] == content for column, content in need.items()) and (price := float(row[price_column])) > 0:
            found[row[type_column]] = price
            if len(found) == len(wanted.machines):
                break
    return found, published


def _head(rows: Iterator[list[str]], region: Region) -> tuple[str, dict[str, int]]:
    """Return the publication date and the index of each column: some lines of `name,value`, then the column names."""
    published = ""
    for count, row in enumerate(rows):
        if row[:1] == ["Publication Date"] and len(row) > 1:
            published = row[1]
        if row[:1] == ["SKU"]:
            columns = {name: place for place, name in enumerate(row)}
            missing = {"TermType", "Unit", "Currency", "PricePerUnit", "Instance Type", "Tenancy"} - set(columns)
            missing |= {"Operating System", "CapacityStatus", "Pre Installed S/W"} - set(columns)
            if not missing:
                return published, columns
            break
        if count >= HEAD_LINES_MAX:
            break
    raise PriceApiError(f"{region} machines: the columns of the price list have changed")
