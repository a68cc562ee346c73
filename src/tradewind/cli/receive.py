"""`tradewind receive`."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from tradewind.cli.send import add_service_arguments, carry, carry_as_guest, is_store_place

USAGE = "[OPTION]… --service URL SITE:NAME DIR|PLACE"
HELP = """\
Receive everything below a name at a site of a transfer service into a folder of this host. This host takes part in the
job with a gateway of its own, which opens all connections and writes only below the folder. If this command ends, the
job waits and then fails; the same command resumes it. With --shared the service writes to the same path itself, below
one of the folders that its operator has allowed. It also writes to places in stores. To receive a single file, add
--file."""
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
    from tradewind.engine.guest_programs import GuestPlace
    from tradewind.engine.service_client import ServiceClient, parse_site_path

    path = parse_site_path(args.source)
    client = ServiceClient(args.service, args.token)
    is_elsewhere = is_store_place(args.destination)
    destination = args.destination if is_elsewhere else os.path.abspath(args.destination)
    name = os.path.basename(path.name.rstrip("/"))
    if not args.shared and not is_elsewhere:
        place = GuestPlace("destination", destination, name, not args.file)
        return carry_as_guest(args, client, place, client.place_of(path))
    if args.file:
        destination = os.path.join(destination, name)
    return carry(args, client, client.place_of(path), destination, recursive=not args.file)
