"""An independent check of a placement plan: plain arithmetic on the plan and the problem, without any solver."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tradewind.model.units import format_count
from tradewind.placement.check_shares import last_mile_shares_mbps
from tradewind.placement.plan import FlowPlan, PlacementPlan
from tradewind.placement.problem import Flow, PlacementProblem
from tradewind.placement.tcp import Hop, hop_mbps, part_of_loss

__all__ = ["placement_violations"]

TOLERANCE = 1e-6
"""Relative."""


def placement_violations(plan: PlacementPlan, problem: PlacementProblem) -> list[str]:
    """Return the faults of a plan, one line each; an empty list for a valid plan."""
    return [*_flows(plan, problem), *_instances(plan, problem), *_cost(plan, problem), *_totals(plan)]


def _flows(plan: PlacementPlan, problem: PlacementProblem) -> Iterator[str]:
    """Check that each flow is planned once, over at most two different regions, at the rate of its slowest hop."""
    if [flow.id for flow in plan.flows] != [flow.id for flow in problem.flows]:
        yield "the plan has other flows than the problem"
        return
    ends_mbps = last_mile_shares_mbps(problem)
    for planned, flow, ends in zip(plan.flows, problem.flows, ends_mbps, strict=True):
        names = [proxy.region for proxy in planned.path]
        if len(names) > 2 or len(set(names)) < len(names):
            yield f"{flow.id}: its path is {' → '.join(names)}"
            continue
        rate_mbps = _rate_mbps(planned, flow, problem, ends)
        if _differ(rate_mbps, planned.rate_mbps):
            yield f"{flow.id}: planned at {planned.rate_mbps} Mbit/s, and its slowest hop carries {rate_mbps}"
        if _differ(_fct_s(planned, flow, problem, rate_mbps), planned.fct_s):
            yield f"{flow.id}: a completion time of {planned.fct_s} s does not follow from its size and rate"


def _rate_mbps(planned: FlowPlan, flow: Flow, problem: PlacementProblem, ends_mbps: float) -> float:
    position = {region.name: number for number, region in enumerate(problem.regions)}
    at = [position[proxy.region] for proxy in planned.path]
    rates = [ends_mbps, *(problem.regions[region].capacity_mbps for region in at)]
    rates += [problem.per_flow_proxy_limit_mbps] if at else []
    hops_ms = _hops_ms(planned, flow, problem)
    for number, rtt_ms in enumerate(hops_ms):
        between = 0 < number < len(hops_ms) - 1
        window_bytes = problem.cloud_window_bytes if between else problem.edge_window_of(flow)
        control = problem.proxy_congestion_control if number else flow.congestion_control
        part = rtt_ms / flow.rtt_direct_ms if flow.rtt_direct_ms > 0 else 1.0
        rates.append(
            hop_mbps(Hop(rtt_ms, window_bytes, loss=part_of_loss(flow.loss, part), congestion_control=control))
        )
    return min(rates)


def _fct_s(planned: FlowPlan, flow: Flow, problem: PlacementProblem, rate_mbps: float) -> float:
    if not problem.slow_start:
        return 8e-6 * flow.size_bytes / rate_mbps
    hops_s = [rtt_ms / 1e3 for rtt_ms in _hops_ms(planned, flow, problem)]
    return 2 * sum(hops_s) + max(_hop_s(flow.size_bytes, rate_mbps / 8e-6, rtt_s) - rtt_s for rtt_s in hops_s)


def _hops_ms(planned: FlowPlan, flow: Flow, problem: PlacementProblem) -> list[float]:
    position = {region.name: number for number, region in enumerate(problem.regions)}
    at = [position[proxy.region] for proxy in planned.path]
    if not at:
        return [flow.rtt_direct_ms]
    between = [float(problem.rtt_ms[p][q]) for p, q in pairwise(at)]
    return [float(flow.rtt_to_region_ms[at[0]]), *between, float(flow.rtt_from_region_ms[at[-1]])]


def _hop_s(size_bytes: float, rate_bytes: float, rtt_s: float) -> float:
    """Return the time of one hop, a window per round until the window fills it, then the rest at its rate."""
    full_bytes = rate_bytes * rtt_s
    window_bytes, left_bytes, elapsed_s = 14_600.0, size_bytes, 0.0
    while elapsed_s == 0 or (window_bytes < full_bytes * (1 - 1e-12) and left_bytes > 0):
        left_bytes -= min(window_bytes, full_bytes)
        elapsed_s += rtt_s
        window_bytes *= 2
        if rtt_s == 0:
            break
    return elapsed_s + max(0.0, left_bytes) / rate_bytes


def _instances(plan: PlacementPlan, problem: PlacementProblem) -> Iterator[str]:
    """Check loads against capacities, and the number of instances of each region."""
    regions = {region.name: region for region in problem.regions}
    loads: dict[tuple[str, int], float] = defaultdict(float)
    for flow in plan.flows:
        for proxy in flow.path:
            loads[proxy.region, proxy.instance] += flow.rate_mbps
    for (name, instance), load_mbps in loads.items():
        if _above(load_mbps, regions[name].capacity_mbps):
            yield f"{name}/{instance}: carries {load_mbps} Mbit/s, its capacity is {regions[name].capacity_mbps}"
    stated = {(load.region, load.instance): load.load_mbps for load in plan.instances}
    if stated.keys() != loads.keys():
        yield "the listed instances are not those that the flows use"
    elif any(_differ(stated[key], loads[key]) for key in loads):
        yield "the listed loads are not the sums of the flows' rates"
    for name, region in regions.items():
        count = sum(one == name for one, _ in loads)
        if count > region.max_instances:
            yield f"{name}: {format_count(count, 'instance')}, but the maximum is {region.max_instances}"


def _cost(plan: PlacementPlan, problem: PlacementProblem) -> Iterator[str]:
    """Check the cost: egress of each proxy on each path, and one setup per instance; and the budget."""
    regions = {region.name: region for region in problem.regions}
    egress = math.fsum(
        flow.size_bytes / problem.bytes_per_gb * regions[proxy.region].egress_cents_per_gb
        for planned, flow in zip(plan.flows, problem.flows, strict=True)
        for proxy in planned.path
    )
    used = {(proxy.region, proxy.instance) for planned in plan.flows for proxy in planned.path}
    cents = egress + math.fsum(regions[name].setup_cents for name, _ in used)
    if _differ(cents, plan.cost_cents):
        yield f"costs {plan.cost_cents} cents, which should be {cents}"
    if _above(cents, problem.budget_cents):
        yield f"costs {cents} cents, the budget is {problem.budget_cents}"


def _totals(plan: PlacementPlan) -> Iterator[str]:
    if _differ(math.fsum(flow.fct_s for flow in plan.flows), plan.total_fct_s):
        yield f"the completion times do not add up to {plan.total_fct_s} s"
    if plan.gap is not None and not 0 <= plan.gap <= 1:
        yield f"a gap of {plan.gap}"


def _above(value: float, limit: float) -> bool:
    return value > limit + TOLERANCE * max(abs(value), abs(limit))


def _differ(a: float, b: float) -> bool:
    return a != b and (_above(a, b) or _above(b, a))
