"""`tradewind plan`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.cli.arguments import typed
from tradewind.cli.options import COST_EXAMPLES, parse_cost, parse_machines, parse_plot, parse_ratio
from tradewind.errors import InfeasibleGoal, UsageError
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.network_tier import check_network_tiers
from tradewind.model.overlay import plan_document
from tradewind.model.units import BYTES_PER_GB, parse_bytes, parse_duration_s, parse_rate_gbps, parse_volume_gb

if TYPE_CHECKING:
    from tradewind.engine.engine import PlanArguments
    from tradewind.render.plans import MulticastPlan, TransferFrontier, TransferPlan

HELP = """\
Plan a transfer between two regions: relays, machines, rate and cost. Several destinations all receive the whole volume,
along trees that share links. Planning starts no machine and sends no request to a cloud."""
USAGE = "[OPTION]… SRC DST… | --problem FILE"
EXAMPLES = """\
  tradewind plan aws:us-east-1 gcp:europe-west4 --volume 5TB --min-throughput 20Gbit/s
  tradewind plan azure:eastus aws:ap-northeast-1 --volume 16GB --max-cost 1.60USD --max-vms 4 --compare
  tradewind plan aws:us-east-1 azure:uksouth --volume 1TB --deadline 30min --explain --plot plan.svg
  tradewind plan aws:us-east-1 gcp:europe-west4 azure:uksouth aws:eu-west-1 --volume 1TB --min-throughput 5Gbit/s
  tradewind plan --problem problem.json --json"""

VOLUME_GB = 100.0
"""Default volume."""
SAID_BY_A_PROBLEM = {
    "source": "source",
    "volume": "volume_gb",
    "min_throughput": "goal",
    "max_cost": "goal",
    "deadline": "goal",
    "cheapest": "goal",
    "fastest": "goal",
    "soonest": "goal",
    "exactly": "goal",
    "max_vms": "vm_limit",
    "vm_type": "providers",
    "spot": "providers",
    "compression_ratio": "",
    "egress_used": "",
    "tier": "",
}
"""The key of a problem file that corresponds to each option; empty if there is none."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add regions or a problem file, the goal, limits, and output options."""
    parser.add_argument("source", metavar="SRC", nargs="?", help="source region, e.g. aws:us-east-1")
    parser.add_argument("destination", metavar="DST", nargs="?", help="destination region")
    parser.add_argument("more_destinations", metavar="DST2", nargs="*", help="further destinations, up to 8 in all")
    parser.add_argument(
        "--problem", metavar="FILE", help="use a problem file instead of SRC, DST, volume, goal and limits"
    )
    parser.add_argument("--volume", metavar="SIZE", type=typed(parse_volume_gb), help="volume to move (default 100GB)")
    _add_goal(parser)
    _add_limits(parser)
    _add_billing(parser)
    _add_output(parser)


def _add_goal(parser: ArgumentParser) -> None:
    goal = parser.add_argument_group("goal (default: --soonest)").add_mutually_exclusive_group()
    goal.add_argument(
        "--min-throughput", metavar="RATE", type=typed(parse_rate_gbps), help="cheapest at this minimum rate"
    )
    goal.add_argument(
        "--max-cost", metavar="USD", type=typed(parse_cost), help=f"fastest within this budget: {COST_EXAMPLES}"
    )
    goal.add_argument("--deadline", metavar="TIME", type=typed(parse_duration_s), help="cheapest within this time")
    goal.add_argument("--cheapest", action="store_true", help="cheapest at any rate")
    goal.add_argument("--fastest", action="store_true", help="fastest at any cost")
    goal.add_argument("--soonest", action="store_true", help="earliest finish, including the start of the machines")
    parser.add_argument("--exactly", action="store_true", help="with --min-throughput: exactly this rate")


def _add_limits(parser: ArgumentParser) -> None:
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--max-vms", metavar="N", type=typed(parse_machines), help="maximum machines per region (default 8)"
    )
    limits.add_argument("--vm-type", metavar="TYPE", action="append", help="only this machine type; can be repeated")
    limits.add_argument("--spot", action="store_true", help="also use spot machines")
    limits.add_argument(
        "--tier",
        metavar="TIER",
        type=typed(check_network_tiers),
        help="network tier of machines at Google and Azure: premium, standard, or best, the better one for each "
        "machine (default premium)",
    )
    limits.add_argument(
        "--effort",
        metavar="N",
        type=typed(parse_effort),
        default=1.0,
        help="multiply the limit on the planner's work, 0.1 to 100 (1 is about 3 CPU-s)",
    )


