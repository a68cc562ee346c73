"""`tradewind rm`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import NoReturn

from tradewind.cli.options import access, add_filter_arguments, add_side_arguments, object_filter
from tradewind.cli.streams import require_input
from tradewind.engine.deletions import ObjectRemoval, check_deletion, names_of_list, refuse_link, whole_store
from tradewind.engine.patterns import Pattern
from tradewind.engine.sources import STANDARD_INPUT
from tradewind.engine.tasks import find_pattern
from tradewind.engine.versions import VersionCount, become_version_deletion, count_versions
from tradewind.errors import UsageError
from tradewind.model.job import ObjectFilter
from tradewind.model.store import Access
from tradewind.model.units import format_bytes

USAGE = "[OPTION]… URL… | --files-from FILE [URL]"
HELP = """\
Delete objects, or with -r everything below each URL that matches the filters. A URL with a * or ? deletes each object
that it matches, and with -r also everything below directories that it matches. * and ? match within a directory, **
across directories. If an object or a directory has exactly this name, only that is deleted.

Of several URLs, one that does not exist fails alone, with exit code 4. --files-from deletes the objects that a list
names: keys below URL, or without URL whole URLs. In a list, * and ? have no meaning.

On a terminal, rm asks first if there is -r or a wildcard, unless -y is given. Without a terminal it does not ask, but
needs -y to delete a whole bucket (also as s3://bucket/*) or the root of this machine.

--versions permanently deletes all versions and delete markers; nothing can undo this. Filters select each version by
its own size and time; a delete marker has no bytes. The latest version of an object is deleted last. --versions always
needs a confirmation: -y, or yes to a question that states the number. It works with S3 and compatible servers only."""
EXAMPLES = """\
  tradewind rm s3://bucket/old.csv s3://bucket/older.csv
  tradewind rm 's3://bucket/tmp-*/*.log'
  tradewind rm -r s3://bucket/tmp/ --older 30d --dry-run
  tradewind rm -r -y s3://bucket/tmp/
  tradewind rm s3://bucket/data --files-from names.txt      # one key below data/ per line
  tradewind rm -r --versions s3://bucket/tmp/ --dry-run"""

HINTS = {
    **dict.fromkeys(
        ("-f", "--force"),
        "leave it out: rm asks only on a terminal, and -y answers yes; --allow-empty accepts missing names",
    ),
    "-a": "write --versions",
    "-I": "write --files-from -",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the URLs, -r, --files-from, --dry-run and the filters."""
    parser.add_argument("urls", metavar="URL", nargs="*", help="place or path")
    parser.add_argument("-r", "--recursive", action="store_true", help="delete everything below each URL")
    parser.add_argument(
        "--files-from",
        metavar="FILE",
        help="delete the objects in FILE (- is standard input), one per line: keys below URL, or URLs if none is given",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be deleted, and delete nothing")
    parser.add_argument("--allow-empty", action="store_true", help="do not fail if there is nothing to delete")
    parser.add_argument(
        "--versions", action="store_true", help="permanently delete all versions and delete markers (S3 only)"
    )
    add_side_arguments(parser, "src", "access to the store (settings: src_*)", short=True)
    add_filter_arguments(parser)


def run(args: Namespace) -> int:
    """Delete."""
    removal = ObjectRemoval(
        args.gateway,
        access(args, "src"),
        object_filter(args),
        recursive=args.recursive,
        dry_run=args.dry_run,
        allow_empty=args.allow_empty,
        as_json=args.json,
        mute=args.quiet and not args.json,
    )
    if args.files_from is not None:
        return _run_list(args, removal)
    if not args.urls:
        raise UsageError("missing URL", hint="`tradewind rm URL…`, or --files-from FILE")
    places = [(url, find_pattern(args.gateway, url, removal.access)) for url in dict.fromkeys(args.urls)]
    if args.versions:
        if len(places) > 1:
            raise UsageError(f"--versions takes one place, not {len(places)}", hint="name one place per command")
        _run_versions(args, removal.rules, removal.access, *places[0])
    broad = [(url, pattern) for url, pattern in places if args.recursive or pattern is not None]
    for url, pattern in places:
        if pattern is None and not args.recursive:
            refuse_link(url)
    for url, pattern in broad:
        check_deletion(url, args.state_dir, pattern)
    if broad and not (args.yes or args.dry_run):
        _confirm(broad, is_filtered=removal.rules != ObjectFilter())
    return removal.of_places(places)


def _run_list(args: Namespace, removal: ObjectRemoval) -> int:
    """Delete the objects of a list. A list names each object, so there is no question."""
    for refused, option in ((args.recursive, "-r"), (args.versions, "--versions")):
        if refused:
            raise UsageError(f"{option} and --files-from cannot be combined", hint=f"leave out {option}")
    if len(args.urls) > 1:
        raise UsageError("--files-from names objects below one URL", hint="name one URL, or none")
    if args.files_from == STANDARD_INPUT:
        require_input()
    return removal.of_names(names_of_list(args.files_from), args.urls[0] if args.urls else None)


def _run_versions(args: Namespace, rules: ObjectFilter, reach: Access, url: str, pattern: Pattern | None) -> NoReturn:
    """Delete versions, once the user has agreed to their number. Raises UsageError after a no."""
    from tradewind.cli.terminal import can_ask, confirm

    chosen = (args.gateway, url, reach, rules, pattern)
    if not (args.yes or args.dry_run):
        if not can_ask():
            hint = "confirm with -y; --dry-run shows what would be deleted"
            raise UsageError("deleted versions cannot be restored", hint=hint)
        confirm(_question(count_versions(*chosen, recursive=args.recursive), url))
    become_version_deletion(
        *chosen,
        recursive=args.recursive,
        dry_run=args.dry_run,
        allow_empty=args.allow_empty,
        as_json=args.json,
        mute=args.quiet and not args.json,
    )


def _question(count: VersionCount, url: str) -> str:
    """Return the question that states what would be deleted."""
    versions = f"{count.versions} version{'' if count.versions == 1 else 's'} ({format_bytes(count.size_bytes)})"
    markers = f"{count.markers} delete marker{'' if count.markers == 1 else 's'}"
    return f"Delete {versions} and {markers} of {url} for good?"


def _confirm(places: Sequence[tuple[str, Pattern | None]], *, is_filtered: bool) -> None:
    """Ask on a terminal. Without one, only the deletion of a whole store needs -y. Raises UsageError after a no."""
    from tradewind.cli.terminal import can_ask, confirm
    from tradewind.cli.transferring import shown_as_typed

    wholes = [whole for url, _ in places if (whole := whole_store(url)) is not None]
    if can_ask():
        is_pattern = all(pattern is not None for _, pattern in places)
        what = "that matches" if is_pattern else "in"
        selected = f" {'and' if is_pattern else 'that matches'} the filters" if is_filtered else ""
        confirm(f"Delete everything {what} {shown_as_typed([url for url, _ in places])}{selected}?")
    elif wholes:
        raise UsageError(
            f"this would delete {wholes[0]}", hint="confirm with -y; --dry-run shows what would be deleted"
        )
