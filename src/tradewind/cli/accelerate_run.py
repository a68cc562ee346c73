"""`tradewind accelerate run`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from tradewind.errors import UsageError
from tradewind.model.units import format_bytes, format_count

OPTIONS = ("acceleration", "through", "token_file", "to", "by", "refuse_quic")
ARGUMENTS = "COMMAND and its arguments"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the proxy, the destinations and the command."""
    group = parser.add_argument_group("run")
    group.add_argument(
        "--acceleration",
        metavar="ID",
        help='send connections to the destinations of the flows with way_in = "run" through this acceleration'
        " (default: the only running one)",
    )
    group.add_argument(
        "--through",
        metavar="URL",
        help="another proxy, instead: socks5h://USER@HOST:PORT or http://USER@HOST:PORT; its token is in --token-file"
        " or in the variable TRADEWIND_PROXY_TOKEN",
    )
    group.add_argument("--token-file", metavar="FILE", help="file with the proxy's token")
    group.add_argument(
        "--to",
        metavar="HOST[:PORT]",
        action="append",
        help="send connections to this destination through the proxy, and all others directly (default: send all"
        " through it); may be repeated",
    )
    group.add_argument(
        "--by",
        metavar="MEANS",
        choices=["auto", "redirect", "variables"],
        help="redirect: connections of any program, as root on Linux; variables: set ALL_PROXY and HTTPS_PROXY;"
        " auto (default): the first that is possible",
    )
    group.add_argument(
        "--refuse-quic",
        action="store_true",
        help="refuse UDP to port 443 of the destinations, so that clients of QUIC use TCP (redirect only)",
    )


def run(args: Namespace) -> int:
    """Run the command, show what went through the proxy on standard error, and return the command's exit code."""
    from tradewind.engine.engine import Engine

    if args.through is None and (args.to or args.token_file):
        raise UsageError(
            "--to and --token-file are for --through",
            hint="without --through, the flows file says what goes through the proxies",
        )
    if args.through is not None and args.acceleration is not None:
        raise UsageError("--acceleration and --through exclude each other", hint="leave one out")
    if not args.arguments:
        raise UsageError("missing COMMAND", hint="write the command after --")
    quiet = args.quiet

    def note(line: str) -> None:
        if not quiet:
            print(f"note: {line}", file=sys.stderr)

    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        through, to = args.through, args.to or []
        if through is None:
            from tradewind.engine.accelerations import Accelerations

            through, to = Accelerations(engine.control).way_of_run(args.acceleration)
        done = engine.run_accelerated(
            args.arguments,
            through,
            to,
            token_file=args.token_file,
            by=args.by or "auto",
            refuse_quic=args.refuse_quic,
            note=note,
        )
    sent, received = format_bytes(done.sent_bytes), format_bytes(done.received_bytes)
    note(f"{format_count(done.connections, 'connection')} to the proxy: {sent} sent, {received} received")
    if done.refused:
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(done.refused.items()))
        note(f"refused connections by cause: {causes}")
    return done.exit_code
