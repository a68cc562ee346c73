"""A placement of split proxies in words and as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tradewind.errors import UsageError
from tradewind.model.records import dataclass
from tradewind.model.units import format_count, format_duration, format_usd
from tradewind.placement.explain import FlowReason
from tradewind.placement.plan import FlowPlan, PlacementPlan

if TYPE_CHECKING:
    from tradewind.render.picture import Picture

__all__ = ["PlacementReport"]

CENTS_PER_USD = 100.0
BAR_WIDTH = 40
WORTH_TUNING = 0.95
"""Tuning the ends is mentioned if all flows together then take at most this part of their time."""
CHANGED_MAX = 10
"""Most flows that are listed with the next dollar."""
CHANGED_PART = 1e-6
"""Relative; completion times that differ by less are equal."""


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
    tuned_total_fct_s: float | None = None
    """Time of all flows together with tuned ends and without proxies; None if it is not known."""

    def document(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        document = self.plan.document()
        if self.tuned_total_fct_s is not None:
            document["tuned_total_fct_s"] = self.tuned_total_fct_s
        if self.next_dollar is not None:
            document["explain"] = {
                "flows": [
                    {
                        "id": reason.id,
                        "limit": reason.limit,
                        "fastest_path": list(reason.fastest_path),
                        "fastest_fct_s": reason.fastest_fct_s,
                        "obstacle": reason.obstacle,
                        "more_cents": reason.more_cents,
                    }
                    for reason in self.reasons
                ],
                "next_dollar_saves_s": self._next_dollar_s,
                "next_dollar_flows": [
                    {"id": after.id, "path": [proxy.region for proxy in after.path], "fct_s": after.fct_s}
                    for _, after in self._next_dollar_flows
                ],
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
        if self.tuned_total_fct_s is not None and self.tuned_total_fct_s < plan.direct_total_fct_s * WORTH_TUNING:
            yield (
                f"free      {format_duration(self.tuned_total_fct_s)} without proxies if both ends get larger windows "
                "and bbr: `tradewind accelerate advise` measures and shows how"
            )
        yield f"cost      {_usd(plan.cost_cents)} of {_usd(plan.budget_cents)}"
        if plan.gap is not None:
            yield f"proven    {_proof(plan.gap)}"
        yield from self._flow_lines()
        if self.next_dollar is not None:
            yield from self._next_dollar_lines()
        yield from self._frontier_lines()

    def plot(self, path: str | os.PathLike[str] | None = None) -> Picture:
        """Draw the frontier; write it to `path` (`.svg`, or `.png` with the extra `plot`) if it is given.

        Raises:
            UsageError: no frontier was asked, another suffix, PNG without the extra, or a file that cannot be written.
        """
        from tradewind.render.placement_chart import placement_picture

        if not self.frontier:
            raise UsageError("this placement has no frontier to draw", hint="place with frontier=True")
        picture = placement_picture(self.plan, self.frontier)
        if path is not None:
            picture.save(path)
        return picture

    @property
    def _next_dollar_s(self) -> float:
        assert self.next_dollar is not None
        return max(0.0, self.plan.total_fct_s - self.next_dollar.total_fct_s)

    @property
    def _next_dollar_flows(self) -> list[tuple[FlowPlan, FlowPlan]]:
        """The flows that end earlier or later with one dollar more, before and after; those that gain most first."""
        if self.next_dollar is None or self._next_dollar_s <= 0:
            return []
        pairs = zip(self.plan.flows, self.next_dollar.flows, strict=True)
        changed = [(now, after) for now, after in pairs if abs(now.fct_s - after.fct_s) > CHANGED_PART * now.fct_s]
        return sorted(changed, key=lambda pair: pair[1].fct_s - pair[0].fct_s)

    def _next_dollar_lines(self) -> Iterator[str]:
        if self._next_dollar_s <= 0:
            yield "one dollar more saves nothing"
            return
        yield f"one dollar more saves {format_duration(self._next_dollar_s)} of all flows together"
        changed = self._next_dollar_flows
        for now, after in changed[:CHANGED_MAX]:
            yield f"  {now.id}  {format_duration(after.fct_s)} instead of {format_duration(now.fct_s)}, {_path(after)}"
        if len(changed) > CHANGED_MAX:
            yield f"  and {format_count(len(changed) - CHANGED_MAX, 'other flow')}"

    def _flow_lines(self) -> Iterator[str]:
        reasons = {reason.id: reason for reason in self.reasons}
        left_cents = max(0.0, self.plan.budget_cents - self.plan.cost_cents)
        width = max((len(flow.id) for flow in self.plan.flows), default=0)
        for flow in self.plan.flows:
            line = (
                f"  {flow.id:<{width}}  {format_duration(flow.fct_s)} instead of {format_duration(flow.direct_fct_s)}, "
                f"{flow.rate_mbps:.0f} Mbit/s, {_path(flow)}"
            )
            reason = reasons.get(flow.id)
            yield line if reason is None else f"{line}; {_why(flow, reason, left_cents)}"

    def _frontier_lines(self) -> Iterator[str]:
        if not self.frontier:
            return
        yield "budget      all flows together"
        longest_s = max(plan.total_fct_s for plan in self.frontier)
        for plan in self.frontier:
            bar = "█" * round(BAR_WIDTH * plan.total_fct_s / longest_s) if longest_s > 0 else ""
            yield f"  {_usd(plan.budget_cents):>8}  {format_duration(plan.total_fct_s):>9}  {bar}"


def _why(flow: FlowPlan, reason: FlowReason, left_cents: float) -> str:
    if reason.is_fastest(flow):
        return f"limited by {reason.limit}, and no path is faster"
    faster = " → ".join(reason.fastest_path) or "direct"
    return (
        f"limited by {reason.limit}; {faster} would take {format_duration(reason.fastest_fct_s)}, "
        f"{_obstacle(reason, left_cents)}"
    )


def _obstacle(reason: FlowReason, left_cents: float) -> str:
    if reason.obstacle == "room":
        return "but its proxies have no room for this flow"
    if reason.obstacle == "budget":
        return f"for {_usd(reason.more_cents)} more, but only {_usd(left_cents)} of the budget is left"
    return "but other flows gain more from the same money and capacity"


def _path(flow: FlowPlan) -> str:
    if not flow.path:
        return "direct"
    return "over " + " → ".join(f"{proxy.region}/{proxy.instance}" for proxy in flow.path)


def _regions(plan: PlacementPlan) -> str:
    return format_count(len({load.region for load in plan.instances}), "region")


def _proof(gap: float) -> str:
    """Return what is proven of a plan whose gap is a fraction of its time."""
    return "optimal" if f"{gap:.1%}" == "0.0%" else f"no placement is more than {gap:.1%} faster"


def _usd(cents: float) -> str:
    return format_usd(cents / CENTS_PER_USD)
