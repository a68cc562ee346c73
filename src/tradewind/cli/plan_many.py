"""`tradewind plan` with several destinations: trees, and other ways to serve them all."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from tradewind.errors import InfeasibleGoal, UsageError
from tradewind.model.goal import Goal

if TYPE_CHECKING:
    from tradewind.planner.plan import Transfer
    from tradewind.render.plans import MulticastPlan, TransferFrontier


def run_many(args: Namespace, transfer: Transfer, goal: Goal) -> int:
    """Plans and shows. ``transfer`` comes from `planner.distribution.prepare_multicast`.

    Raises:
        UsageError: an option that only makes sense for one destination.
        InfeasibleGoal: no plan meets the goal, and no JSON was asked for.
    """
    from tradewind.cli.plan import draw, frontier_document, infeasible_document, offers_document
    from tradewind.engine.planning import planned_trees

    if args.topology_file:
        raise UsageError("--topology takes one destination", hint="leave it out, or plan for each alone")
    try:
        plan = planned_trees(transfer, goal, time.perf_counter())
    except InfeasibleGoal as error:
        if not args.json:
            raise
        print(json.dumps(infeasible_document(error)))
        return error.exit_code
    frontier = plan.frontier() if args.frontier or args.plot else None
    if args.json:
        document = {**plan.to_document(), "compare": [asdict(way) for way in plan.compare()]}
        document |= offers_document(plan) if args.explain else {}
        document |= frontier_document(frontier) if args.frontier and frontier else {}
        print(json.dumps(document))
    else:
        _show(args, plan, frontier)
    if args.plot:
        draw(args.plot, plan, frontier)
    return 0


def _show(args: Namespace, plan: MulticastPlan, frontier: TransferFrontier | None) -> None:
    from shutil import get_terminal_size

    from tradewind.render import words
    from tradewind.render.tree_words import alternative_lines, tree_lines

    columns = get_terminal_size((words.COLUMNS, 24)).columns
    lines = tree_lines(plan.overlay, columns)
    if args.explain:
        lines += words.explain_lines(plan.overlay, plan.would_help(), columns)
    lines += alternative_lines(plan.compare(), columns)
    if args.frontier and frontier is not None:
        lines += words.frontier_lines(frontier.frontier)
    print("\n".join(lines))
    sys.stdout.flush()
