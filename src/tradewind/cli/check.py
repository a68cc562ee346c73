"""`tradewind check`."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from tradewind.cli.one_store import finish_as, place_of
from tradewind.cli.options import access, add_filter_arguments, add_side_arguments, object_filter
from tradewind.engine.request import directory_place
from tradewind.errors import UsageError
from tradewind.model.document import to_document

USAGE = "[OPTION]… SRC DST"
HELP = "Compare two trees without changing them, and name all missing, extra and different objects (exit code 6)."
EXAMPLES = """\
  tradewind check /data s3://bucket/data
  tradewind check s3://bucket/data gs://other/data --read     # reads both sides of every object
  tradewind check /data s3://bucket/data --one-way            # further objects at DST are no difference"""

HINTS = dict.fromkeys(("-r", "-R", "--recursive"), "leave it out: check always compares everything below SRC")


def add_arguments(parser: ArgumentParser) -> None:
    """--compare, --read, --one-way, --follow-symlinks, the filters and both sides."""
    parser.add_argument("source", metavar="SRC", help="one tree")
    parser.add_argument("destination", metavar="DST", help="the other")
    parser.add_argument(
        "--compare", choices=["auto", "checksum", "size", "time"], default="auto", help="as in sync; auto: checksum"
    )
    parser.add_argument("--read", action="store_true", help="read both sides of every object and compare the bytes")
    parser.add_argument("--one-way", action="store_true", help="ignore objects that only DST has")
    parser.add_argument(
        "--follow-symlinks", action="store_true", help="compare what symbolic links point to (else they are skipped)"
    )
    add_filter_arguments(parser)
    add_side_arguments(parser, "src", "source side")
    add_side_arguments(parser, "dst", "destination side")


def run(args: Namespace) -> int:
    """Compares."""
    if args.read and args.compare in ("size", "time"):
        raise UsageError(f"--read compares the bytes, --compare {args.compare} does not", hint="leave out one of them")
    for text in (args.source, args.destination):
        place = place_of(text)
        if place.kind == "file" and os.path.isfile(place.key):
            hint = "check compares directories: name the directory, and the file with --include"
            raise UsageError(f"{text} is a file, not a directory", hint=hint)
    links = args.follow_symlinks
    source, source_prefix = directory_place(place_of(args.source), access(args, "src", follow_symlinks=links))
    destination, destination_prefix = directory_place(
        place_of(args.destination), access(args, "dst", follow_symlinks=links)
    )
    finish_as(
        args,
        {
            "task": "check",
            "source": to_document(source),
            "source_prefix": source_prefix,
            "destination": to_document(destination),
            "destination_prefix": destination_prefix,
            "filter": to_document(object_filter(args)),
            "compare": args.compare,
            "read": args.read,
            "one_way": args.one_way,
            "json": args.json,
        },
    )
