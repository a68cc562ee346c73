"""`tradewind cat`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.one_store import add_store_arguments, object_of
from tradewind.cli.streams import require_output

USAGE = "[OPTION]… URL [URL…]"
HELP = "Write objects to standard output, one after the other, each verified if its store states a checksum."
EXAMPLES = """\
  tradewind cat s3://bucket/log.txt | tail
  tradewind cat s3://bucket/part1 gs://other/part2 > whole"""


def add_arguments(parser: ArgumentParser) -> None:
    """URLs."""
    add_store_arguments(parser, many=True)


def run(args: Namespace) -> int:
    """Writes."""
    return write_objects(args, args.urls)


def write_objects(args: Namespace, urls: list[str], *, whole: bool = False) -> int:
    """Write objects to standard output; one task for each run of URLs in one store.

    With `whole` a reader that goes away before the end is a failure.
    """
    from tradewind.gateway.binary import find_gateway
    from tradewind.gateway.task import run_task

    require_output()
    tasks: list[dict[str, object]] = []
    keys: list[str] = []
    for url in urls:
        store, key = object_of(args, url)
        if not tasks or tasks[-1]["store"] != store:
            keys = []
            tasks.append({"task": "cat", "store": store, "keys": keys, **({"whole": True} if whole else {})})
        keys.append(key)
    binary = args.gateway or find_gateway()
    for task in tasks:
        code = run_task(binary, task)
        if code != 0:
            return code
    return 0
