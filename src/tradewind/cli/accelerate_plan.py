"""`tradewind accelerate plan`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from tradewind.cli.arguments import typed
from tradewind.errors import UsageError
from tradewind.model.units import parse_duration_s

OPTIONS = ("problem", "algorithm", "time_limit", "explain", "frontier")
WORDS = None


def add_arguments(parser: ArgumentParser) -> None:
    """Add the problem, the algorithm and what to show."""
    parser.add_argument("--problem", metavar="FILE", help="plan: problem file, as JSON")
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        help="plan: auto (default); f-fct, f-cost, 1p, 2p, 2p-rb of the CloudPilot paper; exact",
    )
    parser.add_argument(
        "--time-limit",
        metavar="TIME",
        type=typed(parse_duration_s),
        help="plan: time for auto (default 4s, more for more than 100 flows) and for exact (default 1min)",
    )
    parser.add_argument(
        "--explain", action="store_true", help="plan: show what limits each flow, and what one dollar more would save"
    )
    parser.add_argument("--frontier", action="store_true", help="plan: show the total time for other budgets, too")


def run(args: Namespace) -> int:
    """Place the proxies of a problem file and show the plan."""
    from tradewind.engine.engine import Engine

    if args.problem is None:
        raise UsageError("accelerate plan needs --problem", hint="for example --problem problem.json")
    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        report = engine.place(
            args.problem,
            args.algorithm or "auto",
            time_limit_s=args.time_limit,
            explain=args.explain,
            frontier=args.frontier,
        )
    if args.json:
        print(json.dumps(report.document()))
    else:
        print("\n".join(report.lines()))
    return 0
