"""Each goal as a short sequence of exact solves.

With T the rate, R the rate of cost [USD/s] and boot time b, a transfer of V GB costs

    C = R · 8V/T + b · Σ N vm + requests.

- *exactly a rate*: T is a constant, so C is linear: one solve (the paper's reformulation).
- *at least a rate, cheapest*: minimise R/T by Dinkelbach's method: min R − λT, then λ ← R/T, until nothing is gained.
- *a cost ceiling*: R · 8V/T ≤ budget ⇔ R ≤ (budget / 8V) · T, linear; maximise T: one solve.
- *boot time* adds b·W·T to R·8V, with W = vm·N, which is not linear. Over a window of rates [l, u] in which machines
  cost at least w, W·T ≥ l·W + w·T − l·w gives a bound, and every answer is evaluated as it truly is; windows are halved
  until bound and best answer meet.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np

from tradewind.errors import SolverLimitReached
from tradewind.model.amounts import BITS_PER_BYTE
from tradewind.planner.formulation import Ask, Formulation
from tradewind.planner.network import GBPS_MIN
from tradewind.planner.solver import Answer, SolverSettings, solve_flows, solve_machines

__all__ = [
    "BOOT_GAP",
    "RATE_UNBOUNDED_GBPS",
    "Job",
    "Point",
    "cheapest",
    "cheapest_exactly",
    "fastest",
    "fastest_within",
]

RATE_UNBOUNDED_GBPS = 1e6
RATE_SMALL_GBPS = 1e-2
"""Below what any plan is asked for."""
DINKELBACH_STEPS_MAX = 30
"""Never reached: the method converges superlinearly, and takes two to five steps here."""
RATE_SLACK = 1e-9
"""Relative; lets a second solve reach the rate of a first one in spite of rounding."""
BOOT_GAP = 1e-3
"""Relative gap at which the windows of boot time stop being halved."""
LATER_SOLVE_S = 5.0
"""With several destinations: of each solve that only looks for something better than what is there."""
WINDOW_GAP = BOOT_GAP / 2
"""Relative gap of the solves of a window."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is moved, as far as costs are concerned."""

    volume_gb: float
    boot_s: float = 0.0
    requests_usd: float = 0.0

    @property
    def gbit(self) -> float:
        """Volume in Gbit."""
        return BITS_PER_BYTE * self.volume_gb

    def machine_factor(self, rate_gbps: float) -> float:
        """Weight of machine prices in R that pays boot time too, at one rate."""
        return 1.0 + rate_gbps * self.boot_s / self.gbit


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """An answer with its true rate and cost, and how far from the best it may be at most."""

    answer: Answer
    rate_gbps: float
    cost_usd: float
    gap: float = 0.0

    @classmethod
    def of(cls, formulation: Formulation, job: Job, answer: Answer, gap: float = 0.0) -> Point:
        """Evaluate an answer as it truly is."""
        rate = float(answer.flow_gbps[formulation.out_of_source].sum())
        machines_usd_per_s = float(formulation.machine_usd_per_s @ answer.machines)
        egress_usd_per_s = float(formulation.egress_usd_per_s @ answer.flow_gbps)
        time_s = job.gbit / rate
        cost = egress_usd_per_s * time_s + machines_usd_per_s * (time_s + job.boot_s) + job.requests_usd
        return cls(answer, rate, cost, gap)


def cheapest_exactly(formulation: Formulation, job: Job, rate_gbps: float, settings: SolverSettings) -> Point | None:
    """Cheapest at exactly a rate; ``None`` if the rate is out of reach."""
    ask = Ask(rate_gbps, rate_gbps, machine_factor=job.machine_factor(rate_gbps))
    answer = solve_machines(formulation, ask, settings)
    return None if answer is None else Point.of(formulation, job, answer, _relative_gap(answer))


