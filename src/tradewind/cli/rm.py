"""`tradewind rm`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import NoReturn

from tradewind.cli.options import access, add_filter_arguments, add_store_arguments, object_filter
from tradewind.engine.patterns import Pattern
from tradewind.engine.tasks import become_deletion, check_deletion, find_pattern, whole_store
from tradewind.engine.versions import VersionCount, become_version_deletion, count_versions
from tradewind.errors import UsageError
from tradewind.model.job import ObjectFilter
from tradewind.model.store import Access
from tradewind.model.units import format_bytes

USAGE = "[OPTION]… URL"
HELP = """\
Delete one object, or with -r everything below URL that matches the filters. A URL with a * or ? deletes each object
that it matches, and with -r also everything below directories that it matches. * and ? match within a directory, **
across directories. If an object or a directory has exactly this name, only that is deleted.

On a terminal, rm asks first if there is -r or a wildcard, unless -y is given. Without a terminal it does not ask, but
needs -y to delete a whole bucket (also as s3://bucket/*) or the root of this machine.

--versions permanently deletes all versions and delete markers; nothing can undo this. Filters select each version by
its own size and time; a delete marker has no bytes. The latest version of an object is deleted last. --versions always
needs a confirmation: -y, or yes to a question that states the number. It works with S3 and compatible servers only."""
EXAMPLES = """\
  tradewind rm s3://bucket/old.csv
  tradewind rm 's3://bucket/tmp-*/*.log'
  tradewind rm -r s3://bucket/tmp/ --older 30d --dry-run
  tradewind rm -r -y s3://bucket/tmp/
  tradewind rm -r --versions s3://bucket/tmp/ --dry-run"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add -r, --dry-run and the filters."""
    parser.add_argument("-r", "--recursive", action="store_true", help="delete everything below URL")
    parser.add_argument("--dry-run", action="store_true", help="show what would be deleted, and delete nothing")
    parser.add_argument("--allow-empty", action="store_true", help="do not fail if there is nothing to delete")
    parser.add_argument(
        "--versions", action="store_true", help="permanently delete all versions and delete markers (S3 only)"
    )
    add_store_arguments(parser)
    add_filter_arguments(parser)


def run(args: Namespace) -> int:
    """Delete."""
    rules = object_filter(args)
    reach = access(args, "src")
    pattern = find_pattern(args.gateway, args.url, reach)
    if args.versions:
        _run_versions(args, rules, reach, pattern)
    if args.recursive or pattern is not None:
        check_deletion(args.url, args.state_dir, pattern)
        if not (args.yes or args.dry_run):
            _confirm(args.url, is_filtered=rules != ObjectFilter(), is_pattern=pattern is not None)
    become_deletion(
        args.gateway,
        args.url,
        reach,
        rules,
        pattern,
        recursive=args.recursive,
        dry_run=args.dry_run,
        allow_empty=args.allow_empty,
        as_json=args.json,
        mute=args.quiet and not args.json,
    )


def _run_versions(args: Namespace, rules: ObjectFilter, reach: Access, pattern: Pattern | None) -> NoReturn:
    """Delete versions, once the user has agreed to their number. Raises UsageError after a no."""
    from tradewind.cli.terminal import can_ask, confirm

    chosen = (args.gateway, args.url, reach, rules, pattern)
    if not (args.yes or args.dry_run):
        if not can_ask():
            hint = "confirm with -y; --dry-run shows what would be deleted"
            raise UsageError("deleted versions cannot be restored", hint=hint)
        confirm(_question(count_versions(*chosen, recursive=args.recursive), args.url))
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


def _confirm(url: str, *, is_filtered: bool, is_pattern: bool) -> None:
    """Ask on a terminal. Without one, only the deletion of a whole store needs -y. Raises UsageError after a no."""
    from tradewind.cli.terminal import can_ask, confirm

    whole = whole_store(url)
    if can_ask():
        what = "that matches" if is_pattern else "in"
        selected = f" {'and' if is_pattern else 'that matches'} the filters" if is_filtered else ""
        confirm(f"Delete everything {what} {url}{selected}?")
    elif whole is not None:
        raise UsageError(f"this would delete {whole}", hint="confirm with -y; --dry-run shows what would be deleted")
