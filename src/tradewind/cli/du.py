"""`tradewind du`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.arguments import typed
from tradewind.cli.options import access, add_filter_arguments, add_human, add_store_arguments, object_filter
from tradewind.engine.tasks import become_sum
from tradewind.errors import UsageError

USAGE = "[OPTION]… URL"
HELP = "Count the objects below URL and sum their sizes. For local files this is the length, not the disk usage."
EXAMPLES = """\
  tradewind du s3://bucket/data
  tradewind du -h --depth 1 s3://bucket/data
  tradewind du /scratch --newer 7d --json"""
#: `-h` means sizes with units, as in `ls -lh` and `du -h`.
H_IS_HELP = False
DEPTH_MAX = 1024
"""Most levels of directories. No key of an object store has more: they have 1,024 bytes."""
HINTS = {
    **dict.fromkeys(("-r", "-R", "--recursive"), "leave it out: du always counts everything below URL"),
    **dict.fromkeys(("-s", "--summarize"), "leave it out: du prints one sum for each URL, unless --depth divides it"),
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the filters."""
    add_human(parser)
    parser.add_argument(
        "-d",
        "--depth",
        metavar="N",
        type=typed(parse_depth),
        default=0,
        help="also sum each directory up to N levels below URL, in the order of their names; the sum of all comes last",
    )
    add_store_arguments(parser)
    add_filter_arguments(parser)


def run(args: Namespace) -> int:
    """Count objects and bytes."""
    rules = object_filter(args)
    become_sum(
        args.gateway,
        args.url,
        access(args, "src"),
        rules,
        depth=args.depth,
        human=args.human,
        as_json=args.json,
        quiet=args.quiet,
    )


def parse_depth(text: str) -> int:
    """Parse a number of levels, 0 or more. Raises UsageError."""
    if not (text.isascii() and text.isdecimal()) or int(text) > DEPTH_MAX:
        raise UsageError(f"a number of levels from 0 to {DEPTH_MAX}, not {text!r}")
    return int(text)
