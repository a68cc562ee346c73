"""`tradewind check`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.options import access, add_filter_arguments, add_side_arguments, object_filter
from tradewind.engine.tasks import become_check
from tradewind.errors import UsageError

USAGE = "[OPTION]… SRC DST"
HELP = """\
Compare two trees without changing them, and name all missing, extra and different objects (exit code 6). Objects below
a directory that cannot be listed at the other side cannot be compared: they are named as failed."""
EXAMPLES = """\
  tradewind check /data s3://bucket/data
  tradewind check s3://bucket/data gs://other/data --read     # reads both sides of every object
  tradewind check /data s3://bucket/data --one-way            # ignore extra objects at DST"""

HINTS = dict.fromkeys(("-r", "-R", "--recursive"), "leave it out: check always compares everything below SRC")


def add_arguments(parser: ArgumentParser) -> None:
    """Add --compare, --read, --one-way, --follow-symlinks, the filters and both sides."""
    parser.add_argument("source", metavar="SRC", help="first tree")
    parser.add_argument("destination", metavar="DST", help="tree to compare with it")
    parser.add_argument(
        "--compare",
        choices=["checksum", "auto", "size", "time"],
        default="checksum",
        help="checksum (the default): request it per object if listings state none, and read local files; auto: the "
        "default of sync, checksums where listings state them, else size and time; size: size alone; time: size and "
        "time. With the same value, sync copies exactly the objects that check names",
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
    """Compare two trees."""
    if args.read and args.compare != "checksum":
        raise UsageError(f"--read compares the bytes, --compare {args.compare} does not", hint="leave out one of them")
    links = args.follow_symlinks
    become_check(
        args.gateway,
        args.source,
        args.destination,
        access(args, "src", follow_symlinks=links),
        access(args, "dst", follow_symlinks=links),
        object_filter(args),
        compare=args.compare,
        read=args.read,
        one_way=args.one_way,
        as_json=args.json,
        quiet=args.quiet,
    )
