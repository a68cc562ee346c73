"""`tradewind catalog show`: every figure with its origin."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tradewind.cli.terminal import printable
from tradewind.engine.user_catalog import UserCatalog
from tradewind.errors import UsageError
from tradewind.model.catalog import Catalog, LinkPart
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice
from tradewind.model.records import dataclass
from tradewind.model.region import Region, RegionInfo
from tradewind.model.units import format_count, format_gbps

FIGURE_COLUMNS = 32
AGES = ((365, "year"), (30, "month"), (1, "day"))
"""Days of each unit of age. A unit is used for ages of at least two of it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One line of output: the name of a figure, the figure as text and as data, and its origin."""

    figure: str
    text: str
    """Empty for a heading."""
    value: Any
    unit: str
    origin: Origin | None
    parts: Sequence[LinkPart] = ()
    """The figures of the layers, if the catalog has several."""
    listed: Mapping[str, Any] | None = None
    """The figure as in the price list, with the traffic that its tiers count."""


def show(args: Namespace, user: UserCatalog) -> int:
    """Show all regions, one region, or both directions between two."""
    if len(args.what) > 2:
        raise UsageError(
            "catalog show takes one region or a pair of regions",
            hint="for example `tradewind catalog show aws:us-east-1 gcp:europe-west4`",
        )
    catalog = user.load()
    regions = user.regions_named(catalog, args.what)
    if not regions:
        _print_all(args, catalog, user)
        return 0
    lines = list(_pair(catalog, *regions) if len(regions) == 2 else _region(catalog, regions[0]))
    if args.json:
        _print_documents(user, lines)
        return 0
    _print_with_notes(user, lines)
    return 0


def _print_with_notes(user: UserCatalog, lines: list[Shown]) -> None:
    """Print figures with the numbers of their origins, and then the origins, because many figures share one."""
    numbers: dict[Origin, int] = {}

    def note(origin: Origin | None) -> str:
        return "" if origin is None else f"[{numbers.setdefault(origin, len(numbers) + 1)}]"

    for line in lines:
        if not line.text:
            print(line.figure)
            continue
        print(f"  {line.figure:<{FIGURE_COLUMNS}}{line.text}  {note(line.origin)}".rstrip())
        for part in line.parts:
            share = f"{part.weight:.0%} of it" if part.weight else "not counted"
            print(f"  {'':<{FIGURE_COLUMNS}}  {format_gbps(part.gbps)}, {share}  {note(part.origin)}")
    print()
    for origin, number in numbers.items():
        print(f"[{number}] {printable(str(origin))}{_age_words(user.age_days(origin))}")


def _age_words(days: int | None) -> str:
    if days is None:
        return ""
    count, unit = next((days // of, unit) for of, unit in AGES if days >= 2 * of or of == 1)
    return f" ({format_count(count, unit)} old)" if days > 0 else " (today)"


def _print_all(args: Namespace, catalog: Catalog, user: UserCatalog) -> None:
    places = sorted(catalog.places.values(), key=lambda place: place.region)
    if args.json:
        for place in places:
            print(json.dumps(_place_document(user, place), ensure_ascii=False))
        return
    for place in places:
        print(f"{place.region!s:<32} {place.label}, {place.continent}")
    if args.quiet:
        return
    layers = Counter(link.origin.kind for link in catalog.grid.links.values())
    counts = ", ".join(f"{count:,} {kind}" for kind, count in layers.most_common())
    dates, tables = user.packaged_price_dates(), ", ".join(user.table_names())
    print(f"\n{format_count(len(places), 'region')}, {format_count(len(catalog.grid.links), 'link')} ({counts})")
    print(f"prices  packaged, dated {dates[0]} to {dates[-1]}; `tradewind catalog refresh` fetches today's")
    print(f"yours   {user.folder}: {tables or 'nothing yet'}")
    print("`tradewind catalog show REGION [REGION]` shows the source and age of each figure")


def _place_document(user: UserCatalog, place: RegionInfo) -> dict[str, Any]:
    return {
        "region": str(place.region),
        "label": place.label,
        "continent": place.continent,
        "latitude_deg": place.latitude_deg,
        "longitude_deg": place.longitude_deg,
        "origin": _origin_document(user, place.origin),
    }


def _origin_document(user: UserCatalog, origin: Origin | None) -> dict[str, Any] | None:
    if origin is None:
        return None
    said = {"layer": origin.kind, "source": origin.source, "date": origin.date, "method": origin.method}
    return {**said, "age_days": user.age_days(origin)}


def _print_documents(user: UserCatalog, lines: list[Shown]) -> None:
    about = ""
    for line in lines:
        if line.text:
            print(json.dumps({"about": about, **_document(user, line)}, ensure_ascii=False))
        else:
            about = line.figure


def _document(user: UserCatalog, line: Shown) -> dict[str, Any]:
    document = {
        "figure": line.figure,
        "value": line.value,
        "unit": line.unit,
        "origin": _origin_document(user, line.origin),
    }
    if line.listed is not None:
        document["listed"] = line.listed
    if line.parts:
        document["layers"] = [
            {"value": part.gbps, "weight": round(part.weight, 6), "origin": _origin_document(user, part.origin)}
            for part in line.parts
        ]
    return document


def _heading(text: str) -> Shown:
    return Shown(text, "", None, "", None)


def _region(catalog: Catalog, region: Region) -> Iterator[Shown]:
    yield _heading(str(region))
    place = catalog.places.get(region)
    if place is not None:
        where = [place.latitude_deg, place.longitude_deg]
        text = f"{place.label} ({where[0]:.2f}, {where[1]:.2f}), {place.continent}"
        yield Shown("place", text, where, "degrees north, east", place.origin)
    for offer in catalog.machine_offers(region):
        machine = offer.machine
        if not offer.spot:
            caps = {"egress": machine.egress_gbps, "ingress": machine.ingress_gbps, "vcpus": machine.vcpus}
            text = f"{machine.vcpus} vCPUs, {machine.egress_gbps:g} out, {machine.ingress_gbps:g} in Gbit/s"
            yield Shown(f"{machine.name} caps", text, caps, "Gbit/s", machine.origin)
            yield Shown(f"{machine.name} start", f"{machine.boot_s:g} s", machine.boot_s, "s", machine.boot_origin)
            least, origin = machine.billed_s_min, machine.billed_origin
            yield Shown(f"{machine.name} billed for", f"at least {least:g} s", least, "s", origin)
        price = f"{offer.usd_per_hour:g} USD/h"
        yield Shown(f"{offer.name} price", price, offer.usd_per_hour, "USD/h", offer.origin)
    quota = catalog.quotas.get(region)
    text = "not known; --max-vms limits machines" if quota is None else f"{format_count(quota, 'machine')} at most"
    yield Shown("quota", text, quota, "machines", catalog.quota_origins.get(region))
    store = catalog.stores.get(region.provider)
    if store is not None:
        rates = {"read": store.read_gbps, "write": store.write_gbps}
        known = {verb: gbps for verb, gbps in rates.items() if math.isfinite(gbps)}
        text = ", ".join(f"{verb} {format_gbps(gbps)}" for verb, gbps in known.items())
        yield Shown("store, per machine", text or "no limit known", known, "Gbit/s", store.rate_origin)
        prices = store.request_prices
        requests = {
            "get": prices.get_usd_per_1000,
            "put": prices.put_usd_per_1000,
            "list": prices.list_usd_per_1000,
            "head": prices.head_usd_per_1000,
        }
        text = ", ".join(f"{usd:g} {verb}" for verb, usd in requests.items()) + " USD"
        yield Shown("store, per 1000 requests", text, requests, "USD per 1000", store.origin)


def _pair(catalog: Catalog, src: Region, dst: Region) -> Iterator[Shown]:
    for a, b in ((src, dst), (dst, src)):
        yield _heading(f"{a} → {b}")
        link = catalog.grid.link(a, b)
        if link is None:
            yield Shown("rate", "not known; import or measure it", None, "Gbit/s", None)
        else:
            rate = f"{format_gbps(link.gbps)} per machine pair"
            yield Shown("rate", rate, link.gbps, "Gbit/s", link.origin, link.parts)
            if link.rtt_ms is not None:
                origin = link.rtt_origin or link.origin
                yield Shown("round trip", f"{link.rtt_ms:.1f} ms", link.rtt_ms, "ms", origin)
        price = catalog.egress(a, b)
        if price is None:
            yield Shown("egress", "no price known; import one", None, "USD/GB", None)
        else:
            tiers = [{"from_gb": tier.from_gb, "usd_per_gb": tier.usd_per_gb} for tier in price.tiers]
            listed = {
                "unit": f"USD/{price.unit}",
                "tiers": [{"from": start, "usd": usd} for start, usd in price.listed_tiers],
                "counted": price.counted,
            }
            yield Shown("egress", _tier_words(price), tiers, "USD/GB", price.origin, listed=listed)
    for region in (src, dst):
        yield _heading(str(region))
        types = [offer.machine.name for offer in catalog.machine_offers(region) if not offer.spot]
        known = format_count(len(types), "type") if types else "no type known"
        text = f"{known}; `tradewind catalog show {region}` has caps, prices and quota"
        yield Shown("machines", text, types, "types", None)


def _tier_words(price: EgressPrice) -> str:
    """Return tiers such as `0.09 USD/GB, 0.085 from 10,240 GB`. If they are listed in another unit, add the first price
    per GB.
    """
    (_, first), *further = price.listed_tiers
    words = [f"{usd:g} from {start:,.0f} {price.unit}" for start, usd in further]
    per_gb = [] if price.unit == "GB" else [f"({price.usd_per_gb:.4g} USD/GB)"]
    return " ".join([", ".join([f"{first:g} USD/{price.unit}", *words]), *per_gb])
