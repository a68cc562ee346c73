"""Plans side by side, as Table 2 of the Skyplane paper has them."""

from __future__ import annotations

from dataclasses import dataclass

from tradewind.errors import InfeasibleGoal
from tradewind.model.amounts import format_gbps, format_usd
from tradewind.model.goal import Cheapest, Fastest, Goal, MaxCost, MinThroughput
from tradewind.model.overlay import OverlayPlan
from tradewind.planner.baseline import direct, gridftp, ron
from tradewind.planner.plan import Transfer, answer_goal

__all__ = ["Alternative", "compare"]


@dataclass(frozen=True)
class Alternative:
    """One line of the comparison."""

    name: str
    """Baselines: `gridftp (direct, 1 machine)`, `direct`, `ron`. The paper's rows of these names, held against direct:
    `cost optimised`, `throughput optimised`. Others: `this plan`, `cheapest at any rate`, `fastest at any cost`."""
    plan: OverlayPlan
    remark: str = ""
    """What it is asked for, where the name does not say it."""


def compare(transfer: Transfer, chosen: OverlayPlan) -> list[Alternative]:
    """The baselines, the chosen plan, what betters direct, and the two ends of what the planner can do."""
    straight = direct(transfer)
    baselines = [("gridftp (direct, 1 machine)", gridftp(transfer)), ("direct", straight), ("ron", ron(transfer))]
    lines = [Alternative(name, plan) for name, plan in baselines if plan is not None]
    lines.append(Alternative("this plan", chosen, str(chosen.goal)))
    wanted: list[tuple[str, Goal, str]] = []
    if straight is not None:
        rate_gbps, usd = straight.throughput_gbps, straight.cost.total_usd
        at_its_rate = f"cheapest at direct's rate, {format_gbps(rate_gbps)} or more"
        for_its_cost = f"fastest for direct's cost, {format_usd(usd)} or less"
        wanted = [
            ("cost optimised", MinThroughput(rate_gbps), at_its_rate),
            ("throughput optimised", MaxCost(usd), for_its_cost),
        ]
    ends: list[Goal] = [Cheapest(), Fastest()]
    wanted += [(str(goal), goal, "") for goal in ends if goal != chosen.goal]
    for name, goal, remark in wanted:
        try:
            lines.append(Alternative(name, answer_goal(transfer, goal), remark))
        except InfeasibleGoal:
            continue
    return lines
