"""`tradewind du`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.one_store import add_human, add_store_arguments, finish_as, listing_of
from tradewind.cli.options import add_filter_arguments, object_filter
from tradewind.model.document import to_document

USAGE = "[OPTION]… URL"
HELP = "Count the objects below URL and sum their sizes. Local files count with their length, not their blocks."
EXAMPLES = """\
  tradewind du s3://bucket/data
  tradewind du /scratch --newer 7d --json"""
#: `-lh` and `du -h` ask for sizes with units.
H_IS_HELP = False
HINTS = dict.fromkeys(("-r", "-R", "--recursive"), "leave it out: du always counts everything below URL")


def add_arguments(parser: ArgumentParser) -> None:
    """The filters."""
    add_human(parser)
    add_store_arguments(parser)
    add_filter_arguments(parser)


def run(args: Namespace) -> int:
    """Sums."""
    store, prefix = listing_of(args, args.url)
    task = {"task": "du", "store": store, "prefix": prefix, "human": args.human, "json": args.json}
    finish_as(args, {**task, "filter": to_document(object_filter(args))})
