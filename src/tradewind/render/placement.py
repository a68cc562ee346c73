"""A placement of split proxies in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tradewind.model.records import dataclass
from tradewind.model.units import format_count, format_duration, format_usd
from tradewind.placement.explain import FlowReason
from tradewind.placement.plan import FlowPlan, PlacementPlan

__all__ = ["PlacementReport"]

CENTS_PER_USD = 100.0
BAR_WIDTH = 40


@dataclass(frozen=True, slots=True)
class PlacementReport:
    """A plan, and what a user asked to know about it."""

    plan: PlacementPlan
    reasons: tuple[FlowReason, ...] = ()
    """Why each flow takes its path, if that was asked."""
    next_dollar: PlacementPlan | None = None
    """The plan with one dollar more, if that was asked."""
    frontier: tuple[PlacementPlan, ...] = ()
    """Plans for rising budgets, if that was asked."""

    def document(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        document = self.plan.document()
        if self.next_dollar is not None:
            document["explain"] = {
                "flows": [
                    {
                        "id": reason.id,
                        "limit": reason.limit,
                        "fastest_path": list(reason.fastest_path),
                        "fastest_fct_s": reason.fastest_fct_s,
                    }
                    for reason in self.reasons
                ],
                "next_dollar_saves_s": self._next_dollar_s,
            }
        if self.frontier:
            document["frontier"] = [
                {"budget_cents": plan.budget_cents, "cost_cents": plan.cost_cents, "total_fct_s": plan.total_fct_s}
                for plan in self.frontier
            ]
        return document

    def lines(self) -> Iterator[str]:
        """Yield the report, line by line."""
        plan = self.plan
        proxies = format_count(len(plan.instances), "proxy", "proxies")
        flows = format_count(len(plan.flows), "flow")
        yield f"placed    {flows} over {proxies} in {_regions(plan)}, by {plan.algorithm}"
        yield (
            f"time      {format_duration(plan.total_fct_s)} for all flows together, "
            f"{format_duration(plan.direct_total_fct_s)} without proxies: {plan.acceleration:.2f} times as fast"
        )
        yield f"cost      {_usd(plan.cost_cents)} of {_usd(plan.budget_cents)}"
        if plan.gap is not None:
            yield f"proven    no placement is more than {plan.gap:.1%} faster"
        yield from self._flow_lines()
        if self.next_dollar is not None:
            yield f"one dollar more saves {format_duration(self._next_dollar_s)} of all flows together"
        yield from self._frontier_lines()

    @property
    def _next_dollar_s(self) -> float:
        assert self.next_dollar is not None
        return max(0.0, self.plan.total_fct_s - self.next_dollar.total_fct_s)

    def _flow_lines(self) -> Iterator[str]:
        reasons = {reason.id: reason for reason in self.reasons}
        width = max((len(flow.id) for flow in self.plan.flows), default=0)
        for flow in self.plan.flows:
            line = (
                f"  {flow.id:<{width}}  {format_duration(flow.fct_s)} instead of {format_duration(flow.direct_fct_s)}, "
                f"{flow.rate_mbps:.0f} Mbit/s, {_path(flow)}"
            )
            reason = reasons.get(flow.id)
            yield line if reason is None else f"{line}; {_why(flow, reason)}"

    def _frontier_lines(self) -> Iterator[str]:
        if not self.frontier:
            return
        yield "budget      all flows together"
        longest_s = max(plan.total_fct_s for plan in self.frontier)
        for plan in self.frontier:
            bar = "█" * round(BAR_WIDTH * plan.total_fct_s / longest_s) if longest_s > 0 else ""
            yield f"  {_usd(plan.budget_cents):>8}  {format_duration(plan.total_fct_s):>9}  {bar}"


def _why(flow: FlowPlan, reason: FlowReason) -> str:
    if reason.is_fastest(flow):
        return f"limited by {reason.limit}, and no path is faster"
    faster = " → ".join(reason.fastest_path) or "direct"
    return f"limited by {reason.limit}; {faster} would take {format_duration(reason.fastest_fct_s)}"


def _path(flow: FlowPlan) -> str:
    if not flow.path:
        return "direct"
    return "over " + " → ".join(f"{proxy.region}/{proxy.instance}" for proxy in flow.path)


def _regions(plan: PlacementPlan) -> str:
    return format_count(len({load.region for load in plan.instances}), "region")


def _usd(cents: float) -> str:
    return format_usd(cents / CENTS_PER_USD)
