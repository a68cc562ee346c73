"""Advice for flows: what limits each now, what tuning its ends gains for free, and only then what proxies add."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

from tradewind.model.flows import CongestionControl, WantedFlow
from tradewind.model.records import dataclass, replace
from tradewind.model.tcp import HostTcp, PathMeasurement, window_bytes
from tradewind.placement.plan import FlowPlan, PlacementPlan
from tradewind.placement.problem import Flow, PlacementProblem
from tradewind.placement.tcp import Hop, completion_s, hop_mbps, loss_for_mbps, loss_limited_mbps, part_of_loss

__all__ = [
    "STEADY_S_MIN",
    "TUNED_BUFFER_BYTES",
    "Advice",
    "Ends",
    "FlowAdvice",
    "FlowTime",
    "Limit",
    "Tuning",
    "advice_of",
    "tuned",
    "with_tcp_rates",
]

Limit = Literal["the window", "loss", "the last mile", "the hosts", "the path or the peer", "slow start and handshakes"]
Tuning = Literal["larger windows", "bbr", "larger windows and bbr"]

#: Buffers of tuned ends, for `tcp_rmem` and `tcp_wmem`.
TUNED_BUFFER_BYTES = 64 << 20
#: One connection is assumed to carry no more, however short its round trip.
HOSTS_MBPS = 10_000.0
#: If a download reaches less than this part of the model's rate, something limits it that the model does not know.
MEASURED_PART = 0.7
#: A faster way counts if it takes at most this part of the time.
GAIN_PART = 0.95
#: A download at least this long shows the rate of the path; a shorter one shows slow start [s].
STEADY_S_MIN = 2.0
#: Slow start and handshakes limit a flow if they take more than this part of its time.
OVERHEAD_PART = 0.5


@dataclass(frozen=True, slots=True)
class Ends:
    """The TCP at the ends of a flow, as the direct path has it now."""

    window_bytes: float
    congestion_control: CongestionControl


@dataclass(frozen=True, slots=True)
class FlowTime:
    """Rate of a flow once its window is open [Mbit/s], and time of all its transfers in a period [s]."""

    rate_mbps: float
    time_s: float


@dataclass(frozen=True, slots=True)
class FlowAdvice:
    """Advice for one flow."""

    name: str
    rtt_ms: float
    transfers: float
    """Transfers in a period."""
    period_bytes: float
    ends: Ends
    now: FlowTime
    limit: Limit
    tuning: Tuning | None
    """The least tuning with the best time; None if tuning gains nothing."""
    tuned: FlowTime
    """With that tuning. It costs nothing."""
    proxies: FlowTime | None
    """Through proxies, at the ends as they are; None if the plan sends the flow direct, or without regions."""
    proxies_path: tuple[str, ...]
    proxies_cents: float
    """Egress of these proxies in a period, without the machines, which flows share."""
    both: FlowTime | None
    """Through the proxies of the plan for tuned ends; None if that plan sends the flow direct."""
    both_path: tuple[str, ...]
    both_cents: float
    measured: PathMeasurement | None = None
    loss: float | None = None
    """Fraction of packets whose loss explains the rate of a slow download; None if loss does not."""

    @property
    def proxies_gain(self) -> bool:
        """Return whether proxies beat free tuning alone, at the ends as they are or at tuned ones."""
        best_s = min((each.time_s for each in (self.proxies, self.both) if each is not None), default=math.inf)
        return best_s <= self.tuned.time_s * GAIN_PART


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice for all flows, and what the plans for proxies cost in a period [US cents]."""

    flows: tuple[FlowAdvice, ...]
    proxies_cents: float | None
    """At the ends as they are; None if no regions for proxies are known."""
    both_cents: float | None
    """At tuned ends."""
    host: HostTcp | None = None
    notes: tuple[str, ...] = ()


def tuned(ends: Ends) -> Ends:
    """Return tuned ends: larger windows and bbr."""
    return Ends(max(ends.window_bytes, window_bytes(TUNED_BUFFER_BYTES)), "bbr")


