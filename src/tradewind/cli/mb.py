"""`tradewind mb`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from tradewind.cli.options import access, add_project, add_store_arguments
from tradewind.engine.buckets import become_new_bucket

USAGE = "[OPTION]… URL"
HELP = """\
Make a bucket or container, private and with the defaults of its cloud. --region chooses where (S3). It is an error if
it exists, but in us-east-1 AWS takes the order for a bucket that is yours already: it stays, and its access control
list is reset."""
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
    become_new_bucket(args.gateway, args.url, access(args, "src"), args.project)
