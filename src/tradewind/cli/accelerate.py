"""`tradewind accelerate`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from tradewind.cli.arguments import typed
from tradewind.model.units import parse_duration_s

HELP = """\
Decide which TCP flows go through split proxies in the cloud, and through which, so that the sum of their completion
times is as small as possible within a budget. The problem file has regions, prices, flows and the budget. Nothing is
started."""
USAGE = "[OPTION]… plan --problem FILE"
EXAMPLES = """\
  tradewind accelerate plan --problem flows.json
  tradewind accelerate plan --problem flows.json --algorithm exact --time-limit 1min
  tradewind accelerate plan --problem flows.json --explain
  tradewind accelerate plan --problem flows.json --frontier --json"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, the problem, the algorithm and what to show."""
    parser.add_argument("action", metavar="ACTION", choices=["plan"], help="plan")
    parser.add_argument("--problem", metavar="FILE", required=True, help="problem file, as JSON")
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        default="auto",
        help="auto (default); f-fct, f-cost, 1p, 2p, 2p-rb of the CloudPilot paper; exact",
    )
    parser.add_argument(
        "--time-limit",
        metavar="TIME",
        type=typed(parse_duration_s),
        help="time for auto (default 4s, more for more than 100 flows) and for exact (default 1min)",
    )
    parser.add_argument(
        "--explain", action="store_true", help="show what limits each flow, and what one dollar more would save"
    )
    parser.add_argument("--frontier", action="store_true", help="show the total time for other budgets, too")


def run(args: Namespace) -> int:
    """Place the proxies of a problem file and show the plan."""
    from tradewind.engine.engine import Engine

    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        report = engine.place(
            args.problem,
            args.algorithm,
            time_limit_s=args.time_limit,
            explain=args.explain,
            frontier=args.frontier,
        )
    if args.json:
        print(json.dumps(report.document()))
    else:
        print("\n".join(report.lines()))
    return 0
