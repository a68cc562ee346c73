"""`tradewind plan` with several destinations: what is printed of trees, and of other ways to serve them all."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from tradewind.errors import UsageError
from tradewind.model.amounts import format_gbps, format_usd, format_volume
from tradewind.model.goal import Goal
from tradewind.model.overlay import DistributionTree, MulticastPlan
from tradewind.model.overlay_document import plan_document
from tradewind.model.region import Region
from tradewind.model.units import format_duration

if TYPE_CHECKING:
    from tradewind.planner.distribution import MulticastAlternative
    from tradewind.planner.plan import Transfer

PROVEN_GAP = 1e-6
"""A gap below this is rounding."""
GAP_SHOWN_MIN = 1e-4


def run_many(args: Namespace, transfer: Transfer, goal: Goal) -> int:
    """Plans and shows. ``transfer`` comes from `planner.distribution.prepare_multicast`.

    Raises:
        UsageError: an option that only makes sense for one destination.
        InfeasibleGoal: no plan meets the goal, and no JSON was asked for.
    """
    from tradewind.planner.distribution import answer_multicast, compare_multicast
    from tradewind.planner.plan import InfeasibleGoal

    asked = {"frontier": args.frontier, "plot": args.plot, "explain": args.explain, "topology": args.topology_file}
    for option, wanted in asked.items():
        if wanted:
            raise UsageError(f"--{option} takes one destination", hint="leave it out, or plan for each alone")
    started_s = time.perf_counter()
    try:
        plan = answer_multicast(transfer, goal)
    except InfeasibleGoal as error:
        if not args.json:
            raise
        nearest = plan_document(error.nearest) if error.nearest else None
        print(json.dumps({"status": "infeasible", "because": error.because, "nearest": nearest}))
        return error.exit_code
    plan = replace(plan, solve_s=time.perf_counter() - started_s)
    others = compare_multicast(transfer, plan)
    if args.json:
        print(json.dumps({**plan_document(plan), "compare": [asdict(line) for line in others]}))
    else:
        print("\n".join([*multicast_lines(plan), "", *alternative_lines(others)]))
    return 0


def multicast_lines(plan: MulticastPlan) -> list[str]:
    """Headline, trees and machines."""
    boot = f", {format_duration(plan.boot_s)} of it for machines to start" if plan.boot_s else ""
    proven = plan.optimal and plan.gap < PROVEN_GAP
    proof = "proven optimal" if proven else f"proven within {max(plan.gap, GAP_SHOWN_MIN):.2%} of the best"
    parts = [f"egress {format_usd(plan.cost.egress_usd)}", f"machines {format_usd(plan.cost.machines_usd)}"]
    if plan.cost.requests_usd:
        parts.append(f"requests {format_usd(plan.cost.requests_usd)}")
    lines = [
        f"{plan.source} → {', '.join(map(str, plan.destinations))}",
        f"{format_volume(plan.volume_gb)} to each: {plan.goal}",
        "",
        f"  rate      {format_gbps(plan.throughput_gbps)} to each",
        f"  time      {format_duration(plan.time_s)}{boot}",
        f"  cost      {format_usd(plan.cost.total_usd)}: {', '.join(parts)}",
        f"  plan      {proof}, in {plan.solve_s:.2f} s",
    ]
    for tree in plan.trees:
        lines += ["", f"  {tree.share:.1%} goes this way", *_branches(plan, tree, plan.source, "    ")]
    lines += ["", "  machines"]
    lines += [
        f"    {m.count:>3} × {m.offer.name:<22} {m.region!s:<28} {format_usd(m.offer.usd_per_hour)}/h each"
        for m in plan.machines
    ]
    if plan.binding:
        lines += ["", f"  limited by {plan.binding[0]}"]
    return lines


def _branches(plan: MulticastPlan, tree: DistributionTree, at: Region, indent: str) -> list[str]:
    """The part of a tree that hangs from a region, one region a line."""
    connections = {(e.src, e.dst): e.connections for e in plan.edges}
    onward = [dst for src, dst in tree.hops if src == at]
    lines = [f"{indent}{at}"] if at == plan.source else []
    for number, dst in enumerate(onward):
        last = number == len(onward) - 1
        mark = " ●" if dst in plan.destinations else ""
        lines.append(f"{indent}{'└' if last else '├'}─{connections[at, dst]}→ {dst}{mark}")
        lines += _branches(plan, tree, dst, indent + ("      " if last else "│     "))
    return lines


def alternative_lines(others: Sequence[MulticastAlternative]) -> list[str]:
    """The plan beside other ways to serve all destinations."""
    width = max(len(line.name) for line in others)
    head = f"  {'way':<{width}}  {'machines':>8}  {'at source':>9}  {'time':>13}  {'rate to each':>13}  {'cost':>10}"
    lines = [head]
    lines += [
        f"  {line.name:<{width}}  {line.machines:>8}  {line.source_machines:>9}  {format_duration(line.time_s):>13}"
        f"  {format_gbps(line.throughput_gbps):>13}  {format_usd(line.cost_usd):>10}  {line.remark}".rstrip()
        for line in others
    ]
    return lines
