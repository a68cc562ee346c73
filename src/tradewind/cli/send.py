"""`tradewind send`, and what it shares with `tradewind receive`."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any

from tradewind.cli.arguments import typed
from tradewind.cli.options import parse_routes
from tradewind.errors import SourceNotFound
from tradewind.model.codec import COMPRESSIONS, parse_compression
from tradewind.model.units import parse_bytes, parse_rate, parse_usd

USAGE = "[OPTION]… --service URL FILE|DIR|PLACE SITE:NAME"
HELP = """\
Send a file or a folder to a site of a transfer service. The service moves the bytes: it must be able to read the same
path, for example on a shared file system, below one of the folders that its operator has allowed. A place in a store,
such as s3://bucket/run7/ or connection:data/run7/, is sent with all that is below it if it ends with a slash. The job
continues if this command ends, and survives the end of the service. Every object is proven."""
EXAMPLES = """\
  tradewind send --service https://transfers.example.org --token ~/token /data/run7 dublin:run7
  TRADEWIND_SERVICE_TOKEN=… tradewind send --service http://127.0.0.1:8080 /data/model.bin dublin:models/model.bin
  tradewind send --service http://127.0.0.1:8080 --routes 2 --compress zstd connection:data/run7/ dublin:run7"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the two places and the service."""
    parser.add_argument("source", metavar="FILE|DIR|PLACE", help="what to send")
    parser.add_argument("destination", metavar="SITE:NAME", help="site of the service, and a name there")
    add_service_arguments(parser)


def add_service_arguments(parser: ArgumentParser) -> None:
    """Add the address of the service, the token, the rate, the ceiling, and how the bytes travel."""
    parser.add_argument("--service", metavar="URL", required=True, help="address of the transfer service")
    parser.add_argument("--token", metavar="FILE", help="file with the token (default: TRADEWIND_SERVICE_TOKEN)")
    parser.add_argument("--limit-rate", metavar="RATE", type=typed(parse_rate), help="maximum rate, such as 100MB/s")
    parser.add_argument(
        "--max-cost",
        metavar="USD",
        type=typed(parse_usd),
        help="ask for a quote, and submit the job at its price unless that is higher; tenants with a budget need it",
    )
    parser.add_argument(
        "--chunk-size", metavar="SIZE", type=typed(parse_bytes), help="size of chunks, 5MiB to 64MiB (default 16MiB)"
    )
    parser.add_argument(
        "--routes",
        metavar="N",
        type=typed(parse_routes),
        help="between stores, on machines: maximum routes between them (default: as many as help)",
    )
    parser.add_argument(
        "--compress",
        metavar="CODEC",
        type=typed(parse_compression),
        help=f"between stores, on machines: compression between them: {COMPRESSIONS} (default off)",
    )
    parser.add_argument(
        "--dedup",
        choices=("on", "off"),
        help="between stores, on machines: do not send bytes that the receiving machine still has from this job "
        "(default off)",
    )


def run(args: Namespace) -> int:
    """Submit the job, and wait for it."""
    from tradewind.engine.service_client import ServiceClient, parse_site_path

    path = parse_site_path(args.destination)
    source, recursive = args.source, args.source.endswith("/")
    if not is_store_place(source):
        source = os.path.abspath(source)
        recursive = os.path.isdir(source)
        if not os.path.exists(source):
            raise SourceNotFound(f"{args.source}: no such file or folder")
    client = ServiceClient(args.service, args.token)
    return carry(args, client, source, client.place_of(path), recursive=recursive)


def is_store_place(text: str) -> bool:
    """Return whether a word names a place in a store, as a URL or below a connection; any other is a path."""
    return "://" in text or text.startswith("connection:")


def carry(args: Namespace, client: Any, source: str, destination: str, *, recursive: bool) -> int:
    """Submit a job of a service and show it until it ends."""
    options = {
        "limit_bytes_per_s": args.limit_rate,
        "chunk_bytes": args.chunk_size,
        "routes": args.routes,
        "compression": args.compress,
        "deduplication": None if args.dedup is None else args.dedup == "on",
    }
    job_id = client.submit(source, destination, recursive=recursive, max_usd=args.max_cost, **options)
    if not args.json:
        print(f"job {job_id}", file=sys.stderr)
    seen: list[str] = []

    def see(job: Mapping[str, Any]) -> None:
        said = job["waiting"] or job["state"]
        if not args.json and seen[-1:] != [said]:
            seen.append(said)
            print(said, file=sys.stderr)

    job = client.wait(job_id, see)
    if args.json:
        print(json.dumps(job))
    return 0
