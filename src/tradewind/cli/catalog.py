"""`tradewind catalog show|import|refresh`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.errors import UsageError

if TYPE_CHECKING:
    from tradewind.engine.user_catalog import UserCatalog

HELP = """\
Show regions, prices, machines and links, each figure with its origin and date; import your own figures from CSV tables;
or refresh the prices from the clouds' price APIs.

Tables for import: links (src,dst,gbps[,rtt_ms][,date], or Skyplane's profiles); egress prices (src,dst,usd_per_gb
[,unit][,counted]); machine prices (region,type,usd_per_hour[,spot]); the machines that an account may still start
(region,machines); the rate of an object store for one machine (provider,read_gbps,write_gbps) and its price per 1,000
requests (get_usd_per_1000, put_usd_per_1000). All tables may have the columns source, date and method. An existing
figure with a newer date is not replaced.

An egress price is per unit, GB or GiB, and may have tiers by monthly volume: 0:0.09;10240:0.085. Tiers count the
traffic of the account, of the source region, or between two continents.

Refresh reads AWS's price list and Azure's retail prices, which need no credentials, and Google's billing catalog, which
needs an API key in TRADEWIND_GCP_API_KEY. AWS's machine prices come in files of hundreds of MB, so they are read only
for regions named with --region. If a price API cannot be reached, its old prices are kept."""
USAGE = "[OPTION]… show [REGION [REGION]] | import FILE | refresh"
EXAMPLES = """\
  tradewind catalog show
  tradewind catalog show aws:us-east-1 gcp:europe-west4
  tradewind catalog import measured.csv --date 2025-03-01
  tradewind catalog refresh
  tradewind catalog refresh --region aws:us-east-1 --region azure:uksouth"""

STAYED_NAMED_MAX = 10
"""Maximum number of figures that are listed if an import does not replace them."""
OPTIONS_OF = {
    "date": "import",
    "source": "import",
    "new_regions": "import",
    "provider": "refresh",
    "region": "refresh",
}
"""The action that each option applies to."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, figures and their origin."""
    parser.add_argument(
        "action", metavar="ACTION", choices=["show", "import", "refresh"], help="show, import or refresh"
    )
    parser.add_argument("what", nargs="*", metavar="REGION|FILE", help="one region, a pair of regions, or a file")
    parser.add_argument("--date", metavar="DATE", help="import: date of the figures (default today)")
    parser.add_argument("--source", metavar="TEXT", help="import: source of the figures (default the file's name)")
    parser.add_argument(
        "--new-regions",
        action="store_true",
        help="import: accept regions that the catalog does not have (site:… is always accepted)",
    )
    parser.add_argument(
        "--provider",
        action="append",
        default=[],
        choices=["aws", "azure", "gcp"],
        help="refresh: only this provider; can be repeated",
    )
    parser.add_argument(
        "--region",
        action="append",
        default=[],
        metavar="REGION",
        help="refresh: only this region, for AWS with its machine prices; can be repeated",
    )


def run(args: Namespace) -> int:
    """Show, import or refresh."""
    for option, action in OPTIONS_OF.items():
        if getattr(args, option) and args.action != action:
            raise UsageError(f"--{option.replace('_', '-')} is only for catalog {action}", hint="leave it out")
    from tradewind.engine.engine import Engine

    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        if args.action == "import":
            return _import(args, engine.catalog)
        if args.action == "refresh":
            from tradewind.cli.catalog_refresh import refresh_prices

            return refresh_prices(args, engine.catalog)
        from tradewind.cli.catalog_show import show

        return show(args, engine.catalog)


def _import(args: Namespace, catalog: UserCatalog) -> int:
    if len(args.what) != 1:
        raise UsageError("catalog import takes one file", hint="for example `tradewind catalog import links.csv`")
    path = Path(args.what[0])
    done = catalog.import_table(path, date=args.date, source=args.source or "", new_regions=args.new_regions)
    if args.json:
        document = {"figures": done.what, "taken": done.taken, "stayed": done.stayed, "too_old": done.too_old}
        print(json.dumps(document, ensure_ascii=False))
    elif not args.quiet:
        print(f"{done} from {path}, into {catalog.folder}")
        if done.stayed:
            print(
                f"not imported, because the existing figures are newer: {len(done.stayed):,}",
                *done.stayed[:STAYED_NAMED_MAX],
                sep="\n  ",
            )
            if len(done.stayed) > STAYED_NAMED_MAX:
                print("  …")
        if done.too_old:
            print(f"imported, but too old to count for their links: {done.too_old:,}")
    return 0
