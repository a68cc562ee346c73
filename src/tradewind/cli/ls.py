"""`tradewind ls`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.one_store import add_human, add_store_arguments, finish_as, listing_of
from tradewind.cli.options import add_filter_arguments, object_filter
from tradewind.model.document import to_document

USAGE = "[OPTION]… URL"
HELP = """\
List an object, or one level below a directory, or with -r everything below it, in the order of the keys. Control
characters and backslashes in names are escaped as by `ls -b` (\\n, \\x1b, \\\\); --json has the exact names."""
EXAMPLES = """\
  tradewind ls s3://bucket/data
  tradewind ls -rl gs://bucket --include '**.parquet'
  tradewind ls -r --json /scratch | jq .size_bytes"""
#: `-lh` and `du -h` ask for sizes with units.
H_IS_HELP = False


def add_arguments(parser: ArgumentParser) -> None:
    """-r, -l and the filters."""
    parser.add_argument("-r", "--recursive", action="store_true", help="list everything below, not one level")
    parser.add_argument("-l", "--long", action="store_true", help="size, time and storage class too")
    add_human(parser)
    add_store_arguments(parser)
    add_filter_arguments(parser)


def run(args: Namespace) -> int:
    """Lists."""
    store, prefix = listing_of(args, args.url)
    finish_as(
        args,
        {
            "task": "ls",
            "store": store,
            "prefix": prefix,
            "recursive": args.recursive,
            "filter": to_document(object_filter(args)),
            "long": args.long or args.human,
            "human": args.human,
            "json": args.json,
        },
    )
