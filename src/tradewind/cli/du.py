"""`tradewind du`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.options import access, add_filter_arguments, add_human, add_store_arguments, object_filter
from tradewind.engine.tasks import become_sum

USAGE = "[OPTION]… URL"
HELP = "Count the objects below URL and sum their sizes. For local files this is the length, not the disk usage."
EXAMPLES = """\
  tradewind du s3://bucket/data
  tradewind du /scratch --newer 7d --json"""
#: `-h` means sizes with units, as in `ls -lh` and `du -h`.
H_IS_HELP = False
HINTS = dict.fromkeys(("-r", "-R", "--recursive"), "leave it out: du always counts everything below URL")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the filters."""
    add_human(parser)
    add_store_arguments(parser)
    add_filter_arguments(parser)


def run(args: Namespace) -> int:
    """Count objects and bytes."""
    rules = object_filter(args)
    become_sum(args.gateway, args.url, access(args, "src"), rules, human=args.human, as_json=args.json)
