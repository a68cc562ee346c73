"""`tradewind mv`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.transferring import add_transfer_arguments, options_from, transfer
from tradewind.model.records import replace

USAGE = "[OPTION]… SRC… DST | SRC… --to DST [--to DST]…"
HELP = """\
Copy like cp, and delete each source object once its copy is proven at every destination. An object that could not be
copied stays. Local directories that become empty are removed; SRC itself stays."""
EXAMPLES = """\
  tradewind mv s3://bucket/in/a.csv s3://bucket/done/
  tradewind mv -r /scratch/run42 s3://archive/run42"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add -r and all options of a transfer."""
    parser.add_argument("-r", "--recursive", action="store_true", help="move everything below SRC")
    add_transfer_arguments(parser)


def run(args: Namespace) -> int:
    """Move."""
    recursive = args.recursive or args.files_from is not None
    return transfer(args, replace(options_from(args, recursive=recursive), delete_source=True))
