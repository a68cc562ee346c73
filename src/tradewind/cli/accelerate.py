"""`tradewind accelerate`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from tradewind.cli import accelerate_run
from tradewind.cli.arguments import typed
from tradewind.errors import UsageError
from tradewind.model.units import parse_duration_s

HELP = """\
Decide which TCP flows go through split proxies in the cloud, and through which, so that the sum of their completion
times is as small as possible within a budget. The problem file has regions, prices, flows and the budget. `plan` starts
nothing. `run` runs a command whose TCP connections go through a proxy; its exit code is the command's."""
USAGE = """[OPTION]… plan --problem FILE
       tradewind accelerate [OPTION]… run --through URL [--to HOST[:PORT]]… -- COMMAND [ARGUMENT]…"""
EXAMPLES = """\
  tradewind accelerate plan --problem flows.json
  tradewind accelerate plan --problem flows.json --algorithm exact --time-limit 1min
  tradewind accelerate plan --problem flows.json --explain
  tradewind accelerate plan --problem flows.json --frontier --json
  tradewind accelerate run --through socks5h://ann@proxy:1080 --token-file token --to data.example:443 -- curl -O URL"""
#: Words after `--` are a command's.
HAS_COMMAND = True


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, the problem, the algorithm and what to show."""
    parser.add_argument("action", metavar="ACTION", choices=["plan", "run"], help="plan or run")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", help="run: the command and its arguments, after --")
    parser.add_argument("--problem", metavar="FILE", help="plan: problem file, as JSON")
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
    accelerate_run.add_arguments(parser)


def run(args: Namespace) -> int:
    """Run a command, or place the proxies of a problem file and show the plan."""
    if args.action == "run":
        return accelerate_run.run(args)
    if args.arguments:
        raise UsageError("accelerate plan takes no arguments", hint="`tradewind accelerate --help` shows the usage")
    if args.problem is None:
        raise UsageError("missing --problem", hint="name the problem file with --problem FILE")
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
