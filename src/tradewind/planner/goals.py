"""Each goal as a short sequence of exact solves.

With T the rate, R the rate of cost [USD/s] and boot time b, a transfer of V GB costs

    C = R · 8V/T + b · Σ N vm + requests.

- *exactly a rate*: T is a constant, so C is linear: one solve (the paper's reformulation).
- *at least a rate, cheapest*: minimise R/T by Dinkelbach's method: min R − λT, then λ ← R/T, until nothing is gained.
- *a cost ceiling*: R · 8V/T ≤ budget ⇔ R ≤ (budget / 8V) · T, linear; maximise T: one solve.
- *boot time* adds b·W·T to R·8V, with W = vm·N, which is not linear: `boot.py` for one destination. With several it is
  counted as at the lower end of a window of rates, every answer is evaluated as it truly is, and windows are halved
  until bound and best answer meet.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

from tradewind.errors import SolverLimitReached
from tradewind.planner.boot import all_machines, cheapest_with_boot, fastest_within_with_boot
from tradewind.planner.formulation import Ask, Formulation
from tradewind.planner.point import (
    RATE_UNBOUNDED_GBPS,
    STEPS_MAX,
    Job,
    Point,
    cheapest_for_machines,
    cost_rate,
    fastest_for_machines,
)
from tradewind.planner.solver import WHOLE_COLUMNS_MAX, Answer, SolverSettings, solve_flows, solve_machines

__all__ = [
    "RATE_UNBOUNDED_GBPS",
    "Job",
    "Point",
    "cheapest",
    "cheapest_exactly",
    "fastest",
    "fastest_within",
    "soonest",
]

RATE_SMALL_GBPS = 1e-2
"""Lower than any requested rate."""
RATE_SLACK = 1e-9
"""Relative; lets a second solve reach the rate of a first one in spite of rounding."""
SOONEST_TIE_S = 2.0
SOONEST_TIE = 0.02
"""A plan that ends later by two seconds, or by this share of the whole time, counts as equally early."""
BOOT_GAP = 1e-3
"""Relative gap at which, with several destinations, the windows of boot time stop being halved."""
WINDOW_GAP = BOOT_GAP / 2
"""Relative gap of the solves of a window."""
LATER_SOLVE_S = 5.0
"""With several destinations: time limit of each solve that only looks for a better answer than the known one."""


def cheapest_exactly(formulation: Formulation, job: Job, rate_gbps: float, settings: SolverSettings) -> Point | None:
    """Cheapest at exactly a rate; ``None`` if the rate is out of reach."""
    ask = Ask(rate_gbps, rate_gbps, machine_factor=job.machine_factor(rate_gbps))
    answer = solve_machines(formulation, ask, settings.afresh())
    return None if answer is None else Point.of(formulation, job, answer, _relative_gap(answer))


def fastest(formulation: Formulation, job: Job, settings: SolverSettings, *, cheapest_too: bool = True) -> Point | None:
    """The highest rate there is, and the cheapest way to it; ``None`` if the sink cannot be reached."""
    settings = settings.afresh()
    everything = Ask(0.0, RATE_UNBOUNDED_GBPS, maximise_rate=True)
    machines = None if _too_wide(formulation) else all_machines(formulation)
    if machines is None:
        top = solve_machines(formulation, everything, settings)
    else:
        # No machine slows a plan down: all that are allowed give the highest rate, and that is a linear programme.
        top = solve_flows(formulation, everything, machines, settings)
    if top is None or top.objective <= 0.0:
        return None
    rate = top.objective
    if not cheapest_too:
        return Point.of(formulation, job, top, _relative_gap(top))
    ask = Ask(rate * (1 - RATE_SLACK), RATE_UNBOUNDED_GBPS, machine_factor=job.machine_factor(rate))
    answer = solve_machines(formulation, ask, settings, start=top) or top
    return Point.of(formulation, job, answer, max(_relative_gap(top), _relative_gap(answer)))


def soonest(formulation: Formulation, job: Job, settings: SolverSettings) -> Point | None:
    """The cheapest of those that are done as soon as can be, or so little later that it is not worth paying for."""
    top = fastest(formulation, job, settings, cheapest_too=False)
    if top is None:
        return None
    transfer_s = job.gbit / top.rate_gbps
    tie_s = max(SOONEST_TIE_S, SOONEST_TIE * (job.boot_s + transfer_s))
    rate_gbps = job.gbit / (transfer_s + tie_s)
    try:
        return cheapest(formulation, job, settings, rate_min_gbps=rate_gbps)
    except SolverLimitReached:
        if formulation.shared is None:
            raise
        usd_per_gbit = _relaxed_ratio(formulation, rate_gbps, job.machine_factor(rate_gbps), settings)
        gap = 1.0 - (usd_per_gbit * job.gbit + job.requests_usd) / top.cost_usd
        return replace(top, answer=replace(top.answer, optimal=False), gap=max(0.0, gap))


def _too_wide(formulation: Formulation) -> bool:
    """Return whether flows for machines everywhere take as long as choosing regions first, or longer."""
    return formulation.shared is not None and formulation.link_count > WHOLE_COLUMNS_MAX


def cheapest(
    formulation: Formulation,
    job: Job,
    settings: SolverSettings,
    *,
    rate_min_gbps: float = 0.0,
    rate_max_gbps: float = RATE_UNBOUNDED_GBPS,
) -> Point | None:
    """Cheapest at at least a rate; ``None`` if the rate is out of reach."""
    settings = settings.afresh()
    if job.boot_s > 0.0 and formulation.shared is None:
        return cheapest_with_boot(formulation, job, settings, rate_min_gbps, rate_max_gbps)
    best: Point | None = None
    bound = float("inf")
    windows = [(0.0, rate_min_gbps, rate_max_gbps)]
    for _ in range(settings.windows_max):
        if not windows:
            break
        floor, low, high = heapq.heappop(windows)
        if best is not None and floor >= best.cost_usd * (1 - BOOT_GAP):
            bound = min(bound, floor)
            continue
        try:
            ratio = _least_ratio(formulation, job, settings, low, high)
        except SolverLimitReached:
            if best is None:
                raise
            bound = min(bound, floor)  # what may be there is part of the gap
            continue
        if ratio is None:
            continue
        answer, usd_per_gbit_min = ratio
        floor = max(floor, usd_per_gbit_min * job.gbit + job.requests_usd)
        point = cheapest_for_machines(formulation, job, settings, answer, rate_min_gbps)
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
    settings = settings.afresh()
    if job.boot_s > 0.0 and formulation.shared is None:
        fastest_known = fastest_within_with_boot(formulation, job, ceiling_usd, settings)
        return fastest_known and _cheapest_at_same_rate(formulation, job, settings, fastest_known, ceiling_usd)
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
        factor = job.machine_factor(low)
        ask = Ask(low, high, maximise_rate=True, machine_factor=factor, ceiling_usd_per_gbit=ceiling)
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
            windows.append((low, min(high, formulation.shared.relax(ask, settings.meter).bound)))
            continue
        if relaxed is None or relaxed.objective <= 0.0:
            continue
        point = fastest_for_machines(formulation, job, settings, relaxed, ceiling)
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
    best = replace(best, gap=max(0.0, (highest - best.rate_gbps) / best.rate_gbps))
    return _cheapest_at_same_rate(formulation, job, settings, best, ceiling_usd)


def _least_ratio(
    formulation: Formulation, job: Job, settings: SolverSettings, low: float, high: float
) -> tuple[Answer, float] | None:
    """Dinkelbach: the least R/T in a window of rates, boot time counted as at its lower end; and a bound.

    ``None`` if there is no plan.
    """
    factor = job.machine_factor(low)
    if low > 0.0:
        answer = solve_machines(formulation, Ask(low, low, machine_factor=factor), settings)
    else:
        answer = solve_machines(formulation, Ask(low, high, maximise_rate=True), settings)
    if answer is None:
        return None
    for _ in range(STEPS_MAX):
        rate = float(answer.flow_gbps[formulation.out_of_source].sum())
        if rate <= 0.0:
            return None
        ratio = cost_rate(formulation, answer, factor) / rate
        ask = Ask(low, high, usd_per_gbit=ratio, machine_factor=factor)
        found = solve_machines(formulation, ask, settings, start=answer)
        gain = 0.0 if found is None else -found.objective
        if found is None or gain <= settings.relative_gap * abs(ratio) * rate:
            slack = 0.0 if found is None else max(0.0, -found.bound) / max(low, rate * 1e-3)
            return answer, max(ratio - slack, _relaxed_ratio(formulation, low, factor, settings))
        answer = found
    return answer, 0.0


def _relaxed_ratio(formulation: Formulation, low: float, factor: float, settings: SolverSettings) -> float:
    """A bound on R/T from `low` on, where there is a relaxation: its R is convex and zero at zero, so R/T rises."""
    if formulation.shared is None:
        return 0.0
    rate = max(low, RATE_SMALL_GBPS)
    relaxed = formulation.shared.relax(Ask(rate, rate, machine_factor=factor), settings.meter)
    return max(0.0, relaxed.bound / rate) if relaxed.feasible else 0.0


def _cheapest_at_same_rate(
    formulation: Formulation, job: Job, settings: SolverSettings, best: Point, ceiling_usd: float
) -> Point:
    """Among the fastest, the cheapest. Where the ceiling binds there is nothing to gain."""
    if best.cost_usd >= ceiling_usd * (1 - settings.relative_gap):
        return best
    factor = job.machine_factor(best.rate_gbps)
    ask = Ask(best.rate_gbps * (1 - RATE_SLACK), RATE_UNBOUNDED_GBPS, machine_factor=factor)
    answer = solve_machines(formulation, ask, settings, start=best.answer)
    point = best if answer is None else Point.of(formulation, job, answer)
    return best if point.cost_usd > best.cost_usd else replace(point, gap=best.gap)


def _relative_gap(answer: Answer) -> float:
    return abs(answer.objective - answer.bound) / max(abs(answer.objective), 1e-12)
