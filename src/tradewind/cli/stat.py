"""`tradewind stat`, also called `tradewind head`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.options import access, add_store_arguments
from tradewind.engine.tasks import become_stat

USAGE = "[OPTION]… URL"
HELP = """\
Show what the store states about one object: size, time, ETag, version, storage class, the checksums of the whole object
(in Base64), headers such as the content type, and metadata. `tradewind head` is the same."""
EXAMPLES = """\
  tradewind stat s3://bucket/data.csv
  tradewind stat --json gs://bucket/data.csv | jq -r .checksums.crc32c"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the URL."""
    add_store_arguments(parser)


def run(args: Namespace) -> int:
    """Show the facts about an object."""
    become_stat(args.gateway, args.url, access(args, "src"), as_json=args.json, quiet=args.quiet)