def with_tcp_rates(problem: PlacementProblem, flows: Sequence[WantedFlow], ends: Sequence[Ends]) -> PlacementProblem:
    """Return the problem with the windows, congestion control and loss of its flows, and the limit of the hosts.

    `flows` and `ends` are in the problem's order.
    """
    changed = [
        replace(
            flow,
            window_bytes=of.window_bytes,
            congestion_control=of.congestion_control,
            loss=wanted.loss,
            src_last_mile_mbps=min(flow.src_last_mile_mbps, HOSTS_MBPS),
        )
        for wanted, flow, of in zip(flows, problem.flows, ends, strict=True)
    ]
    return replace(problem, flows=tuple(changed))


def advice_of(
    flows: Sequence[WantedFlow],
    ends: Mapping[str, Ends],
    problem: PlacementProblem,
    plan: PlacementPlan | None,
    tuned_plan: PlacementPlan | None,
    measured: Mapping[str, PathMeasurement],
    *,
    are_ready: bool = False,
) -> Advice:
    """Return the advice. `problem` has the flows in the same order; `ends` and `measured` are by flow name.

    `plan` is a placement of the problem `with_tcp_rates` of its ends, `tuned_plan` one with those of `tuned` ends; None
    without regions. `are_ready` says that proxies keep connections ready for each other.
    """
    found = []
    for number, flow in enumerate(flows):
        planned = None if plan is None else plan.flows[number]
        planned_tuned = None if tuned_plan is None else tuned_plan.flows[number]
        of = _OneFlow(flow, problem, problem.flows[number], ends[flow.name], are_ready)
        found.append(of.advice(planned, planned_tuned, measured.get(flow.name)))
    return Advice(
        tuple(found), None if plan is None else plan.cost_cents, None if tuned_plan is None else tuned_plan.cost_cents
    )


