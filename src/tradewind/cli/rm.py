"""`tradewind rm`."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from tradewind.cli.one_store import add_store_arguments, directory_of, finish_as, object_of, place_of
from tradewind.cli.options import add_filter_arguments, object_filter
from tradewind.errors import UsageError
from tradewind.model.document import to_document
from tradewind.model.job import ObjectFilter

USAGE = "[OPTION]… URL"
HELP = """\
Delete one object, or with -r everything below URL that the filters take. On a terminal -r asks first, unless -y is
given. Without a terminal it does not ask, but deleting a whole bucket, or the root of this machine, needs -y."""
EXAMPLES = """\
  tradewind rm s3://bucket/old.csv
  tradewind rm -r s3://bucket/tmp/ --older 30d --dry-run
  tradewind rm -r -y s3://bucket/tmp/"""


def add_arguments(parser: ArgumentParser) -> None:
    """-r, --dry-run and the filters."""
    parser.add_argument("-r", "--recursive", action="store_true", help="everything below URL")
    parser.add_argument("--dry-run", action="store_true", help="show what would be deleted, and delete nothing")
    parser.add_argument("--allow-empty", action="store_true", help="do not fail if there is nothing to delete")
    add_store_arguments(parser)
    add_filter_arguments(parser)


def run(args: Namespace) -> int:
    """Deletes."""
    rules = object_filter(args)
    if not args.recursive and rules != ObjectFilter():
        raise UsageError("filters choose among the objects of a directory", hint="add -r")
    if args.recursive:
        _refuse_link(args.url)
        _refuse_state(args)
    store, key = (directory_of if args.recursive else object_of)(args, args.url)
    if args.recursive and not (args.yes or args.dry_run):
        _refuse_whole(args.url)
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


def _refuse_link(url: str) -> None:
    """A link may lead anywhere, and who removes it seldom means what it leads to. Raises UsageError."""
    place = place_of(url)
    if place.kind == "file" and os.path.islink(place.key):
        raise UsageError(
            f"{url} is a symbolic link", hint=f"to delete what is in the directory that it leads to, write {url}/"
        )


def _refuse_state(args: Namespace) -> None:
    """Filters do not lift it: who deletes around the state folder can name what lies beside it. Raises UsageError."""
    from tradewind.engine.own_files import refuse_deletion_of_state
    from tradewind.model.files import state_home

    place = place_of(args.url)
    if place.kind == "file":
        refuse_deletion_of_state(place.key, state_home(args.state_dir))


def _refuse_whole(url: str) -> None:
    """A bare bucket is often a prefix that a script left empty; filters do not make it safer. Raises UsageError."""
    place = place_of(url)
    if (place.key if place.kind != "file" else os.path.realpath(place.key)) not in ("", "/"):
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        what = "everything on this machine" if place.kind == "file" else f"the whole of {place.root}"
        raise UsageError(f"this would delete {what}", hint="confirm with -y; --dry-run shows what would be deleted")
