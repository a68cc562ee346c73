"""`tradewind cat`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.options import access, add_store_arguments
from tradewind.cli.streams import require_output
from tradewind.engine.tasks import write_objects

USAGE = "[OPTION]… URL [URL…]"
HELP = "Write objects to standard output, one after the other, each verified if its store states a checksum."
EXAMPLES = """\
  tradewind cat s3://bucket/log.txt | tail
  tradewind cat s3://bucket/part1 gs://other/part2 > whole"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the URLs."""
    add_store_arguments(parser, many=True)


def run(args: Namespace) -> int:
    """Write objects to standard output."""
    require_output()
    return write_objects(args.gateway, args.urls, access(args, "src"))