def _add_billing(parser: ArgumentParser) -> None:
    billed = parser.add_argument_group("billing")
    billed.add_argument(
        "--compression-ratio",
        metavar="R",
        type=typed(parse_ratio),
        help="bytes sent per byte of data, above 0 and at most 1; egress is billed for the bytes sent (default 1)",
    )
    billed.add_argument(
        "--objects",
        metavar="N",
        type=typed(parse_objects),
        help="number of objects, which determines the cost of requests (default: one per 16 MiB)",
    )
    billed.add_argument(
        "--egress-used",
        metavar="SIZE",
        type=typed(parse_used_gb),
        help="volume already sent this month, e.g. 12TB; volume tiers start from there",
    )


def _add_output(parser: ArgumentParser) -> None:
    shown = parser.add_argument_group("output")
    shown.add_argument(
        "--compare",
        action="store_true",
        help="compare with direct, RON and GridFTP, as in the Skyplane paper's Table 2",
    )
    shown.add_argument(
        "--explain",
        action="store_true",
        help="show what limits the plan, and the gain of one more machine or 10%% more money",
    )
    shown.add_argument("--frontier", action="store_true", help="show every efficient pair of cost and rate")
    shown.add_argument(
        "--topology",
        metavar="FILE",
        dest="topology_file",
        help="write the plan's gateways and routes to FILE, for `tradewind cp --topology`",
    )
    shown.add_argument(
        "--plot", metavar="FILE", type=typed(parse_plot), help="draw routes and frontier: FILE.svg or FILE.png"
    )


def parse_objects(text: str) -> int:
    """Parse a number of objects, at least 1. Raises UsageError."""
    try:
        count = int(text.replace(",", ""))
    except ValueError:
        raise UsageError(f"{text!r} is not a number of objects", hint="a whole number, for example 1000000") from None
    if count < 1:
        raise UsageError(f"at least 1 object, not {count}", hint="without --objects, objects of 16 MiB are assumed")
    return count


def parse_used_gb(text: str) -> float:
    """Parse the volume already sent [GB], which may be 0. Raises UsageError."""
    return parse_bytes(text) / BYTES_PER_GB


