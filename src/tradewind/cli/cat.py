"""`tradewind cat`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.arguments import typed
from tradewind.cli.options import access, add_store_arguments
from tradewind.cli.streams import require_output
from tradewind.engine.tasks import write_objects
from tradewind.errors import UsageError
from tradewind.model.job import ByteRange

USAGE = "[OPTION]… URL [URL…]"
HELP = """\
Write objects to standard output, one after the other, each verified if its store states a checksum. A URL with a * or ?
writes each object that it matches, in the order of names. * and ? match within a directory, ** across directories. If
an object has exactly this name, only that is written."""
EXAMPLES = """\
  tradewind cat s3://bucket/log.txt | tail
  tradewind cat 's3://bucket/2024-*/part-*.csv' > whole.csv
  tradewind cat --range 0-1023 s3://bucket/image.tif | file -
  tradewind cat s3://bucket/part1 gs://other/part2 > whole"""

RANGES = "0-99 for the first hundred bytes, 100- for all after them, -100 for the last hundred"
BYTES_MAX = 2**63 - 1
"""Largest position in an object."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the URLs."""
    parser.add_argument(
        "--range",
        metavar="RANGE",
        type=typed(parse_range),
        help="write only these bytes of each object: 0-99 (the first hundred), 100- (all after them) or -100 (the last "
        "hundred); they are not verified",
    )
    add_store_arguments(parser, many=True)


def run(args: Namespace) -> int:
    """Write objects to standard output."""
    require_output()
    return write_objects(args.gateway, args.urls, access(args, "src"), part=args.range, quiet=args.quiet)


def parse_range(text: str) -> ByteRange:
    """Parse `FIRST-LAST`, `FIRST-` or `-COUNT`, in bytes as in HTTP. Raises UsageError."""
    first, dash, last = text.partition("-")
    numbers = [number for number in (first, last) if number]
    if not dash or not numbers or not all(number.isascii() and number.isdecimal() for number in numbers):
        raise UsageError(f"not a range of bytes: {text}", hint=RANGES)
    if not all(int(number) <= BYTES_MAX for number in numbers) or (first and last and int(first) > int(last)):
        raise UsageError(f"no object has these bytes: {text}", hint=RANGES)
    if not first:
        return ByteRange(-int(last), int(last))
    return ByteRange(int(first), int(last) - int(first) + 1 if last else None)
