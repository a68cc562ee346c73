"""`tradewind rb`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.options import access, add_store_arguments
from tradewind.engine.buckets import become_bucket_removal, parse_bucket
from tradewind.errors import UsageError

USAGE = "[OPTION]… URL"
HELP = """\
Remove a bucket or container that is empty. It asks first; without a terminal it needs -y. Others may be able to take
the name afterwards. Azure does not check that a container is empty: an object written at this moment is lost, and
so are old versions of deleted objects. Other stores keep a bucket that has old versions, delete markers
or unfinished uploads. --force does not delete those. `tradewind rm -r --versions` deletes versions and markers in S3;
for the others, use the tools of the store or a lifecycle rule."""
EXAMPLES = """\
  tradewind rb s3://old-bucket
  tradewind rb -y --force az://account/old-container"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add --force."""
    parser.add_argument("--force", action="store_true", help="delete all its objects first")
    add_store_arguments(parser)


def run(args: Namespace) -> int:
    """Remove the bucket."""
    parse_bucket(args.url)
    if not args.yes:
        _confirm(args.url, force=args.force)
    become_bucket_removal(
        args.gateway, args.url, access(args, "src"), force=args.force, as_json=args.json, quiet=args.quiet
    )


def _confirm(url: str, *, force: bool) -> None:
    """Ask on a terminal. Raises UsageError after a no, and without a terminal."""
    from tradewind.cli.terminal import can_ask, confirm

    if not can_ask():
        raise UsageError(f"this would remove {url}{' with all its objects' if force else ''}", hint="confirm with -y")
    confirm(f"Remove {url} with all its objects?" if force else f"Remove {url} if it is empty?")