def fastest(formulation: Formulation, job: Job, settings: SolverSettings, *, cheapest_too: bool = True) -> Point | None:
    """The highest rate there is, and the cheapest way to it; ``None`` if the sink cannot be reached."""
    everything = Ask(0.0, RATE_UNBOUNDED_GBPS, maximise_rate=True)
    if formulation.has_one_type_per_region:
        # No machine slows a plan down: all that are allowed give the highest rate, and that is a linear programme.
        top = solve_flows(formulation, everything, formulation.machine_max.astype(np.int64), settings)
    else:
        top = solve_machines(formulation, everything, settings)
    if top is None or top.objective <= 0.0:
        return None
    rate = top.objective
    if not cheapest_too:
        return Point.of(formulation, job, top, _relative_gap(top))
    ask = Ask(rate * (1 - RATE_SLACK), RATE_UNBOUNDED_GBPS, machine_factor=job.machine_factor(rate))
    answer = solve_machines(formulation, ask, settings, start=top) or top
    return Point.of(formulation, job, answer, max(_relative_gap(top), _relative_gap(answer)))


def cheapest(
    formulation: Formulation,
    job: Job,
    settings: SolverSettings,
    *,
    rate_min_gbps: float = 0.0,
    rate_max_gbps: float = RATE_UNBOUNDED_GBPS,
) -> Point | None:
    """Cheapest at at least a rate; ``None`` if the rate is out of reach."""
    best: Point | None = None
    bound = float("inf")
    windows = [(0.0, rate_min_gbps, rate_max_gbps)]
    boot_floors: dict[float, float] = {}
    for _ in range(settings.windows_max):
        if not windows:
            break
        floor, low, high = heapq.heappop(windows)
        if best is not None and floor >= best.cost_usd * (1 - BOOT_GAP):
            bound = min(bound, floor)
            continue
        if low not in boot_floors:
            boot_floors[low] = _boot_floor(formulation, job, settings, low)
        try:
            ratio = _least_ratio(formulation, job, settings, (low, high, boot_floors[low]), best)
        except SolverLimitReached:
            if best is None:
                raise
            bound = min(bound, floor)  # what may be there is part of the gap
            continue
        if ratio is None:
            if best is not None:
                bound = min(bound, best.cost_usd * (1 - BOOT_GAP))
            continue
        answer, usd_per_gbit_min = ratio
        floor = max(floor, usd_per_gbit_min * job.gbit + job.requests_usd)
        point = _best_for_machines(formulation, job, settings, answer, rate_min_gbps)
        if best is None or point.cost_usd < best.cost_usd:
            best = point
        if job.boot_s == 0.0 or floor >= best.cost_usd * (1 - BOOT_GAP):
            bound = min(bound, floor)
            continue
        middle = (low + float(answer.flow_gbps[formulation.out_of_source].sum())) / 2
        heapq.heappush(windows, (floor, low, middle))
        heapq.heappush(windows, (floor, middle, high))
    if best is None:
        return None
    bound = min([bound, *(floor for floor, _, _ in windows)])
    return Point(best.answer, best.rate_gbps, best.cost_usd, max(0.0, (best.cost_usd - bound) / best.cost_usd))


