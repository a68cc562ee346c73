"""`tradewind send`, and what it shares with `tradewind receive`."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any

from tradewind.cli.arguments import typed
from tradewind.cli.options import parse_routes
from tradewind.cli.terminal import Terminal
from tradewind.errors import SourceNotFound
from tradewind.model.codec import COMPRESSIONS, parse_compression
from tradewind.model.event import Progress
from tradewind.model.networks import parse_network
from tradewind.model.units import parse_bytes, parse_duration_s, parse_rate, parse_usd

USAGE = "[OPTION]… --service URL FILE|DIR|PLACE SITE:NAME"
HELP = """\
Send a file or a folder of this host to a site of a transfer service. This host takes part in the job with a gateway of
its own, which opens all connections and reads only what you name. If this command ends, the job waits and then fails;
the same command resumes it. With --shared the service reads the same path itself, below one of the folders that its
operator has allowed. It also reads places in stores, such as s3://bucket/run7/ or connection:data/run7/; all that is
below such a place is sent if it ends with a slash. Those jobs continue without this command. All jobs survive the end
of the service, and every object is proven."""
EXAMPLES = """\
  tradewind send --service https://transfers.example.org --token ~/token /data/run7 dublin:run7
  TRADEWIND_SERVICE_TOKEN=… tradewind send --service http://127.0.0.1:8080 /data/model.bin dublin:models/model.bin
  tradewind send --service http://127.0.0.1:8080 --routes 2 --deadline 30m connection:data/run7/ archive:run7"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the two places and the service."""
    parser.add_argument("source", metavar="FILE|DIR|PLACE", help="file, folder or place to send")
    parser.add_argument("destination", metavar="SITE:NAME", help="site of the service, and a name there")
    add_service_arguments(parser)


def add_service_arguments(parser: ArgumentParser) -> None:
    """Add the address of the service, the token, the rate, the ceiling, and how the bytes travel."""
    parser.add_argument("--service", metavar="URL", required=True, help="address of the transfer service")
    parser.add_argument("--token", metavar="FILE", help="file with the token (default: TRADEWIND_SERVICE_TOKEN)")
    parser.add_argument(
        "--shared",
        action="store_true",
        help="the path is on a file system that the service reads and writes itself; this host does not take part",
    )
    parser.add_argument(
        "--allow-network",
        metavar="CIDR",
        action="append",
        default=[],
        type=typed(parse_network),
        help="also connect to the service in this network, such as 10.0.0.0/8 (default: the internet, and private "
        "networks if the address of the service is in one)",
    )
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
        help="maximum routes: between stores those of machines (default: as many as help), from or to this host one "
        "for each address of the service (default 1)",
    )
    parser.add_argument(
        "--deadline",
        metavar="TIME",
        type=typed(parse_duration_s),
        help="between stores, on machines: the cheapest that end within this time after they were ordered, such as 30m;"
        " exit code 9 if the job ends later",
    )
    parser.add_argument(
        "--compress",
        metavar="CODEC",
        type=typed(parse_compression),
        help=f"compression between gateways: {COMPRESSIONS} (default off)",
    )
    parser.add_argument(
        "--dedup",
        choices=("on", "off"),
        help="between gateways: do not send bytes that the receiving one still has from this job (default off)",
    )


def run(args: Namespace) -> int:
    """Submit the job, and wait for it."""
    from tradewind.engine.guest_programs import GuestPlace
    from tradewind.engine.service_client import ServiceClient, parse_site_path

    path = parse_site_path(args.destination)
    source, recursive = args.source, args.source.endswith("/")
    if is_store_place(source):
        client = ServiceClient(args.service, args.token)
        return carry(args, client, source, client.place_of(path), recursive=recursive)
    source = os.path.abspath(source)
    recursive = os.path.isdir(source)
    if not os.path.exists(source):
        raise SourceNotFound(f"{args.source}: no such file or folder")
    client = ServiceClient(args.service, args.token)
    destination = client.place_of(path)
    if args.shared:
        return carry(args, client, source, destination, recursive=recursive)
    place = GuestPlace("source", source, os.path.basename(source), recursive)
    return carry_as_guest(args, client, place, destination)


def is_store_place(text: str) -> bool:
    """Return whether a word names a place in a store, as a URL or below a connection; any other is a path."""
    return "://" in text or text.startswith("connection:")


def carry(args: Namespace, client: Any, source: str, destination: str, *, recursive: bool) -> int:
    """Submit a job of a service and show it until it ends."""
    shown = _Shown(args)
    job_id = client.submit(source, destination, recursive=recursive, max_usd=args.max_cost, **_options(args))
    shown.begin(job_id)
    return shown.end(client.wait(job_id, shown.see))


def carry_as_guest(args: Namespace, client: Any, place: Any, site: str) -> int:
    """Submit a job in which this host takes part, or resume that of an earlier command, and show it until it ends."""
    from tradewind.engine.guest_host import GuestHost

    shown, options = _Shown(args), _options(args)
    given = {"gateway": args.gateway, "routes_max": args.routes, "allow_networks": args.allow_network}
    host = GuestHost(client, args.service, place, site, **given)
    try:
        job_id = host.earlier_job()
        if job_id is None:
            is_source = place.side == "source"
            if is_source and args.max_cost is not None:
                options["source_bytes"] = host.source_bytes()
            ends = (place.url, site) if is_source else (site, place.url)
            job_id = client.submit(*ends, recursive=place.is_folder, max_usd=args.max_cost, **options)
        shown.begin(job_id)
        return shown.end(host.take_part(job_id, shown.see))
    finally:
        shown.close()
        host.close()


def _options(args: Namespace) -> dict[str, Any]:
    return {
        "limit_bytes_per_s": args.limit_rate,
        "chunk_bytes": args.chunk_size,
        "routes": args.routes,
        "deadline_s": args.deadline,
        "compression": args.compress,
        "deduplication": None if args.dedup is None else args.dedup == "on",
    }


class _Shown:
    """Shows a job of a service: each state once, and its progress."""

    def __init__(self, args: Namespace) -> None:
        self._json: bool = args.json
        self._terminal = Terminal(quiet=args.quiet or args.json)
        self._said = ""

    def begin(self, job_id: str) -> None:
        self._terminal.say(f"job {job_id}")

    def see(self, job: Mapping[str, Any]) -> None:
        said = job["waiting"] or job["state"]
        if said != self._said:
            self._terminal.say(said)
            self._said = said
        if job["counts"] is not None and job["state"] == "running":
            self._terminal.event(Progress.from_document(job["counts"]))

    def end(self, job: Mapping[str, Any]) -> int:
        """Print a job that is done. Raises DeadlineMissed if it was late."""
        from tradewind.engine.service_client import require_in_time

        self.close()
        if self._json:
            print(json.dumps(job))
        require_in_time(job)
        return 0

    def close(self) -> None:
        self._terminal.end()
