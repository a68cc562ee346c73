"""`tradewind accelerate replan`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from tradewind.errors import UsageError

OPTIONS = ("flows",)
ARGUMENTS = "ID"


def add_arguments(parser: ArgumentParser) -> None:
    """Add nothing: all options of this action belong to others, too."""


def run(args: Namespace) -> int:
    """Place the flows of a running acceleration again, or those of another file, and move new connections there."""
    from tradewind.engine.accelerations import Accelerations
    from tradewind.engine.engine import Engine
    from tradewind.render.acceleration import acceleration_lines

    if len(args.arguments) > 1:
        raise UsageError("accelerate replan takes one id", hint="leave out the others")
    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        book = Accelerations(engine.control)
        state = book.replan(book.one(next(iter(args.arguments), None)).id, args.flows)
    print(json.dumps(state.document()) if args.json else "\n".join(acceleration_lines(state)))
    return 0