def fastest_within(formulation: Formulation, job: Job, ceiling_usd: float, settings: SolverSettings) -> Point | None:
    """Highest rate for at most ``ceiling_usd``; ``None`` if nothing is that cheap."""
    ceiling = (ceiling_usd - job.requests_usd) / job.gbit
    if ceiling <= 0.0:
        return None
    best: Point | None = None
    rough = settings if job.boot_s == 0.0 else replace(settings, relative_gap=WINDOW_GAP)
    highest = 0.0
    windows = [(0.0, RATE_UNBOUNDED_GBPS)]
    for _ in range(settings.windows_max):
        if not windows:
            break
        low, high = windows.pop()
        low = max(low, best.rate_gbps if best else 0.0)
        if low > high * (1 - BOOT_GAP):
            continue
        boot = _boot_floor(formulation, job, settings, low)
        if ceiling <= boot:
            continue
        ask = Ask(
            low,
            high,
            maximise_rate=True,
            machine_factor=job.machine_factor(low),
            ceiling_usd_per_gbit=ceiling - boot,
            ceiling_usd_per_s=boot * low,
        )
        start = best.answer if best is not None and low <= best.rate_gbps else None
        try:
            relaxed = solve_machines(formulation, ask, rough, start=start)
        except SolverLimitReached:
            if best is not None:
                highest = max(highest, high)  # what may be there is part of the gap
                continue
            if formulation.shared is None:
                raise
            best = cheapest(formulation, job, settings)
            if best is None or best.cost_usd > ceiling_usd:
                raise
            # Looked at again with a plan to begin with, under what no plan passes.
            windows.append((low, min(high, formulation.shared.relax(ask).bound)))
            continue
        if relaxed is None or relaxed.objective <= 0.0:
            continue
        point = _fastest_for_machines(formulation, job, settings, relaxed, ceiling)
        if point is not None and (best is None or point.rate_gbps > best.rate_gbps):
            best = point
            if formulation.shared is not None:
                rough = replace(rough, time_limit_s=min(rough.time_limit_s, LATER_SOLVE_S))
        reached = best.rate_gbps if best else 0.0
        if job.boot_s == 0.0 or relaxed.bound <= reached * (1 + BOOT_GAP):
            highest = max(highest, relaxed.bound)
            continue
        middle = (max(low, reached) + relaxed.bound) / 2
        windows += [(max(low, reached), middle), (middle, relaxed.bound)]
    if best is None:
        return None
    highest = max([highest, *(high for _, high in windows)])
    gap = max(0.0, (highest - best.rate_gbps) / best.rate_gbps)
    return _cheapest_at_same_rate(formulation, job, settings, best, ceiling_usd, gap)


def _least_ratio(
    formulation: Formulation, job: Job, settings: SolverSettings, window: tuple[float, float, float], best: Point | None
) -> tuple[Answer, float] | None:
    """Dinkelbach: the least R/T in a window of rates, boot time counted as low as it may be; and a bound.

    ``window`` is its lowest and highest rate, and what boot costs at least there [USD/Gbit].
    ``None`` if there is no plan, or with one destination none that is cheaper than ``best`` by more than `BOOT_GAP`.
    """
    low, high, boot = window
    factor = job.machine_factor(low)
    single = formulation.shared is None
    if best is not None and single:
        usd_per_gbit = (best.cost_usd * (1 - BOOT_GAP) - job.requests_usd) / job.gbit - boot
        ask = Ask(low, high, usd_per_gbit=usd_per_gbit, machine_factor=factor)
        answer = solve_machines(formulation, ask, settings, beat=boot * low)
    elif low > 0.0:
        answer = solve_machines(formulation, Ask(low, low, machine_factor=factor), settings)
    else:
        answer = solve_machines(formulation, Ask(low, high, maximise_rate=True), settings)
    if answer is None:
        return None
    for _ in range(DINKELBACH_STEPS_MAX):
        rate = float(answer.flow_gbps[formulation.out_of_source].sum())
        if rate <= 0.0:
            return None
        ratio = (_cost_rate(formulation, answer, factor) - boot * low) / rate
        ask = Ask(low, high, usd_per_gbit=ratio, machine_factor=factor)
        found = solve_machines(formulation, ask, settings, start=answer)
        gain = 0.0 if found is None else boot * low - found.objective
        if found is None or gain <= settings.relative_gap * abs(ratio) * rate:
            slack = 0.0 if found is None else max(0.0, boot * low - found.bound) / max(low, rate * 1e-3)
            return answer, boot + max(ratio - slack, _relaxed_ratio(formulation, low, factor))
        answer = found
    return answer, 0.0


