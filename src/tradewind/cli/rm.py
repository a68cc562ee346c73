"""`tradewind rm`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from tradewind.cli.one_store import add_store_arguments, directory_of, finish_as, object_of
from tradewind.cli.options import add_filter_arguments, object_filter
from tradewind.errors import UsageError
from tradewind.model.document import to_document
from tradewind.model.job import ObjectFilter

USAGE = "[OPTION]… URL"
HELP = """\
Deletes one object, or with -r everything below URL that the filters take. On a terminal -r asks first, unless -y."""
EXAMPLES = """\
  tradewind rm s3://bucket/old.csv
  tradewind rm -r s3://bucket/tmp/ --older 30d --dry-run
  tradewind rm -r -y s3://bucket/tmp/"""


def add_arguments(parser: ArgumentParser) -> None:
    """-r, --dry-run and the filters."""
    parser.add_argument("-r", "--recursive", action="store_true", help="everything below URL")
    parser.add_argument("--dry-run", action="store_true", help="say what would go, delete nothing")
    parser.add_argument("--allow-empty", action="store_true", help="nothing to delete is no error")
    add_store_arguments(parser)
    add_filter_arguments(parser)


def run(args: Namespace) -> int:
    """Deletes."""
    rules = object_filter(args)
    if not args.recursive and rules != ObjectFilter():
        raise UsageError("filters choose among the objects of a directory", hint="add -r")
    store, key = (directory_of if args.recursive else object_of)(args, args.url)
    if args.recursive and not (args.yes or args.dry_run) and sys.stdin.isatty() and sys.stderr.isatty():
        from tradewind.cli.transferring import confirm

        confirm(f"Delete {'what the filters take of ' if rules != ObjectFilter() else 'everything in '}{args.url}?")
    finish_as(
        args,
        {
            "task": "rm",
            "store": store,
            "key": key,
            "recursive": args.recursive,
            "filter": to_document(rules),
            "dry_run": args.dry_run,
            "json": args.json,
            "allow_empty": args.allow_empty,
        },
        mute=args.quiet and not args.json,
    )
