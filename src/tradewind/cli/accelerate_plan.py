"""`tradewind accelerate plan`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tradewind.cli.arguments import typed
from tradewind.cli.flows_file import flows_file
from tradewind.cli.options import parse_plot
from tradewind.errors import UsageError
from tradewind.model.units import parse_duration_s

if TYPE_CHECKING:
    from tradewind.render.placement import PlacementReport

OPTIONS = ("problem", "flows", "write_problem", "algorithm", "time_limit", "explain", "frontier", "plot")
ARGUMENTS = "FLOWS"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the problem, the algorithm and what to show."""
    parser.add_argument("--problem", metavar="FILE", help="plan: problem file, as JSON; - for standard input")
    parser.add_argument(
        "--write-problem", metavar="FILE", help="plan: with --flows, also write the problem that is solved, as JSON"
    )
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        help="auto (default); f-fct, f-cost, 1p, 2p, 2p-rb of the CloudPilot paper; exact",
    )
    parser.add_argument(
        "--time-limit",
        metavar="TIME",
        type=typed(parse_duration_s),
        help="CPU time for auto (default 4s, more for more than 100 flows) and for exact (default 1min)",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="plan: show what limits each flow, why it takes no faster path, and what one dollar more would save",
    )
    parser.add_argument("--frontier", action="store_true", help="plan: show the total time for other budgets, too")
    parser.add_argument(
        "--plot",
        metavar="FILE",
        type=typed(parse_plot),
        help="plan: draw the total time over the budget: FILE.svg or FILE.png; implies --frontier",
    )


def run(args: Namespace) -> int:
    """Place the proxies of a problem or flows file and show the plan."""
    flows = flows_file(args)
    if (args.problem is None) == (flows is None):
        raise UsageError("accelerate plan needs either --flows or --problem", hint="for example --flows flows.toml")
    if args.write_problem and flows is None:
        raise UsageError("--write-problem needs --flows", hint="--problem names the file already")
    report = _placed(args, flows)
    if args.json:
        print(json.dumps(report.document()))
    else:
        print("\n".join(report.lines()))
    if args.plot:
        report.plot(args.plot)
        print(f"plot written to {args.plot}", file=sys.stderr)
    return 0


def _placed(args: Namespace, flows: str | None) -> PlacementReport:
    from tradewind.engine.engine import Engine

    wish = {"time_limit_s": args.time_limit, "explain": args.explain, "frontier": args.frontier or bool(args.plot)}
    algorithm = args.algorithm or "auto"
    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        if flows is None:
            return engine.place(args.problem, algorithm, **wish)
        sites = args.configuration.sites()
        return engine.place_flows(flows, algorithm, sites=sites, problem_file=args.write_problem, **wish)