@dataclass(frozen=True, slots=True, eq=False)
class _OneFlow:
    """A flow with everything that its times depend on."""

    wanted: WantedFlow
    problem: PlacementProblem
    flow: Flow
    ends: Ends
    are_ready: bool

    def advice(
        self, planned: FlowPlan | None, tuned_plan: FlowPlan | None, measured: PathMeasurement | None
    ) -> FlowAdvice:
        direct = self._direct(self.ends)
        known_mbps = None if measured is None else _steady_mbps(measured)
        loss = None
        if measured is not None and known_mbps is not None and known_mbps < hop_mbps(direct) * MEASURED_PART:
            # Larger windows and bbr may not help either: no gain is promised. A full link loses packets, too.
            loss = _loss_of(measured, self.ends.congestion_control)
            limited: Limit = "the path or the peer"
            now = self._time([replace(direct, capacity_mbps=known_mbps)])
            tuning, free = None, now
        else:
            now = self._time([direct])
            limited = self._limit(direct, now)
            tuning, free = self._tuned(now)
        proxies = self._placed(self.ends, planned)
        both = self._placed(tuned(self.ends), tuned_plan)
        return FlowAdvice(
            self.wanted.name,
            self.flow.rtt_direct_ms,
            self.wanted.transfers,
            self.wanted.period_bytes,
            self.ends,
            now,
            limited,
            tuning,
            free,
            proxies,
            _regions(planned),
            0.0 if planned is None else planned.cents,
            both,
            _regions(tuned_plan),
            0.0 if tuned_plan is None else tuned_plan.cents,
            measured,
            loss,
        )

    def _tuned(self, now: FlowTime) -> tuple[Tuning | None, FlowTime]:
        """Return the least tuning that is as good as any, and its time."""
        every = tuned(self.ends)
        ways: list[tuple[Tuning, Ends]] = [
            ("larger windows", replace(self.ends, window_bytes=every.window_bytes)),
            ("bbr", replace(self.ends, congestion_control="bbr")),
            ("larger windows and bbr", every),
        ]
        timed = [(tuning, self._time([self._direct(ends)])) for tuning, ends in ways]
        best_s = min(time.time_s for _, time in timed)
        if best_s > now.time_s * GAIN_PART:
            return None, now
        return next((tuning, time) for tuning, time in timed if time.time_s * GAIN_PART <= best_s)

    def _direct(self, ends: Ends) -> Hop:
        return replace(self, ends=ends).hop(self.flow.rtt_direct_ms, ends.congestion_control)

    def hop(self, rtt_ms: float, control: CongestionControl) -> Hop:
        """Return a connection with an end of the flow, over a part of its path or all of it."""
        return Hop(rtt_ms, self.ends.window_bytes, self._last_miles_mbps, self._loss(rtt_ms), control)

    @property
    def _last_miles_mbps(self) -> float:
        return min(self.flow.src_last_mile_mbps, self.flow.dst_last_mile_mbps, HOSTS_MBPS)

    def _placed(self, ends: Ends, planned: FlowPlan | None) -> FlowTime | None:
        """Return rate and time over the proxies of a plan; None if it has none for this flow."""
        if planned is None or not planned.path:
            return None
        names = [region.name for region in self.problem.regions]
        at = [names.index(proxy.region) for proxy in planned.path]
        into_ms, out_ms = float(self.flow.rtt_to_region_ms[at[0]]), float(self.flow.rtt_from_region_ms[at[-1]])
        between_ms = [float(self.problem.rtt_ms[a][b]) for a, b in pairwise(at)]
        capacity_mbps = min(self.problem.regions[region].capacity_mbps for region in at)
        capacity_mbps = min(capacity_mbps, self.problem.per_flow_proxy_limit_mbps, self._last_miles_mbps)
        # Each millisecond of the direct path is assumed to lose alike, also on the hops.
        control = self.problem.proxy_congestion_control
        hops = [Hop(into_ms, ends.window_bytes, capacity_mbps, self._loss(into_ms), ends.congestion_control)]
        hops += [
            Hop(each, self.problem.cloud_window_bytes, capacity_mbps, self._loss(each), control, True, self.are_ready)
            for each in between_ms
        ]
        hops.append(Hop(out_ms, ends.window_bytes, capacity_mbps, self._loss(out_ms), control))
        return self._time(hops)

    def _loss(self, rtt_ms: float) -> float:
        whole_ms = self.flow.rtt_direct_ms
        return part_of_loss(self.wanted.loss, rtt_ms / whole_ms) if whole_ms > 0 else self.wanted.loss

    def _time(self, hops: Sequence[Hop]) -> FlowTime:
        one_s = sum(completion_s(hops, sizes.size_bytes) * sizes.count for sizes in self.wanted.sizes)
        return FlowTime(min(hop_mbps(hop) for hop in hops), one_s * self.wanted.times)

    def _limit(self, hop: Hop, now: FlowTime) -> Limit:
        lasting_s = self.wanted.period_bytes * 8e-6 / now.rate_mbps
        if lasting_s < now.time_s * OVERHEAD_PART:
            return "slow start and handshakes"
        by_loss_mbps = loss_limited_mbps(hop.congestion_control, hop.rtt_ms, hop.loss)
        by_window_mbps = hop_mbps(replace(hop, loss=0.0, capacity_mbps=math.inf))
        limits: list[tuple[float, Limit]] = [
            (hop.capacity_mbps, "the hosts" if hop.capacity_mbps == HOSTS_MBPS else "the last mile"),
            (by_window_mbps, "the window"),
            (by_loss_mbps, "loss"),
        ]
        return min(limits, key=lambda limit: limit[0])[1]


def _regions(planned: FlowPlan | None) -> tuple[str, ...]:
    return () if planned is None else tuple(proxy.region for proxy in planned.path)


def _steady_mbps(measured: PathMeasurement) -> float | None:
    """Return the rate of a download that was long enough to show it."""
    download = measured.download
    if download is None or download.duration_s < STEADY_S_MIN:
        return None
    return download.rate_mbps or None


def _loss_of(measured: PathMeasurement, control: CongestionControl) -> float | None:
    """Return the loss that explains the rate of a download; None if too few segments arrived out of order for it.

    After each lost segment at least one arrives out of order.
    """
    download, rate_mbps = measured.download, _steady_mbps(measured)
    if download is None or rate_mbps is None or not download.out_of_order or not download.segments:
        return None
    loss = loss_for_mbps(control, measured.rtt_ms, rate_mbps)
    return loss if loss is not None and loss * download.segments <= download.out_of_order else None
