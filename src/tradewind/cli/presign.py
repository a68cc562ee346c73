"""`tradewind presign`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.arguments import typed
from tradewind.cli.options import access, add_store_arguments
from tradewind.engine.tasks import become_presign
from tradewind.errors import UsageError
from tradewind.model.units import parse_duration_s

USAGE = "[OPTION]… URL"
HELP = """\
Print an address that reads one object without credentials until it expires. Anyone who has the address can read the
object. The command does not check whether the object exists.

For S3, compatible servers and R2 the address is signed with the credentials in use; if these are temporary, it expires
with them at the latest. For Azure it is signed with the account's key or, after a sign-in to Entra ID, with a user
delegation key; a shared access signature cannot sign. Tokens of Google Cloud cannot sign, so gs:// is refused."""
EXAMPLES = """\
  tradewind presign s3://bucket/report.pdf
  curl -O "$(tradewind presign --expires 10m s3://bucket/report.pdf)"
  tradewind presign --json az://account/container/report.pdf | jq -r .expires"""
EXPIRES_MAX_S = 7 * 86_400
"""Longest validity that S3 accepts."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add --expires and the URL."""
    parser.add_argument(
        "--expires",
        metavar="TIME",
        type=typed(parse_expiry),
        default=3600,
        help="validity from now, at most 7d (default 1h)",
    )
    add_store_arguments(parser)


def run(args: Namespace) -> int:
    """Print a signed address."""
    reached = access(args, "src")
    become_presign(args.gateway, args.url, reached, expires_s=args.expires, as_json=args.json, quiet=args.quiet)


def parse_expiry(text: str) -> int:
    """Parse a validity, 1 s to 7 days, in whole seconds. Raises UsageError."""
    seconds = parse_duration_s(text)
    if not 1 <= seconds <= EXPIRES_MAX_S:
        raise UsageError(f"an address can be valid for 1 s to 7 days, not {text}")
    return int(seconds)
