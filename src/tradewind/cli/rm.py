"""`tradewind rm`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.options import access, add_filter_arguments, add_store_arguments, object_filter
from tradewind.engine.tasks import become_deletion, check_deletion, find_pattern, whole_store
from tradewind.errors import UsageError
from tradewind.model.job import ObjectFilter

USAGE = "[OPTION]… URL"
HELP = """\
Delete one object, or with -r everything below URL that matches the filters. A URL with a * or ? deletes each object
that it matches, and with -r what is below directories that it matches: * and ? match within a directory, ** across. If
an object or a directory has exactly this name, only that is deleted.

On a terminal -r and wildcards ask first, unless -y is given. Without a terminal nothing is asked, but deleting a whole
bucket, or the root of this machine, needs -y; so does s3://bucket/*."""
EXAMPLES = """\
  tradewind rm s3://bucket/old.csv
  tradewind rm 's3://bucket/tmp-*/*.log'
  tradewind rm -r s3://bucket/tmp/ --older 30d --dry-run
  tradewind rm -r -y s3://bucket/tmp/"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add -r, --dry-run and the filters."""
    parser.add_argument("-r", "--recursive", action="store_true", help="delete everything below URL")
    parser.add_argument("--dry-run", action="store_true", help="show what would be deleted, and delete nothing")
    parser.add_argument("--allow-empty", action="store_true", help="do not fail if there is nothing to delete")
    add_store_arguments(parser)
    add_filter_arguments(parser)


def run(args: Namespace) -> int:
    """Delete."""
    rules = object_filter(args)
    reach = access(args, "src")
    pattern = find_pattern(args.gateway, args.url, reach)
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
