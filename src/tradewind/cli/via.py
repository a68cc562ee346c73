"""`--via` and the goals of a transfer as a request to the engine, and the question before money is spent."""

from __future__ import annotations

import sys
from argparse import Namespace

from tradewind.engine.proposal import Proposal, Request
from tradewind.engine.request import Options
from tradewind.errors import UsageError
from tradewind.model.goal import Deadline, MinThroughput

__all__ = ["GOAL_OPTIONS", "agree", "goal_options", "request_of", "show_proposal"]

GOAL_OPTIONS = {"--max-cost", "--min-throughput", "--deadline"}

#: A plan that costs more than this is asked about on a terminal, unless -y or a ceiling was given.
ASK_ABOVE_USD = 1.0


def goal_options(args: Namespace) -> list[str]:
    """Return the options given that set a goal; more than one contradict each other."""
    given = {"--max-cost": args.max_cost, "--min-throughput": args.min_throughput, "--deadline": args.deadline}
    return [name for name, value in given.items() if value is not None]


def request_of(args: Namespace, options: Options) -> Request:
    """Return the request of a transfer's arguments. Raises UsageError for options that exclude each other."""
    goals = goal_options(args)
    if args.via == "local":
        if args.sky is not None or args.replan:
            raise UsageError(f"--{'replan' if args.sky is None else 'sky'} goes with --via sky")
        if args.topology is not None:
            others = [name for name in (*goals, *(["--max-vms"] if args.max_vms else [])) if name != "--max-cost"]
            if others:
                raise UsageError(f"{others[0]} and --topology cannot be combined", hint="leave one of them out")
        elif goals and len(args.destinations) != 1:
            raise UsageError(f"{goals[0]} plans for one destination", hint="give one DST, or --topology")
    if len(goals) > 1:
        raise UsageError(f"one goal at a time, not {' and '.join(goals)}")
    goal = None if args.min_throughput is None else MinThroughput(args.min_throughput)
    kind, usd = args.max_cost or (None, None)
    return Request(
        args.sources,
        args.destinations,
        options,
        args.verb,
        args.topology,
        args.sky,
        args.via,
        goal=goal if args.deadline is None else Deadline(args.deadline),
        ceiling_usd=usd if kind == "usd" else None,
        ceiling_usd_per_gb=usd if kind == "usd_per_gb" else None,
        machines_per_region=args.max_vms,
        replan=args.replan,
    )


def show_proposal(args: Namespace, proposal: Proposal) -> None:
    """Say what was decided without having been asked for; of a dry run also the plan."""
    if args.quiet or args.json:
        return
    for note in proposal.notes:
        print(f"note: {note}", file=sys.stderr)
    if args.dry_run and proposal.plan.overlay is not None:
        print(f"plan    {proposal.plan.overlay}", file=sys.stderr)


def agree(args: Namespace, proposal: Proposal) -> None:
    """Ask before a plan is paid for that costs more than ASK_ABOVE_USD. Raises UsageError for a no."""
    from tradewind.cli.transferring import confirm
    from tradewind.model.units import format_usd

    if proposal.cost_usd <= ASK_ABOVE_USD or args.yes or args.max_cost is not None or args.dry_run:
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        confirm(f"{proposal}. Spend {format_usd(proposal.cost_usd)}?")
