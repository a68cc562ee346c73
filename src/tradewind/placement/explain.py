"""Reasons why each flow takes its path: what limits its rate, and why it does not take a faster path."""

from __future__ import annotations

from typing import Literal

from tradewind.model.flows import CongestionControl
from tradewind.model.records import dataclass
from tradewind.placement.paths import Paths, paths_of
from tradewind.placement.plan import FlowPlan, PlacementPlan
from tradewind.placement.problem import Flow, PlacementProblem
from tradewind.placement.tcp import loss_limited_mbps, part_of_loss

__all__ = ["FlowReason", "Limit", "Obstacle", "reasons_of"]

Limit = Literal[
    "the last mile",
    "its share of the last mile",
    "the distance to the destination",
    "the loss on the path to the destination",
    "the distance to the first proxy",
    "the loss on the path to the first proxy",
    "the distance from the last proxy",
    "the loss on the path from the last proxy",
    "the distance between the proxies",
    "the loss between the proxies",
    "the proxy's capacity",
    "the limit per flow",
]
Obstacle = Literal["budget", "room", "better use"]
"""Why a flow does not take a faster path: the budget has too little left; the proxies have no room for it; or the money
and room that it needs shorten the total more elsewhere.
"""
SAME = 1e-6
"""Relative; rates that differ by less are equal."""


@dataclass(frozen=True, slots=True)
class FlowReason:
    """The limit of a flow on its path, and the fastest path that exists for it."""

    id: str
    limit: Limit
    fastest_path: tuple[str, ...]
    """Regions of the fastest path; the one with the fewest proxies if several are as fast."""
    fastest_fct_s: float
    obstacle: Obstacle | None
    """None if the flow takes a path as fast as any."""
    more_cents: float
    """Cost of the fastest path beyond that of the flow's own one: egress, and setup of instances not in use yet."""

    def is_fastest(self, flow: FlowPlan) -> bool:
        """Return whether a flow takes a path as fast as any."""
        return flow.fct_s <= self.fastest_fct_s * (1 + SAME)


def reasons_of(plan: PlacementPlan, problem: PlacementProblem) -> tuple[FlowReason, ...]:
    """Return the reason of each flow of a plan."""
    paths = paths_of(problem)
    return tuple(_reason(paths, number, flow, plan) for number, flow in enumerate(plan.flows))


def _reason(paths: Paths, number: int, flow: FlowPlan, plan: PlacementPlan) -> FlowReason:
    problem, fct_s = paths.problem, paths.fct_s[number]
    least_s = float(fct_s.min())
    fastest = next(path for path in range(len(fct_s)) if fct_s[path] <= least_s * (1 + SAME))
    names = tuple(problem.regions[region].name for region in paths.regions[fastest])
    obstacle, more_cents = _obstacle(paths, number, flow, fastest, plan)
    return FlowReason(flow.id, _limit(paths, number, flow), names, least_s, obstacle, more_cents)


def _obstacle(
    paths: Paths, number: int, flow: FlowPlan, fastest: int, plan: PlacementPlan
) -> tuple[Obstacle | None, float]:
    """Return why a flow does not take its fastest path, and what that would cost beyond its own path."""
    if flow.fct_s <= paths.fct_s[number, fastest] * (1 + SAME):
        return None, 0.0
    own = {(proxy.region, proxy.instance) for proxy in flow.path}
    rate_mbps, has_room = float(paths.rate_mbps[number, fastest]), True
    more_cents = float(paths.egress_cents[number, fastest]) - flow.cents
    for region in (paths.problem.regions[at] for at in paths.regions[fastest]):
        used = [load for load in plan.instances if load.region == region.name]
        free = [
            region.capacity_mbps - load.load_mbps + (flow.rate_mbps if (load.region, load.instance) in own else 0.0)
            for load in used
        ]
        if any(rate_mbps <= room_mbps * (1 + SAME) for room_mbps in free):
            continue
        has_room = has_room and len(used) < region.max_instances
        more_cents += region.setup_cents
    if not has_room:
        return "room", more_cents
    return "better use" if plan.cost_cents + more_cents <= plan.budget_cents * (1 + SAME) else "budget", more_cents


def _limit(paths: Paths, number: int, planned: FlowPlan) -> Limit:
    """Return the first limit that the flow's rate has reached, those that money cannot change first."""
    problem = paths.problem
    flow, share_mbps = problem.flows[number], float(paths.last_mile_mbps[number])
    names = [region.name for region in problem.regions]
    at = [names.index(proxy.region) for proxy in planned.path]
    window, control = problem.edge_window_of(flow), problem.proxy_congestion_control
    limits: list[tuple[Limit, float]] = [
        ("the last mile", min(flow.src_last_mile_mbps, flow.dst_last_mile_mbps)),
        ("its share of the last mile", share_mbps),
    ]
    if not at:
        limits += [
            ("the distance to the destination", _mbps(window, flow.rtt_direct_ms)),
            ("the loss on the path to the destination", _loss_mbps(flow, flow.congestion_control, flow.rtt_direct_ms)),
        ]
    else:
        to_first, from_last = float(flow.rtt_to_region_ms[at[0]]), float(flow.rtt_from_region_ms[at[-1]])
        limits += [
            ("the limit per flow", problem.per_flow_proxy_limit_mbps),
            ("the proxy's capacity", min(problem.regions[region].capacity_mbps for region in at)),
            ("the distance to the first proxy", _mbps(window, to_first)),
            ("the loss on the path to the first proxy", _loss_mbps(flow, flow.congestion_control, to_first)),
            ("the distance from the last proxy", _mbps(window, from_last)),
            ("the loss on the path from the last proxy", _loss_mbps(flow, control, from_last)),
        ]
    if len(at) == 2:
        between = float(problem.rtt_ms[at[0]][at[1]])
        limits += [
            ("the distance between the proxies", _mbps(problem.cloud_window_bytes, between)),
            ("the loss between the proxies", _loss_mbps(flow, control, between)),
        ]
    return min(limits, key=lambda limit: limit[1])[0]


def _mbps(window_bytes: float, rtt_ms: float) -> float:
    return window_bytes * 8 / 1e3 / rtt_ms if rtt_ms > 0 else float("inf")


def _loss_mbps(flow: Flow, control: CongestionControl, rtt_ms: float) -> float:
    part = rtt_ms / flow.rtt_direct_ms if flow.rtt_direct_ms > 0 else 1.0
    return loss_limited_mbps(control, rtt_ms, part_of_loss(flow.loss, part))
