"""Plans side by side, as Table 2 of the Skyplane paper has them."""

from __future__ import annotations

from dataclasses import dataclass

from tradewind.errors import InfeasibleGoal
from tradewind.model.goal import Cheapest, Fastest, Goal, MaxCost, MinThroughput
from tradewind.model.overlay import OverlayPlan
from tradewind.planner.baseline import direct, gridftp, ron
from tradewind.planner.plan import Transfer, answer_goal

__all__ = ["Alternative", "compare"]


@dataclass(frozen=True)
class Alternative:
    """One line of the comparison."""

    name: str
    plan: OverlayPlan


def compare(transfer: Transfer, chosen: OverlayPlan) -> list[Alternative]:
    """The baselines, the chosen plan, and the two ends of what the planner can do."""
    baselines = [
        ("gridftp (direct, 1 machine)", gridftp(transfer)),
        ("direct", direct(transfer)),
        ("ron", ron(transfer)),
    ]
    lines = [Alternative(name, plan) for name, plan in baselines if plan is not None]
    lines.append(Alternative(f"tradewind, {chosen.goal}", chosen))
    straight = next((line.plan for line in lines if line.name == "direct"), None)
    wanted: list[Goal] = [Cheapest(), Fastest()]
    if straight is not None:
        wanted += [MinThroughput(straight.throughput_gbps), MaxCost(straight.cost.total_usd)]
    for goal in wanted:
        try:
            lines.append(Alternative(f"tradewind, {goal}", answer_goal(transfer, goal)))
        except InfeasibleGoal:
            continue
    unique: dict[str, Alternative] = {line.name: line for line in lines}
    return list(unique.values())
