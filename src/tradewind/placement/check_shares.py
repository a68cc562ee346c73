"""The independent check of shared last miles: fair shares found by halving intervals, without the planner's code."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np

from tradewind.placement.problem import Flow, PlacementProblem
from tradewind.placement.tcp import Hop, hop_mbps, part_of_loss

__all__ = ["last_mile_shares_mbps"]

HALVINGS = 200
"""Halvings of the interval of a share: more than a float has bits."""


def last_mile_shares_mbps(problem: PlacementProblem) -> list[float]:
    """Return the rate that the last miles leave to each flow."""
    own = [min(flow.src_last_mile_mbps, flow.dst_last_mile_mbps) for flow in problem.flows]
    if not problem.shared_last_miles:
        return own
    members: dict[tuple[str, str], list[int]] = defaultdict(list)
    last_mile_mbps: dict[tuple[str, str], float] = {}
    for number, flow in enumerate(problem.flows):
        for side, host, rate_mbps in (
            ("src", flow.src_host, flow.src_last_mile_mbps),
            ("dst", flow.dst_host, flow.dst_last_mile_mbps),
        ):
            if host is not None:
                members[side, host].append(number)
                last_mile_mbps[side, host] = rate_mbps
    wanted = [_fastest_mbps(flow, problem, ends) for flow, ends in zip(problem.flows, own, strict=True)]
    for key, numbers in members.items():
        share_mbps = _share_mbps(last_mile_mbps[key], [wanted[number] for number in numbers])
        for number in numbers:
            own[number] = min(own[number], share_mbps)
    return own


def _share_mbps(last_mile_mbps: float, wanted_mbps: list[float]) -> float:
    """Return the greatest share for which the flows do not exceed the last mile."""
    if math.fsum(wanted_mbps) <= last_mile_mbps:
        return math.inf
    low, high = 0.0, last_mile_mbps
    for _ in range(HALVINGS):
        share = (low + high) / 2
        if math.fsum(min(share, wanted) for wanted in wanted_mbps) <= last_mile_mbps:
            low = share
        else:
            high = share
    return low


def _fastest_mbps(flow: Flow, problem: PlacementProblem, ends_mbps: float) -> float:
    """Return the rate of the flow's fastest path: the widest way to each region, then on to the destination."""

    def hop(rtt_ms: float, window_bytes: float, *, from_proxy: bool) -> float:
        part = rtt_ms / flow.rtt_direct_ms if flow.rtt_direct_ms > 0 else 1.0
        control = problem.proxy_congestion_control if from_proxy else flow.congestion_control
        return hop_mbps(Hop(rtt_ms, window_bytes, loss=part_of_loss(flow.loss, part), congestion_control=control))

    edge, regions = problem.edge_window_of(flow), range(len(problem.regions))
    capacity = [min(region.capacity_mbps, problem.per_flow_proxy_limit_mbps) for region in problem.regions]
    into = [min(capacity[p], hop(flow.rtt_to_region_ms[p], edge, from_proxy=False)) for p in regions]
    out = [min(capacity[q], hop(flow.rtt_from_region_ms[q], edge, from_proxy=True)) for q in regions]
    best = max([hop(flow.rtt_direct_ms, edge, from_proxy=False), *map(min, into, out)])
    for p in regions:
        # A pair is no faster than its edges, so most pairs need no look at the hop between them.
        for q in np.flatnonzero(np.array(out) > best).tolist() if into[p] > best else ():
            between = hop(float(problem.rtt_ms[p, q]), problem.cloud_window_bytes, from_proxy=True)
            best = max(best, min(into[p], between, out[q])) if p != q else best
    return min(best, ends_mbps)
