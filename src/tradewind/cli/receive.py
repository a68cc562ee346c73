"""`tradewind receive`."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from tradewind.cli.send import add_service_arguments, carry, is_store_place

USAGE = "[OPTION]… --service URL SITE:NAME DIR|PLACE"
HELP = """\
Receive everything below a name at a site of a transfer service into a folder. The service moves the bytes: it must be
able to write to the same path, for example on a shared file system, below one of the folders that its operator has
allowed. To receive a single file, add --file."""
EXAMPLES = """\
  tradewind receive --service https://transfers.example.org --token ~/token dublin:run7 /data/run7
  tradewind receive --service http://127.0.0.1:8080 --file dublin:models/model.bin /data/"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the two places and the service."""
    parser.add_argument("source", metavar="SITE:NAME", help="site of the service, and a name there")
    parser.add_argument("destination", metavar="DIR|PLACE", help="folder, or place in a store, to write to")
    parser.add_argument("--file", action="store_true", help="the name is a single file")
    add_service_arguments(parser)


def run(args: Namespace) -> int:
    """Submit the job, and wait for it."""
    from tradewind.engine.service_client import ServiceClient, parse_site_path

    path = parse_site_path(args.source)
    client = ServiceClient(args.service, args.token)
    destination = args.destination if is_store_place(args.destination) else os.path.abspath(args.destination)
    if args.file:
        destination = os.path.join(destination, os.path.basename(path.name))
    return carry(args, client, client.place_of(path), destination, recursive=not args.file)
