"""`tradewind mb`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.options import access, add_project, add_store_arguments
from tradewind.engine.buckets import become_new_bucket

USAGE = "[OPTION]… URL"
HELP = """\
Make a bucket or container, private and with the defaults of its cloud. --region sets its region (S3). A
bucket that exists is an error, with one exception: in us-east-1, AWS accepts the request for a bucket that you own,
keeps the bucket and resets its access control list."""
EXAMPLES = """\
  tradewind mb s3://new-bucket --region eu-west-1
  tradewind mb gs://new-bucket --project my-project
  tradewind mb az://account/container"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the URL."""
    add_project(parser)
    add_store_arguments(parser)


def run(args: Namespace) -> int:
    """Make the bucket."""
    become_new_bucket(args.gateway, args.url, access(args, "src"), args.project, as_json=args.json, quiet=args.quiet)