def _boot_floor(formulation: Formulation, job: Job, settings: SolverSettings, low: float) -> float:
    """USD per Gbit that the boot of the cheapest machines for a rate costs: b·w/8V."""
    if job.boot_s == 0.0 or formulation.shared is not None:
        return 0.0
    # What carries anything at all carries this: no link is slower.
    ask = Ask(max(low, GBPS_MIN), RATE_UNBOUNDED_GBPS, machines_only=True)
    cheapest_machines = solve_machines(formulation, ask, settings)
    return 0.0 if cheapest_machines is None else cheapest_machines.bound * job.boot_s / job.gbit


def _relaxed_ratio(formulation: Formulation, low: float, factor: float) -> float:
    """A bound on R/T from `low` on, where there is a relaxation: its R is convex and zero at zero, so R/T rises."""
    if formulation.shared is None:
        return 0.0
    rate = max(low, RATE_SMALL_GBPS)
    relaxed = formulation.shared.relax(Ask(rate, rate, machine_factor=factor))
    return max(0.0, relaxed.bound / rate) if relaxed.feasible else 0.0


def _cost_rate(formulation: Formulation, answer: Answer, factor: float) -> float:
    machines = float(formulation.machine_usd_per_s @ answer.machines)
    return float(formulation.egress_usd_per_s @ answer.flow_gbps) + machines * factor


def _best_for_machines(
    formulation: Formulation, job: Job, settings: SolverSettings, answer: Answer, rate_min_gbps: float
) -> Point:
    """The cheapest use of one set of machines at at least a rate. Their boot is then a constant: plain Dinkelbach."""
    best = Point.of(formulation, job, answer)
    for _ in range(DINKELBACH_STEPS_MAX):
        ratio = _cost_rate(formulation, best.answer, 1.0) / best.rate_gbps
        ask = Ask(rate_min_gbps, RATE_UNBOUNDED_GBPS, usd_per_gbit=ratio)
        found = solve_flows(formulation, ask, answer.machines, settings)
        if found is None:
            break
        point = Point.of(formulation, job, found)
        if point.cost_usd >= best.cost_usd * (1 - settings.relative_gap):
            break
        best = point
    return best


def _fastest_for_machines(
    formulation: Formulation, job: Job, settings: SolverSettings, answer: Answer, ceiling_usd_per_gbit: float
) -> Point | None:
    """The fastest use of one set of machines under the ceiling, their boot paid first."""
    boot_usd = float(formulation.machine_usd_per_s @ answer.machines) * job.boot_s
    left = ceiling_usd_per_gbit - boot_usd / job.gbit
    if left <= 0.0:
        return None
    ask = Ask(0.0, RATE_UNBOUNDED_GBPS, maximise_rate=True, ceiling_usd_per_gbit=left)
    found = solve_flows(formulation, ask, answer.machines, settings)
    return None if found is None or found.objective <= 0.0 else Point.of(formulation, job, found)


def _cheapest_at_same_rate(
    formulation: Formulation, job: Job, settings: SolverSettings, best: Point, ceiling_usd: float, gap: float
) -> Point:
    """Among the fastest, the cheapest. Where the ceiling binds there is nothing to gain."""
    if best.cost_usd >= ceiling_usd * (1 - settings.relative_gap):
        return Point(best.answer, best.rate_gbps, best.cost_usd, gap)
    factor = job.machine_factor(best.rate_gbps)
    ask = Ask(best.rate_gbps * (1 - RATE_SLACK), RATE_UNBOUNDED_GBPS, machine_factor=factor)
    answer = solve_machines(formulation, ask, settings, start=best.answer)
    point = best if answer is None else Point.of(formulation, job, answer)
    if point.cost_usd > best.cost_usd:
        point = best
    return Point(point.answer, point.rate_gbps, point.cost_usd, gap)


def _relative_gap(answer: Answer) -> float:
    return abs(answer.objective - answer.bound) / max(abs(answer.objective), 1e-12)
