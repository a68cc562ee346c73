"""`tradewind accelerate status`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace

from tradewind.errors import TradewindError, UsageError

OPTIONS = ("prometheus",)
ARGUMENTS = "ID"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the format."""
    parser.add_argument("--prometheus", action="store_true", help="status: print metrics in Prometheus's text format")


def run(args: Namespace) -> int:
    """Show accelerations: flows with their rates, proxies with their health, and the cost."""
    from tradewind.engine.accelerations import Accelerations
    from tradewind.engine.engine import Engine
    from tradewind.render.acceleration import acceleration_lines
    from tradewind.render.acceleration_metrics import prometheus_lines

    if args.prometheus and args.json:
        raise UsageError("--prometheus and --json exclude each other", hint="leave one out")
    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        book = Accelerations(engine.control)
        damaged: list[TradewindError] = []
        states = [book.state(each) for each in args.arguments] or list(book.states(damaged.append))
    for error in damaged:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
    if args.prometheus:
        print("\n".join(prometheus_lines(states)))
        return 0
    if not states and not damaged and not args.json and not args.quiet:
        print("no acceleration has run; `tradewind accelerate up` starts one", file=sys.stderr)
    for state in states:
        print(json.dumps(state.document()) if args.json else "\n".join(acceleration_lines(state)))
    return damaged[0].exit_code if damaged else 0
