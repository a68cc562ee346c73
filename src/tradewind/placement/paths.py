"""Rate, completion time and price of every path that a flow can take: direct, over one proxy, or over two.

The model is that of CloudPilot, section 4.2: a flow is as fast as its slowest hop, and a hop carries one window per
round trip, up to the capacities at its ends. Options of the problem add loss (`loss.py`), shared last miles
(`last_miles.py`) and slow start (`slow_start.py`); without them, the model is the paper's.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tradewind.model.flows import CongestionControl
from tradewind.model.records import dataclass
from tradewind.placement.last_miles import last_miles_mbps
from tradewind.placement.loss import loss_limits_mbps, loss_of_hops
from tradewind.placement.problem import FloatArray, Flow, PlacementProblem
from tradewind.placement.slow_start import slow_start_fct_s

__all__ = ["DIRECT", "IntArray", "Paths", "paths_of"]

IntArray = NDArray[np.int64]

DIRECT = 0
"""Number of the path without a proxy."""
NO_REGION = -1
"""Stands for a missing proxy in `Paths.first` and `Paths.second`."""
MBITS_PER_BYTE = 8e-6
MS_PER_S = 1e3


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """All paths of all flows. Path 0 is direct; the next have one proxy, one for each region; the others have two.

    Arrays `[flow, path]` hold figures of a flow on a path, arrays `[path]` the regions of a path.
    """

    problem: PlacementProblem
    first: IntArray
    """Region of the first proxy of each path."""
    second: IntArray
    """Region of the second proxy of each path."""
    rate_mbps: FloatArray
    fct_s: FloatArray
    """Flow completion time: size / rate, or that of `slow_start.py` if the problem asks for it."""
    egress_cents: FloatArray
    """Price of the traffic of the flow's proxies, without their setup."""
    regions: tuple[tuple[int, ...], ...]
    """Regions of each path's proxies, in order."""
    last_mile_mbps: FloatArray
    """By flow, the rate that its last miles leave to it."""

    @property
    def gain_s(self) -> FloatArray:
        """How much earlier each flow ends on each path than on the direct one (GAIN of Algorithm 1)."""
        gain_s: FloatArray = self.fct_s[:, :1] - self.fct_s
        return gain_s

    def within(self, regions: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return for each path whether its proxies are all in the given regions, a flag per region."""
        known = np.append(regions, True)  # NO_REGION is the last.
        inside: NDArray[np.bool_] = known[self.first] & known[self.second]
        return inside


def paths_of(problem: PlacementProblem) -> Paths:
    """Return all paths of all flows of a problem."""
    count = len(problem.regions)
    pairs = [(p, q) for p in range(count) for q in range(count) if p != q]
    first = np.array([NO_REGION, *range(count), *(p for p, _ in pairs)], dtype=np.int64)
    second = np.array([NO_REGION, *[NO_REGION] * count, *(q for _, q in pairs)], dtype=np.int64)
    between_mbps = _between(problem)
    flows = len(problem.flows)
    rate_mbps = np.empty((flows, len(first)))
    for number, flow in enumerate(problem.flows):
        rate_mbps[number] = _rates(problem, flow, first, second, between_mbps)
    least_mbps = np.array([min(flow.src_last_mile_mbps, flow.dst_last_mile_mbps) for flow in problem.flows])
    if problem.shared_last_miles and flows:
        least_mbps = last_miles_mbps(problem, rate_mbps.max(axis=1))
        rate_mbps = np.minimum(rate_mbps, least_mbps[:, None])
    size_bytes = np.array([flow.size_bytes for flow in problem.flows]).reshape(flows, 1)
    per_gb = np.append([region.egress_cents_per_gb for region in problem.regions], 0.0)
    egress_cents = size_bytes / problem.bytes_per_gb * (per_gb[first] + per_gb[second])
    regions = ((), *((p,) for p in range(count)), *pairs)
    fct_s = size_bytes * MBITS_PER_BYTE / rate_mbps
    if problem.slow_start:
        for number, flow in enumerate(problem.flows):
            hops_ms = _hops_ms(problem, flow, first, second)
            fct_s[number] = slow_start_fct_s(flow.size_bytes, rate_mbps[number], hops_ms)
    return Paths(problem, first, second, rate_mbps, fct_s, egress_cents, regions, least_mbps)


def _hops_ms(problem: PlacementProblem, flow: Flow, first: IntArray, second: IntArray) -> tuple[FloatArray, ...]:
    """Return the round trips of the first, second and third hop of each path; NaN for a hop that it does not have."""
    count = len(problem.regions)
    one, two = slice(1, count + 1), slice(count + 1, None)
    into, between, out = (np.full(len(first), math.nan) for _ in range(3))
    into[DIRECT] = flow.rtt_direct_ms
    into[1:] = flow.rtt_to_region_ms[first[1:]]
    between[two] = problem.rtt_ms[first[two], second[two]]
    out[one], out[two] = flow.rtt_from_region_ms, flow.rtt_from_region_ms[second[two]]
    return into, between, out


def _rates(
    problem: PlacementProblem, flow: Flow, first: IntArray, second: IntArray, between_mbps: FloatArray
) -> FloatArray:
    """Return the rate of a flow on each path: the rate of its slowest hop."""
    count = len(problem.regions)
    last_miles_mbps = min(flow.src_last_mile_mbps, flow.dst_last_mile_mbps)
    capacity_mbps = np.array([region.capacity_mbps for region in problem.regions])
    at_proxy_mbps = np.minimum(capacity_mbps, min(last_miles_mbps, problem.per_flow_proxy_limit_mbps))
    edge = problem.edge_window_of(flow)
    into_mbps = np.minimum(_window_mbps(edge, flow.rtt_to_region_ms), at_proxy_mbps)
    out_mbps = np.minimum(_window_mbps(edge, flow.rtt_from_region_ms), at_proxy_mbps)
    direct_mbps = np.minimum(_window_mbps(edge, np.array([flow.rtt_direct_ms])), last_miles_mbps)
    if flow.loss > 0:
        controls = flow.congestion_control, problem.proxy_congestion_control
        direct_mbps = np.minimum(direct_mbps, _loss_mbps(flow, controls[0], np.array([flow.rtt_direct_ms])))
        into_mbps = np.minimum(into_mbps, _loss_mbps(flow, controls[0], flow.rtt_to_region_ms))
        out_mbps = np.minimum(out_mbps, _loss_mbps(flow, controls[1], flow.rtt_from_region_ms))
        between_mbps = np.minimum(between_mbps, _loss_mbps(flow, controls[1], problem.rtt_ms))
    rate_mbps = np.empty(len(first))
    rate_mbps[DIRECT] = direct_mbps[0]
    rate_mbps[1 : count + 1] = np.minimum(into_mbps, out_mbps)
    p, q = first[count + 1 :], second[count + 1 :]
    rate_mbps[count + 1 :] = np.minimum(np.minimum(into_mbps[p], between_mbps[p, q]), out_mbps[q])
    return rate_mbps


def _loss_mbps(flow: Flow, control: CongestionControl, rtt_ms: FloatArray) -> FloatArray:
    return loss_limits_mbps(control, rtt_ms, loss_of_hops(flow, rtt_ms))


def _between(problem: PlacementProblem) -> FloatArray:
    """Return the rate of a hop between two proxies, from region to region."""
    capacity_mbps = np.array([region.capacity_mbps for region in problem.regions])
    ends_mbps = np.minimum(capacity_mbps[:, None], capacity_mbps[None, :])
    between_mbps: FloatArray = np.minimum(_window_mbps(problem.cloud_window_bytes, problem.rtt_ms), ends_mbps)
    return between_mbps


def _window_mbps(window_bytes: float, rtt_ms: FloatArray) -> FloatArray:
    """Return the rate of a connection that sends one window per round trip; infinite without a distance."""
    with np.errstate(divide="ignore"):
        rate_mbps: FloatArray = np.where(
            rtt_ms > 0, window_bytes * MBITS_PER_BYTE * MS_PER_S / np.asarray(rtt_ms), math.inf
        )
    return rate_mbps
