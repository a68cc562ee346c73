"""`--via` and the goals of a transfer as a request to the engine, and the question before money is spent."""

from __future__ import annotations

import sys
from argparse import Namespace

from tradewind.engine.proposal import Proposal, Request
from tradewind.engine.request import Options
from tradewind.errors import UsageError

__all__ = ["agree", "request_of", "show_proposal"]

#: A plan that costs more than this is asked about on a terminal, unless -y or a ceiling was given.
ASK_ABOVE_USD = 1.0


def request_of(args: Namespace, options: Options) -> Request:
    """Return the request of a transfer's arguments. Raises UsageError for options that exclude each other."""
    from tradewind.cli.plan_preview import goal_options

    request = Request(args.sources, args.destinations, options, args.verb, args.topology, args.sky, args.via)
    if args.via == "local":
        if args.sky is not None or args.replan:
            raise UsageError(f"--{'replan' if args.sky is None else 'sky'} goes with --via sky")
        return request
    from dataclasses import replace

    from tradewind.model.goal import Deadline, MinThroughput

    goals = goal_options(args)
    if len(goals) > 1:
        raise UsageError(f"one goal at a time, not {' and '.join(goals)}")
    kind, usd = args.max_cost or (None, None)
    goal = None if args.min_throughput is None else MinThroughput(args.min_throughput)
    return replace(
        request,
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