def parse_effort(text: str) -> float:
    """Parse an effort. Raises UsageError."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not an effort", hint="a number, for example 10") from None


def run(args: Namespace) -> int:
    """Compute a plan and show it."""
    from tradewind.render.plans import MulticastPlan

    try:
        plan = _plan(args)
    except InfeasibleGoal as error:
        if not args.json:
            raise
        print(json.dumps(infeasible_document(error)))
        return error.exit_code
    if args.topology_file and not isinstance(plan, MulticastPlan):
        _write_topology(args.topology_file, plan)
    if not args.json:
        _show(args, plan)
    frontier = plan.frontier() if args.frontier or args.plot else None
    if args.json:
        print(json.dumps(_document(args, plan, frontier)))
    elif args.frontier and frontier is not None:
        _show_frontier(frontier)
    if args.plot:
        _draw(args.plot, plan, frontier)
    return 0


def _plan(args: Namespace) -> TransferPlan | MulticastPlan:
    from tradewind.engine.engine import Engine

    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        if args.problem:
            _refuse_beside_a_problem(args)
            setting = f"{SAID_BY_A_PROBLEM['max_vms']} of the problem file"
            return engine.plan_problem(
                args.problem, effort=args.effort, single=bool(args.topology_file), machines_setting=setting
            )
        _check_regions(args)
        volume_gb = args.volume or VOLUME_GB
        asked: PlanArguments = {
            "volume_gb": volume_gb,
            "goal": _goal(args, volume_gb),
            "max_vms": args.max_vms,
            "vm_types": args.vm_type,
            "spot": args.spot,
            "effort": args.effort,
            "objects": args.objects,
            "compression_ratio": 1.0 if args.compression_ratio is None else args.compression_ratio,
            "egress_used_gb": args.egress_used or 0.0,
            "tier": args.tier or "premium",
            "sites": args.configuration.sites(),
        }
        destination: str = args.destination
        if args.more_destinations:
            return engine.plan(args.source, [destination, *args.more_destinations], **asked)
        return engine.plan(args.source, destination, **asked)


def _draw(path: str, plan: TransferPlan | MulticastPlan, frontier: TransferFrontier | None) -> None:
    """Write the picture and report its name. Raises UsageError if the file cannot be written."""
    plan.plot(path, frontier=frontier)
    print(f"plot written to {path}", file=sys.stderr)


def infeasible_document(error: InfeasibleGoal) -> dict[str, object]:
    """Return the JSON document for a goal that no plan meets."""
    nearest = plan_document(error.nearest) if error.nearest else None
    return {"status": "infeasible", "because": error.because, "hint": error.hint, "nearest": nearest}


def offers_document(plan: TransferPlan | MulticastPlan) -> dict[str, object]:
    """Return the JSON that `--explain` adds."""
    offers = [{"change": o.change, "gain": o.gain, "plan": plan_document(o.plan)} for o in plan.would_help()]
    return {"would_help": offers}


def frontier_document(frontier: TransferFrontier) -> dict[str, object]:
    """Return the JSON that `--frontier` adds."""
    pieces = [
        {
            "from": {"gbps": s.rate_from_gbps, "usd": s.cost_from_usd},
            "to": {"gbps": s.rate_to_gbps, "usd": s.cost_to_usd},
            "proven": s.proven,
            "gap": s.gap if isfinite(s.gap) else None,
        }
        for s in frontier.segments
    ]
    return {"frontier": pieces}


def _write_topology(path: str, plan: TransferPlan) -> None:
    """Write the topology. Raises TopologyError if the plan has more routes or connections than gateways accept."""
    from tradewind.engine.planning import topology_of

    document = topology_of(plan)
    try:
        Path(path).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    print(f"gateways and routes written to {path}", file=sys.stderr)


def _check_regions(args: Namespace) -> None:
    """Raise UsageError for missing regions, and for options that cannot be combined."""
    if not args.source or not args.destination:
        raise UsageError(
            "a plan needs a source and a destination region",
            hint="for example `tradewind plan aws:us-east-1 gcp:europe-west4`; or a --problem file",
        )
    if args.exactly and args.min_throughput is None:
        raise UsageError("--exactly needs --min-throughput", hint="for example --min-throughput 2Gbit/s --exactly")
    if args.topology_file and args.more_destinations:
        raise UsageError("--topology takes one destination", hint="leave it out, or plan for one destination at a time")


def _goal(args: Namespace, volume_gb: float) -> Goal:
    if args.min_throughput is not None:
        return MinThroughput(args.min_throughput, args.exactly)
    if args.max_cost is not None:
        kind, usd = args.max_cost
        return MaxCost(usd * volume_gb if kind == "usd_per_gb" else usd)
    if args.deadline is not None:
        return Deadline(args.deadline)
    return Cheapest() if args.cheapest else Fastest() if args.fastest else Soonest()


def _refuse_beside_a_problem(args: Namespace) -> None:
    """Raise UsageError for the first option that cannot be combined with --problem."""
    for name, key in SAID_BY_A_PROBLEM.items():
        given = getattr(args, name)
        if given is None or given is False:
            continue
        option = "SRC" if name == "source" else f"--{name.replace('_', '-')}"
        hint = f"change {key!r} in {args.problem}, or leave {option} out" if key else f"leave {option} out"
        raise UsageError(f"{option} cannot be combined with --problem: the problem file has all settings", hint=hint)


def _document(
    args: Namespace, plan: TransferPlan | MulticastPlan, frontier: TransferFrontier | None
) -> dict[str, object]:
    from tradewind.render.plans import MulticastPlan

    document: dict[str, object] = plan.to_document()
    if isinstance(plan, MulticastPlan):
        document["compare"] = [asdict(alternative) for alternative in plan.compare()]
    elif args.compare:
        document["compare"] = [{"name": a.name, "remark": a.remark, **plan_document(a.plan)} for a in plan.compare()]
    if args.explain:
        document |= offers_document(plan)
    if args.frontier and frontier is not None:
        document |= frontier_document(frontier)
    return document


def _show(args: Namespace, plan: TransferPlan | MulticastPlan) -> None:
    """Print the plan at once: a frontier may take minutes."""
    from shutil import get_terminal_size

    from tradewind.render import words

    columns = get_terminal_size((words.COLUMNS, 24)).columns
    lines, comparison = _plan_and_comparison(args, plan, columns)
    if args.explain:
        lines += words.explain_lines(plan.overlay, plan.would_help(), columns, catalog=plan.transfer.catalog)
    lines += comparison
    print("\n".join(lines))
    sys.stdout.flush()


def _show_frontier(frontier: TransferFrontier) -> None:
    from tradewind.render import words

    print("\n".join(words.frontier_lines(frontier.frontier)))
    sys.stdout.flush()


def _plan_and_comparison(
    args: Namespace, plan: TransferPlan | MulticastPlan, columns: int
) -> tuple[list[str], list[str]]:
    """Return the lines of the plan and those of the comparison. Plans for several destinations are always compared."""
    from tradewind.engine.planning import outruns_boot
    from tradewind.render import words
    from tradewind.render.plans import MulticastPlan
    from tradewind.render.tree_words import alternative_lines, tree_lines

    if isinstance(plan, MulticastPlan):
        return tree_lines(plan.overlay, columns), alternative_lines(plan.compare(), columns)
    lines = words.plan_lines(plan.overlay, columns)
    alone = outruns_boot(plan.transfer)
    if alone is not None:
        lines += ["", *words.without_machines_lines(alone, columns)]
    return lines, words.compare_lines(plan.compare(), columns) if args.compare else []
