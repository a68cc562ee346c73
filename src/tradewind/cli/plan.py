"""`tradewind plan`."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.cli.arguments import typed
from tradewind.errors import UsageError
from tradewind.model.amounts import parse_rate_gbps, parse_usd, parse_volume_gb
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.overlay import OverlayPlan
from tradewind.model.overlay_document import plan_document
from tradewind.model.region import Region
from tradewind.model.units import parse_duration_s

if TYPE_CHECKING:
    from tradewind.planner.frontier import Frontier
    from tradewind.planner.plan import Transfer

HELP = """\
Plans a transfer between two regions: over which relays, with which machines, how fast and for how much. Nothing is
started and nothing is asked of any cloud."""
USAGE = "[OPTION]… SRC DST | --problem FILE"
EXAMPLES = """\
  tradewind plan aws:us-east-1 gcp:europe-west4 --volume 5TB --min-throughput 20Gbit/s
  tradewind plan azure:eastus aws:ap-northeast-1 --volume 16GB --max-cost 1.60USD --max-vms 4 --compare
  tradewind plan aws:us-east-1 azure:uksouth --volume 1TB --deadline 30min --explain --plot plan.svg
  tradewind plan --problem problem.json --json"""

#: A frontier of the whole catalog may take minutes to prove; pieces not proven by then are shown as such.
FRONTIER_SOLVES_MAX = 16
FRONTIER_SOLVE_S = 5.0


def add_arguments(parser: ArgumentParser) -> None:
    """Regions or a problem file, the goal, limits, and what to show."""
    parser.add_argument("source", metavar="SRC", nargs="?", help="source region, e.g. aws:us-east-1")
    parser.add_argument("destination", metavar="DST", nargs="?", help="destination region")
    parser.add_argument("--problem", metavar="FILE", help="a self-contained problem file instead of SRC, DST and goal")
    parser.add_argument("--volume", metavar="SIZE", type=typed(parse_volume_gb), help="how much (default 100GB)")
    goal = parser.add_argument_group("goal (default: --soonest)").add_mutually_exclusive_group()
    goal.add_argument(
        "--min-throughput", metavar="RATE", type=typed(parse_rate_gbps), help="cheapest at at least this rate"
    )
    goal.add_argument("--max-cost", metavar="USD", type=typed(parse_usd), help="fastest for at most this, e.g. 5USD")
    goal.add_argument("--deadline", metavar="TIME", type=typed(parse_duration_s), help="cheapest within this time")
    goal.add_argument("--cheapest", action="store_true", help="cheapest at any rate")
    goal.add_argument("--fastest", action="store_true", help="fastest at any cost")
    goal.add_argument("--soonest", action="store_true", help="done soonest, the machines' start included")
    parser.add_argument("--exactly", action="store_true", help="with --min-throughput: exactly this rate")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-vms", metavar="N", type=int, help="machines per region (default 8)")
    limits.add_argument("--vm-type", metavar="TYPE", action="append", help="only this machine type; can be repeated")
    limits.add_argument("--spot", action="store_true", help="spot machines too")
    shown = parser.add_argument_group("what to show")
    shown.add_argument("--compare", action="store_true", help="beside direct, RON and GridFTP")
    shown.add_argument("--explain", action="store_true", help="what binds, and what one more machine or 10%% would buy")
    shown.add_argument("--frontier", action="store_true", help="every efficient pair of cost and rate")
    shown.add_argument(
        "--plot", metavar="FILE", type=typed(parse_plot), help="draw frontier and map to FILE, a name ending in .svg"
    )


def parse_plot(text: str) -> str:
    """The name of a picture. Raises UsageError unless it ends in `.svg`."""
    if not text.endswith(".svg"):
        raise UsageError(f"only SVG is drawn, not {text}", hint="end the name in .svg")
    return text


def run(args: Namespace) -> int:
    """Plans and shows."""
    from tradewind.planner.plan import InfeasibleGoal, answer_goal

    started_s = time.perf_counter()
    transfer, goal = _problem(args) if args.problem else _asked(args)
    try:
        plan = answer_goal(transfer, goal)
    except InfeasibleGoal as error:
        if not args.json:
            raise
        nearest = plan_document(error.nearest) if error.nearest else None
        print(json.dumps({"status": "infeasible", "because": error.because, "nearest": nearest}))
        return error.exit_code
    plan = replace(plan, solve_s=time.perf_counter() - started_s)
    frontier = _frontier(transfer) if args.frontier or args.plot else None
    if args.json:
        print(json.dumps(_document(args, transfer, plan, frontier)))
    else:
        _show(args, transfer, plan, frontier)
    if args.plot and frontier is not None:
        _plot(args, transfer, plan, frontier)
    return 0


def _asked(args: Namespace) -> tuple[Transfer, Goal]:
    from tradewind.catalog.load import catalog_folder, load_catalog
    from tradewind.planner.network import Limits
    from tradewind.planner.plan import prepare

    if not args.source or not args.destination:
        raise UsageError("a plan needs a source and a destination region", hint="or a --problem file")
    if args.exactly and args.min_throughput is None:
        raise UsageError("--exactly goes with --min-throughput")
    if args.max_vms is not None and args.max_vms < 1:
        raise UsageError(f"--max-vms must be at least 1, not {args.max_vms}")
    limits = Limits(machines_per_region=args.max_vms or 8, spot=args.spot, machine_types=args.vm_type)
    catalog = load_catalog(catalog_folder())
    if args.vm_type:
        known = {o.machine.name for of in catalog.offers.values() for o in of}
        for name in args.vm_type:
            if name not in known:
                raise UsageError(f"unknown machine type {name}", hint=f"known are {', '.join(sorted(known))}")
    source, destination = region_of(args.source), region_of(args.destination)
    return prepare(catalog, source, destination, args.volume or 100.0, limits), _goal(args)


def region_of(text: str) -> Region:
    """A region as typed. Raises UsageError."""
    try:
        return Region.parse(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _goal(args: Namespace) -> Goal:
    if args.min_throughput is not None:
        return MinThroughput(args.min_throughput, args.exactly)
    if args.max_cost is not None:
        return MaxCost(args.max_cost)
    if args.deadline is not None:
        return Deadline(args.deadline)
    return Cheapest() if args.cheapest else Fastest() if args.fastest else Soonest()


def _problem(args: Namespace) -> tuple[Transfer, Goal]:
    from tradewind.catalog.problem import read_problem
    from tradewind.planner.network import Limits
    from tradewind.planner.plan import prepare

    if args.source:
        raise UsageError("a --problem file names source and destination itself")
    problem = read_problem(Path(args.problem))
    limits = Limits(problem.machines_per_region, connections_per_machine=problem.connections_per_machine)
    transfer = prepare(
        problem.catalog, problem.source, problem.destination, problem.volume_gb, limits, boot_s=problem.boot_s
    )
    return transfer, problem.goal


def _document(args: Namespace, transfer: Transfer, plan: OverlayPlan, frontier: Frontier | None) -> dict[str, object]:
    document: dict[str, object] = plan_document(plan)
    if args.compare:
        from tradewind.planner.compare import compare

        document["compare"] = [{"name": a.name, **plan_document(a.plan)} for a in compare(transfer, plan)]
    if args.explain:
        from tradewind.planner.whatif import what_would_help

        document["would_help"] = [
            {"change": o.change, "gain": o.gain, "plan": plan_document(o.plan)} for o in what_would_help(transfer, plan)
        ]
    if args.frontier and frontier is not None:
        document["frontier"] = [
            {
                "from": {"gbps": s.rate_from_gbps, "usd": s.cost_from_usd},
                "to": {"gbps": s.rate_to_gbps, "usd": s.cost_to_usd},
                "proven": s.proven,
            }
            for s in frontier.segments
        ]
    return document


def _show(args: Namespace, transfer: Transfer, plan: OverlayPlan, frontier: Frontier | None) -> None:
    from tradewind.cli import plan_text

    lines = plan_text.plan_lines(plan)
    if args.explain:
        from tradewind.planner.whatif import what_would_help

        lines += plan_text.explain_lines(plan, what_would_help(transfer, plan))
    if args.compare:
        from tradewind.planner.compare import compare

        lines += plan_text.compare_lines(compare(transfer, plan))
    if args.frontier and frontier is not None:
        lines += plan_text.frontier_lines(frontier)
    print("\n".join(lines))
    sys.stdout.flush()


def _frontier(transfer: Transfer) -> Frontier:
    from tradewind.planner.plan import trace_transfer

    hasty = replace(transfer, settings=replace(transfer.settings, time_limit_s=FRONTIER_SOLVE_S))
    return trace_transfer(hasty, solves_max=FRONTIER_SOLVES_MAX)


def _plot(args: Namespace, transfer: Transfer, plan: OverlayPlan, frontier: Frontier) -> None:
    from tradewind.cli.plan_picture import draw
    from tradewind.planner.baseline import direct, ron

    marks = [(name, made) for name, made in (("direct", direct(transfer)), ("RON", ron(transfer))) if made]
    picture = draw(plan, frontier, marks, transfer.catalog.places)
    Path(args.plot).write_text(picture, encoding="utf-8")
    print(f"drawn to {args.plot}", file=sys.stderr)
