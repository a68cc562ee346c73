"""The windows and congestion control that the kernels of running proxies allow, and the rates of flows with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tradewind.acceleration.wiring import proxy_name
from tradewind.model.flows import CongestionControl
from tradewind.model.records import dataclass, replace
from tradewind.model.tcp import window_bytes
from tradewind.model.units import format_bytes, format_gbps
from tradewind.placement.paths import paths_of

if TYPE_CHECKING:
    from tradewind.acceleration.wiring import Wire
    from tradewind.model.acceleration import ProxyState
    from tradewind.model.split import SplitStatus
    from tradewind.placement.plan import PlacementPlan
    from tradewind.placement.problem import PlacementProblem

__all__ = ["ProxyKernel", "kernels_of", "recorded_kernels", "slower_line", "with_kernels", "within_kernels"]

#: Congestion controls whose rate under loss is known, the slowest first. Others are taken for cubic.
SLOWEST_FIRST: tuple[CongestionControl, ...] = ("reno", "cubic", "bbr")
OTHER: CongestionControl = "cubic"
#: A lower rate is reported from this part of the planned one on.
WORTH_SAYING = 0.99


@dataclass(frozen=True, slots=True)
class ProxyKernel:
    """TCP on the machine of one proxy."""

    receive_window_bytes: float
    """Largest window of what it receives."""
    send_window_bytes: float
    """Largest number of bytes that it sends without an acknowledgement."""
    congestion_control: str

    @property
    def smallest_bytes(self) -> float:
        """Return the smaller of both windows."""
        return min(self.receive_window_bytes, self.send_window_bytes)


def kernels_of(statuses: Mapping[str, SplitStatus]) -> dict[str, ProxyKernel]:
    """Return what the kernels of proxies allow, by name, where their systems say it."""
    found = {}
    for name, status in statuses.items():
        receive, send = status.receive_buffer_bytes_max, status.send_buffer_bytes_max
        # No connection carries anything with a window of 0, so a kernel that reports it is not known.
        if receive and send and status.congestion_control is not None:
            found[name] = ProxyKernel(window_bytes(receive), window_bytes(send), status.congestion_control)
    return found


def recorded_kernels(proxies: Iterable[ProxyState]) -> Iterator[ProxyKernel]:
    """Yield what recorded proxies have reported."""
    for proxy in proxies:
        receive, send, control = proxy.receive_window_bytes, proxy.send_window_bytes, proxy.congestion_control
        if receive is not None and send is not None and control is not None:
            yield ProxyKernel(receive, send, control)


def within_kernels(problem: PlacementProblem, kernels: Iterable[ProxyKernel]) -> PlacementProblem:
    """Return the problem with windows and congestion control that all of these proxies have."""
    kernels = tuple(kernels)
    if not kernels:
        return problem
    window = min(problem.cloud_window_bytes, *(kernel.smallest_bytes for kernel in kernels))
    control = _slowest(problem.proxy_congestion_control, kernels)
    return replace(problem, cloud_window_bytes=window, proxy_congestion_control=control)


def with_kernels(
    wires: Sequence[Wire], plan: PlacementPlan, problem: PlacementProblem, kernels: Mapping[str, ProxyKernel]
) -> tuple[Wire, ...]:
    """Return the wires with the rates and times that their proxies allow, whose kernels are given by name.

    A path with a proxy whose kernel is unknown keeps the planned rate.
    """
    numbers = {flow.id: number for number, flow in enumerate(problem.flows)}
    found: dict[str, tuple[float, float]] = {}
    for placed in plan.flows:
        found[placed.id] = placed.rate_mbps, placed.fct_s
        names = [proxy_name(proxy.region, proxy.instance) for proxy in placed.path]
        if names and all(name in kernels for name in names):
            regions = [proxy.region for proxy in placed.path]
            known = [kernels[name] for name in names]
            rate_mbps, fct_s = _allowed(problem, numbers[placed.id], regions, known)
            found[placed.id] = min(placed.rate_mbps, rate_mbps), max(placed.fct_s, fct_s)
    return tuple(
        replace(wire, predicted_mbps=found[wire.placed_as][0], predicted_s=found[wire.placed_as][1]) for wire in wires
    )


def _allowed(
    problem: PlacementProblem, number: int, regions: Sequence[str], kernels: Sequence[ProxyKernel]
) -> tuple[float, float]:
    """Return rate and completion time of a flow on a path, whose proxies are in the order of the bytes."""
    flow = problem.flows[number]
    edge = min(problem.edge_window_of(flow), kernels[0].receive_window_bytes, kernels[-1].send_window_bytes)
    between = [min(a.send_window_bytes, b.receive_window_bytes) for a, b in pairwise(kernels)]
    alone = replace(
        problem,
        flows=(replace(flow, window_bytes=edge),),
        cloud_window_bytes=min(problem.cloud_window_bytes, *between) if between else problem.cloud_window_bytes,
        proxy_congestion_control=_slowest(problem.proxy_congestion_control, kernels),
    )
    names = [region.name for region in problem.regions]
    paths = paths_of(alone)
    path = paths.regions.index(tuple(names.index(region) for region in regions))
    return float(paths.rate_mbps[0, path]), float(paths.fct_s[0, path])


def _slowest(control: CongestionControl, kernels: Iterable[ProxyKernel]) -> CongestionControl:
    known = [next((each for each in SLOWEST_FIRST if each == of.congestion_control), OTHER) for of in kernels]
    return min((control, *known), key=SLOWEST_FIRST.index)


def slower_line(
    planned: Sequence[Wire], wires: Sequence[Wire], problem: PlacementProblem, kernels: Mapping[str, ProxyKernel]
) -> str | None:
    """Return the line that says which flows are slower than `planned`, and why; None if none is."""
    slower = [
        (before, after)
        for before, after in zip(planned, wires, strict=True)
        if after.predicted_mbps < before.predicted_mbps * WORTH_SAYING
    ]
    if not slower:
        return None
    before, after = max(slower, key=lambda pair: pair[0].predicted_mbps / pair[1].predicted_mbps)
    name = min((name for name in after.through if name in kernels), key=lambda name: kernels[name].smallest_bytes)
    kernel, more = kernels[name], "" if len(slower) == 1 else f", and {len(slower) - 1} more are slower, too"
    has, planned_bytes = format_bytes(round(kernel.smallest_bytes)), format_bytes(round(problem.cloud_window_bytes))
    return (
        f"proxies allow less than planned: {name} has windows of {has} instead of {planned_bytes}, and"
        f" {kernel.congestion_control}; {after.name} is predicted at {_rate(after)} instead of {_rate(before)}{more};"
        " `tradewind accelerate replan` places flows by what proxies allow"
    )


def _rate(wire: Wire) -> str:
    return format_gbps(wire.predicted_mbps / 1e3)
