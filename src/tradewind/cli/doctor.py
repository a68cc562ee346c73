"""`tradewind doctor`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace

from tradewind.cli.config import unknown_variables
from tradewind.cli.options import access, add_side_arguments
from tradewind.cli.terminal import printable
from tradewind.engine.diagnosis import Finding, check_installation, check_stores
from tradewind.errors import with_paths
from tradewind.model.document import to_document
from tradewind.model.url import as_typed

USAGE = "[OPTION]… [URL…]"
HELP = """\
Check this installation, and say how to fix problems: the gateway program; folders and settings; rented machines of
commands that were killed; processors, memory, disk and the kernel; for each cloud, which part of its credential chain
provides credentials (never the secrets) and, if the cloud is in use, how far its clock and this machine's differ. For
each URL: credentials, whether the store answers, and the clocks. For each place where gateways may run: the machines
and quotas that its provider states, or what is missing. Each check takes a few seconds at most."""
EXAMPLES = """\
  tradewind doctor
  tradewind doctor s3://bucket gs://other
  tradewind doctor --endpoint http://127.0.0.1:9000
  tradewind doctor s3://bucket --endpoint http://127.0.0.1:9000 --json"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the URLs."""
    parser.add_argument("urls", metavar="URL", nargs="*", help="stores to check")
    add_side_arguments(parser, "src", "access to the stores (settings: src_*)", short=True)


def run(args: Namespace) -> int:
    """Check and print the findings. Return 1 if something does not work."""
    reached, bad = access(args, "src"), False
    show = _Table(as_json=args.json).show
    for finding in check_installation(
        gateway=args.gateway,
        state_dir=args.state_dir,
        settings_file=args.configuration.path,
        unknown_variables=unknown_variables(),
        access=None if args.urls else reached,
        sites=None if args.urls else args.configuration.sites(),
    ):
        bad = bad or not finding.good
        show(finding)
    code = check_stores(args.gateway, args.urls, reached, show) if args.urls else 0
    return code or int(bad)


class _Table:
    """Prints findings, those of a store below its URL."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._store: str | None = None

    def show(self, finding: Finding) -> None:
        if self._as_json:
            print(json.dumps(to_document(finding)), flush=True)
            return
        if finding.store is not None and finding.store != self._store:
            print(printable(f"     {as_typed(finding.store)}"))
            self._store = finding.store
        print(printable(f"{_mark(finding):<4} {finding.name:<14} {with_paths(finding.what)}"))
        if finding.mend:
            print(printable(f"     {'':<14} → {finding.mend}"))
        sys.stdout.flush()


def _mark(finding: Finding) -> str:
    """Return the first word of a finding's line."""
    if finding.absent:
        return "none"
    if not finding.good:
        return "BAD"
    return "warn" if finding.doubtful else "ok"
