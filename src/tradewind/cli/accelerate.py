"""`tradewind accelerate`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from tradewind.cli import accelerate_generate
from tradewind.cli.arguments import typed
from tradewind.errors import UsageError
from tradewind.model.units import parse_duration_s

HELP = """\
Decide which TCP flows go through split proxies in the cloud, and through which, so that the sum of their completion
times is as small as possible within a budget. The problem file has regions, prices, flows and the budget. Nothing is
started.

generate prints a problem file of a typical use case, with random hosts near random regions."""
USAGE = "[OPTION]… plan --problem FILE | generate CASE"
EXAMPLES = """\
  tradewind accelerate plan --problem flows.json
  tradewind accelerate plan --problem flows.json --algorithm exact --time-limit 1min
  tradewind accelerate plan --problem flows.json --explain
  tradewind accelerate plan --problem flows.json --frontier --json
  tradewind accelerate generate many-to-many --flows 30 --seed 7 | tradewind accelerate plan --problem -"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, the problem, the algorithm and what to show."""
    parser.add_argument("action", metavar="ACTION", choices=["plan", "generate"], help="plan or generate")
    parser.add_argument("--problem", metavar="FILE", help="plan: problem file, as JSON; - for standard input")
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
    accelerate_generate.add_arguments(parser)


def run(args: Namespace) -> int:
    """Place the proxies of a problem file and show the plan, or print the problem file of a use case."""
    if args.action == "generate":
        if args.problem is not None:
            raise UsageError("--problem is only for accelerate plan", hint="leave it out")
        return accelerate_generate.run(args)
    if taken := next((name for name in accelerate_generate.OPTIONS if getattr(args, name) not in (None, False)), None):
        option = "CASE" if taken == "case" else f"--{taken.replace('_', '-')}"
        raise UsageError(f"{option} is only for accelerate generate", hint="leave it out")
    if args.problem is None:
        raise UsageError("missing --problem", hint="`tradewind accelerate --help` shows the usage")
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
