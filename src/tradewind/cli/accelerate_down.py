"""`tradewind accelerate down`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from tradewind.cli.arguments import typed
from tradewind.errors import UsageError
from tradewind.model.units import parse_duration_s

OPTIONS = ("drain",)
ARGUMENTS = "ID"
DRAIN_S = 10.0
#: A gateway drains for at most a day; a user who waits for a command, for less.
DRAIN_S_MAX = 300.0


def add_arguments(parser: ArgumentParser) -> None:
    """Add the time to drain."""
    parser.add_argument(
        "--drain",
        metavar="TIME",
        type=typed(parse_duration_s),
        help="down: time for open connections to end before they are reset (default 10s, at most 5min)",
    )


def run(args: Namespace) -> int:
    """Drain an acceleration, end its machines, and show what it cost."""
    from tradewind.engine.accelerations import Accelerations
    from tradewind.engine.engine import Engine
    from tradewind.render.acceleration import acceleration_lines

    drain_s = DRAIN_S if args.drain is None else args.drain
    if len(args.arguments) > 1 or not 0 <= drain_s <= DRAIN_S_MAX:
        raise UsageError("accelerate down takes one id, and drains for at most 5 min", hint="for example --drain 30s")
    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        state = Accelerations(engine.control).down(next(iter(args.arguments), None), drain_s)
    print(json.dumps(state.document()) if args.json else "\n".join(acceleration_lines(state)))
    return 0
