"""`tradewind ls`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.options import (
    access,
    add_filter_arguments,
    add_human,
    add_project,
    add_store_arguments,
    object_filter,
)
from tradewind.engine.buckets import become_bucket_listing, parse_account
from tradewind.engine.tasks import become_listing
from tradewind.errors import UsageError
from tradewind.model.job import ObjectFilter

USAGE = "[OPTION]… URL"
HELP = """\
List an object, or one level below a directory, or with -r everything below it, in the order of the keys. Control
characters and backslashes in names are escaped as by `ls -b` (\\n, \\x1b, \\\\); --json has the exact names.

In a URL with a * or ?, * and ? match within a directory, ** across directories, [a-z] one of these characters; quote it
for the shell. Directories that match are listed themselves, not what is in them.

s3://, gs://, az://ACCOUNT and r2://ACCOUNT list the buckets or containers of an account, in the order of the
cloud, with -l their times and regions."""
EXAMPLES = """\
  tradewind ls s3://
  tradewind ls s3://bucket/data
  tradewind ls 's3://bucket/2024-*/x'
  tradewind ls -rl gs://bucket --include '**.parquet'
  tradewind ls -r --json /scratch | jq .size_bytes"""
#: `-h` means sizes with units, as in `ls -lh` and `du -h`.
H_IS_HELP = False
HINTS = {
    **dict.fromkeys(("-a", "-A", "--all"), "leave it out: names that begin with a dot are listed, too"),
    "-1": "leave it out: each name has a line",
    **dict.fromkeys(("-e", "--etag", "--show-fullpath"), "write --json: it has the ETag and the whole key"),
    **dict.fromkeys(("-s", "--storage-class"), "write -l: it shows storage classes, too"),
    "-d": "write the URL without a / at its end",
}

MISSING_HINT = "`tradewind ls .` lists this directory, `tradewind ls s3://` your buckets"


def add_arguments(parser: ArgumentParser) -> None:
    """Add -r, -l and the filters."""
    parser.add_argument("-r", "--recursive", action="store_true", help="list everything below, not one level")
    parser.add_argument("-l", "--long", action="store_true", help="show size, time and storage class too")
    add_human(parser)
    add_project(parser)
    add_store_arguments(parser)
    add_filter_arguments(parser)


def run(args: Namespace) -> int:
    """List."""
    if account := parse_account(args.url):
        if args.recursive or object_filter(args) != ObjectFilter():
            raise UsageError(f"{args.url} names an account: -r and filters apply to a bucket", hint="list one bucket")
        long = args.long or args.human
        become_bucket_listing(
            args.gateway,
            account,
            access(args, "src"),
            args.project,
            long=long,
            as_json=args.json,
            quiet=args.quiet,
        )
    become_listing(
        args.gateway,
        args.url,
        access(args, "src"),
        object_filter(args),
        recursive=args.recursive,
        long=args.long or args.human,
        human=args.human,
        as_json=args.json,
        quiet=args.quiet,
    )
