"""`tradewind catalog show|import`."""

from __future__ import annotations

import datetime
import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from tradewind.catalog.load import catalog_folder, load_catalog
from tradewind.catalog.user_files import import_table
from tradewind.errors import UsageError
from tradewind.model.amounts import format_gbps
from tradewind.model.catalog import Catalog
from tradewind.model.region import Region, parse_region

HELP = """\
Shows what is known of regions, prices, machines and links, each figure with its origin and date, and takes better
figures in: CSV tables of links (src,dst,gbps[,rtt_ms][,date], or Skyplane's profiles) or of prices
(src,dst,usd_per_gb)."""
USAGE = "[OPTION]… show [REGION [REGION]] | import FILE"
EXAMPLES = """\
  tradewind catalog show
  tradewind catalog show aws:us-east-1 gcp:europe-west4
  tradewind catalog import measured.csv --date 2025-03-01"""


def add_arguments(parser: ArgumentParser) -> None:
    """What to do, and with what."""
    parser.add_argument("action", choices=["show", "import"], help="show what is known, or import a CSV table")
    parser.add_argument("what", nargs="*", metavar="REGION|FILE", help="one region, a pair of regions, or a file")
    parser.add_argument("--date", metavar="DATE", help="import: when the figures were true (default today)")
    parser.add_argument("--source", metavar="TEXT", help="import: where they are from (default the file's name)")


def run(args: Namespace) -> int:
    """Shows or imports."""
    if args.action == "import":
        return _import(args)
    if len(args.what) > 2:
        raise UsageError("catalog show takes one region or a pair of regions")
    catalog = load_catalog(catalog_folder())
    regions = [_known(catalog, parse_region(text)) for text in args.what]
    figures = _pair(catalog, *regions) if len(regions) == 2 else _region(catalog, regions[0]) if regions else []
    if not regions:
        for place in sorted(catalog.places.values(), key=lambda p: p.region):
            print(f"{place.region!s:<32} {place.label}, {place.continent}")
        return 0
    for name, value, origin in figures:
        if args.json:
            print(json.dumps({"figure": name, "value": value, "origin": origin}))
        else:
            print(f"{name:<34} {value:<28} {origin}")
    return 0


def _import(args: Namespace) -> int:
    if len(args.what) != 1:
        raise UsageError("catalog import takes one file")
    date = args.date or datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    try:
        datetime.date.fromisoformat(date)
    except ValueError:
        raise UsageError(f"{date!r} is not a date", hint="for example 2025-03-01") from None
    folder = catalog_folder()
    taken = import_table(Path(args.what[0]), folder, date=date, source=args.source or "")
    print(f"{taken}, into {folder}")
    return 0


def _known(catalog: Catalog, region: Region) -> Region:
    if region not in catalog.places and region not in catalog.grid.regions():
        near = catalog.nearest_names(region)
        hint = f"did you mean {' or '.join(near)}?" if near else "`tradewind catalog show` lists all regions"
        raise UsageError(f"unknown region {region}", hint=hint)
    return region


def _region(catalog: Catalog, region: Region) -> list[tuple[str, str, str]]:
    place = catalog.places.get(region)
    figures = []
    if place is not None:
        where = f"{place.latitude_deg:.2f}, {place.longitude_deg:.2f}"
        figures.append(("place", f"{place.label} ({where})", place.continent))
    for offer in catalog.machine_offers(region):
        machine = offer.machine
        caps = f"{machine.egress_gbps:g} out, {machine.ingress_gbps:g} in Gbit/s"
        if not offer.spot:
            figures.append((f"{machine.name} caps", caps, str(machine.origin)))
        figures.append((f"{offer.name} price", f"{offer.usd_per_hour:.4g} USD/h", str(offer.origin)))
    store = catalog.stores.get(region.provider)
    if store is not None:
        requests = f"{store.get_usd_per_1000:g} get, {store.put_usd_per_1000:g} put USD"
        figures.append(("store, per 1000 requests", requests, str(store.origin)))
    return figures


def _pair(catalog: Catalog, src: Region, dst: Region) -> list[tuple[str, str, str]]:
    figures = []
    for a, b in ((src, dst), (dst, src)):
        link, price = catalog.grid.link(a, b), catalog.egress(a, b)
        way = f"{a} → {b}"
        if link is None:
            figures.append((way, "no link known", "import or measure one"))
        else:
            figures.append((way, f"{format_gbps(link.gbps)} per machine pair", str(link.origin)))
            if link.rtt_ms is not None:
                figures.append(("  round trip", f"{link.rtt_ms:.1f} ms", str(link.origin)))
        if price is None:
            figures.append(("  egress", "no price known", "import one"))
        else:
            tiers = ", ".join(
                f"{t.usd_per_gb:g}" + (f" from {t.from_gb:g} GB" if t.from_gb else "") for t in price.tiers
            )
            figures.append(("  egress USD/GB", tiers, str(price.origin)))
    return figures
