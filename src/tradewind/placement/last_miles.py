"""Shares of last miles (the option `shared_last_miles` of a problem).

The flows of a host share its last mile as TCP flows would: each gets the same share, except flows that want less, whose
rest is divided among the others (max-min fairness). A flow wants the rate of its fastest path. So its share does not
depend on the paths that other flows take: where those are slower, the flow may in fact be faster than planned, and
never slower. Hosts send and receive independently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tradewind.placement.problem import FloatArray, Flow, PlacementProblem

__all__ = ["last_miles_mbps"]


def last_miles_mbps(problem: PlacementProblem, wanted_mbps: FloatArray) -> FloatArray:
    """Return the rate that the last miles leave to each flow: the least of its shares at both ends.

    `wanted_mbps` is the rate of each flow's fastest path, as if it were alone.
    """
    sent_mbps = _shares(problem.flows, wanted_mbps, lambda flow: (flow.src_host, flow.src_last_mile_mbps))
    received_mbps = _shares(problem.flows, wanted_mbps, lambda flow: (flow.dst_host, flow.dst_last_mile_mbps))
    least_mbps: FloatArray = np.minimum(sent_mbps, received_mbps)
    return least_mbps


def _shares(
    flows: Sequence[Flow], wanted_mbps: FloatArray, end: Callable[[Flow], tuple[str | None, float]]
) -> FloatArray:
    """Return the share of each flow at one end. A flow that names no host has a last mile of its own."""
    shares_mbps = np.array([end(flow)[1] for flow in flows])
    by_host: dict[str, list[int]] = {}
    for number, flow in enumerate(flows):
        host, _ = end(flow)
        if host is not None:
            by_host.setdefault(host, []).append(number)
    for numbers in by_host.values():
        shares_mbps[numbers] = _fair_share_mbps(float(shares_mbps[numbers[0]]), wanted_mbps[numbers])
    return shares_mbps


def _fair_share_mbps(last_mile_mbps: float, wanted_mbps: FloatArray) -> float:
    """Return the rate that every flow of a host gets if it wants that much."""
    left_mbps = last_mile_mbps
    rising = np.sort(wanted_mbps).tolist()
    for number, wanted in enumerate(rising):
        share_mbps: float = left_mbps / (len(rising) - number)
        if wanted > share_mbps:
            return share_mbps
        left_mbps -= wanted
    return last_mile_mbps
