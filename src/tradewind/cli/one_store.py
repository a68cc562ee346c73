"""Common code of ls, du, rm and cat: one store, its access options such as --endpoint, and a gateway task."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from typing import Any, NoReturn

from tradewind.cli.options import access, add_side_arguments
from tradewind.engine.request import directory_place, listing_place, object_place
from tradewind.errors import UsageError
from tradewind.model.document import to_document
from tradewind.model.url import Location, parse_url


def add_store_arguments(parser: ArgumentParser, *, many: bool = False) -> None:
    """URL and how to reach it."""
    parser.add_argument("urls" if many else "url", metavar="URL", nargs="+" if many else None, help="place or path")
    add_side_arguments(parser, "src", "how the store is reached (settings: src_*)", short=True)


def add_human(parser: ArgumentParser) -> None:
    """-h; for verbs with `H_IS_HELP = False`."""
    parser.add_argument("-h", "--human", action="store_true", help="sizes in kB, MB, … (1 kB = 1000 bytes)")


def place_of(text: str) -> Location:
    """A place that is no pipe. Raises UrlError, UsageError."""
    place = parse_url(text, cwd=os.getcwd())
    if place.kind == "pipe":
        raise UsageError("standard input and output are not stores", hint="only `tradewind cp` takes -")
    return place


def directory_of(args: Namespace, text: str) -> tuple[dict[str, Any], str]:
    """Store document and prefix of a place that means a directory."""
    store, prefix = directory_place(place_of(text), access(args, "src"))
    return to_document(store), prefix


def listing_of(args: Namespace, text: str) -> tuple[dict[str, Any], str]:
    """Store document and key of a place that may be an object or a directory."""
    store, key = listing_place(place_of(text), access(args, "src"))
    return to_document(store), key


def object_of(args: Namespace, text: str) -> tuple[dict[str, Any], str]:
    """Store document and key of a place that means one object."""
    store, key = object_place(place_of(text), access(args, "src"))
    return to_document(store), key


def finish_as(args: Namespace, task: dict[str, Any], *, mute: bool = False) -> NoReturn:
    """Becomes the task; `mute` leaves out what it prints, not its errors."""
    from tradewind.gateway.binary import find_gateway
    from tradewind.gateway.task import become_task

    become_task(args.gateway or find_gateway(), task, mute=mute)
