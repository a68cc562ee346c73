"""Each goal as a short sequence of exact solves.

With T the rate, R the rate of cost [USD/s] and boot time b, a transfer of V GB costs

    C = R · 8V/T + b · Σ N vm + requests.

- *exactly a rate*: T is a constant, so C is linear: one solve (the paper's reformulation).
- *at least a rate, cheapest*: minimise R/T by Dinkelbach's method: min R − λT, then λ ← R/T, until R/T stops falling.
- *a cost ceiling*: R · 8V/T ≤ budget ⇔ R ≤ (budget / 8V) · T, linear; maximise T: one solve.
- *boot time* adds b·W·T to R·8V, where W = vm·N is the price of all machines. That is not linear.

Boot time with one destination: see `boot_windows`. With several destinations it is counted as at the lower end of a
window, every solution is evaluated at its true cost, and windows are halved until bound and incumbent meet.
"""

from __future__ import annotations

import heapq

from tradewind.errors import SolverLimitReached
from tradewind.model.records import replace
from tradewind.planner.allocation import MachineAllocator
from tradewind.planner.boot_windows import cheapest_with_boot, fastest_within_with_boot
from tradewind.planner.formulation import Formulation, Subproblem
from tradewind.planner.points import (
    DINKELBACH_STEPS_MAX,
    Demand,
    Point,
    cheapest_for_machines,
    cost_rate,
    fastest_for_machines,
)
from tradewind.planner.solver import (
    WHOLE_COLUMNS_MAX,
    Solution,
    SolverSettings,
    solve_flows,
    solve_machines,
)

__all__ = ["cheapest", "cheapest_exactly", "fastest", "fastest_within", "soonest"]

RATE_SMALL_GBPS = 1e-2
"""Below any requested rate."""
RATE_SLACK = 1e-9
"""Relative; lets a second solve reach the rate of a first one in spite of rounding."""
SOONEST_TIE_S = 2.0
SOONEST_TIE = 0.02
"""A plan that ends up to two seconds later, or this share of the whole time, counts as equally early."""
MULTICAST_BOOT_GAP = 1e-3
"""Relative gap at which, with several destinations, the windows of boot time stop being halved."""
MULTICAST_WINDOW_GAP = MULTICAST_BOOT_GAP / 2
"""Relative gap of the solves of a window."""
LATER_SOLVE_S = 5.0
"""With several destinations: time limit of each solve that only looks for a better answer than the known one."""


def cheapest_exactly(
    formulation: Formulation, demand: Demand, rate_gbps: float, settings: SolverSettings
) -> Point | None:
    """Return the cheapest plan at exactly a rate; ``None`` if the rate is out of reach."""
    if rate_gbps > demand.rate_max_gbps:
        return None
    subproblem = Subproblem(rate_gbps, rate_gbps, machine_factor=demand.machine_factor(rate_gbps))
    solution = solve_machines(formulation, subproblem, settings.with_new_budget())
    return None if solution is None else Point.of(formulation, demand, solution, _relative_gap(solution))


def fastest(
    formulation: Formulation, demand: Demand, settings: SolverSettings, *, cheapest_too: bool = True
) -> Point | None:
    """Return the cheapest plan at the highest possible rate; ``None`` if the sink is unreachable."""
    settings = settings.with_new_budget()
    everything = Subproblem(0.0, demand.rate_max_gbps, maximise_rate=True)
    machines = None if _too_wide(formulation) else MachineAllocator(formulation).strongest()
    if machines is None:
        top = solve_machines(formulation, everything, settings)
    else:
        # Additional machines never slow a plan: all allowed machines give the highest rate, by a linear program.
        top = solve_flows(formulation, everything, machines, settings)
    if top is None or top.objective <= 0.0:
        return None
    rate = top.objective
    if not cheapest_too:
        return Point.of(formulation, demand, top, _relative_gap(top))
    subproblem = Subproblem(rate * (1 - RATE_SLACK), demand.rate_max_gbps, machine_factor=demand.machine_factor(rate))
    solution = solve_machines(formulation, subproblem, settings, start=top) or top
    return Point.of(formulation, demand, solution, max(_relative_gap(top), _relative_gap(solution)))


def soonest(formulation: Formulation, demand: Demand, settings: SolverSettings) -> Point | None:
    """Return the cheapest of the plans that end earliest, or too little later to pay for the difference."""
    top = fastest(formulation, demand, settings, cheapest_too=False)
    if top is None:
        return None
    transfer_s = demand.gbit / top.rate_gbps
    tie_s = max(SOONEST_TIE_S, SOONEST_TIE * (demand.boot_s + transfer_s))
    rate_gbps = demand.gbit / (transfer_s + tie_s)
    try:
        return cheapest(formulation, demand, settings, rate_min_gbps=rate_gbps)
    except SolverLimitReached:
        if formulation.shared is None:
            raise
        usd_per_gbit = _relaxed_ratio(formulation, rate_gbps, demand.machine_factor(rate_gbps), settings)
        gap = 1.0 - (usd_per_gbit * demand.gbit + demand.requests_usd) / top.cost_usd
        return replace(top, solution=replace(top.solution, optimal=False), gap=max(0.0, gap))


def _too_wide(formulation: Formulation) -> bool:
    """Return whether a solve with machines in every region takes at least as long as choosing regions first."""
    return formulation.shared is not None and formulation.link_count > WHOLE_COLUMNS_MAX


def cheapest(
    formulation: Formulation,
    demand: Demand,
    settings: SolverSettings,
    *,
    rate_min_gbps: float = 0.0,
) -> Point | None:
    """Return the cheapest plan at a minimum rate; ``None`` if the rate is out of reach."""
    if formulation.is_free:
        found = fastest(formulation, demand, settings)
        return found if found is not None and found.rate_gbps >= rate_min_gbps else None
    if rate_min_gbps > demand.rate_max_gbps:
        return None
    settings = settings.with_new_budget()
    if demand.boot_s > 0.0 and formulation.shared is None:
        return cheapest_with_boot(formulation, demand, settings, rate_min_gbps)
    best: Point | None = None
    bound = float("inf")
    windows = [(0.0, rate_min_gbps, demand.rate_max_gbps)]
    for _ in range(settings.windows_max):
        if not windows:
            break
        lower_bound, low, high = heapq.heappop(windows)
        if best is not None and lower_bound >= best.cost_usd * (1 - MULTICAST_BOOT_GAP):
            bound = min(bound, lower_bound)
            continue
        try:
            ratio = _least_ratio(formulation, demand, settings, low, high)
        except SolverLimitReached:
            if best is None:
                raise
            bound = min(bound, lower_bound)  # a plan that was not found there is part of the gap
            continue
        if ratio is None:
            continue
        solution, usd_per_gbit_min = ratio
        lower_bound = max(lower_bound, usd_per_gbit_min * demand.gbit + demand.requests_usd)
        point = cheapest_for_machines(formulation, demand, settings, solution, rate_min_gbps)
        if best is None or point.cost_usd < best.cost_usd:
            best = point
        if demand.boot_s == 0.0 or lower_bound >= best.cost_usd * (1 - MULTICAST_BOOT_GAP):
            bound = min(bound, lower_bound)
            continue
        middle = (low + float(solution.flow_gbps[formulation.out_of_source].sum())) / 2
        heapq.heappush(windows, (lower_bound, low, middle))
        heapq.heappush(windows, (lower_bound, middle, high))
    if best is None:
        return None
    bound = min([bound, *(lower_bound for lower_bound, _, _ in windows)])
    return Point(best.solution, best.rate_gbps, best.cost_usd, max(0.0, (best.cost_usd - bound) / best.cost_usd))


def fastest_within(
    formulation: Formulation, demand: Demand, ceiling_usd: float, settings: SolverSettings
) -> Point | None:
    """Return the fastest plan for at most ``ceiling_usd``; ``None`` if nothing is that cheap."""
    ceiling = (ceiling_usd - demand.requests_usd) / demand.gbit
    if ceiling <= 0.0:
        return None
    if formulation.is_free:
        return fastest(formulation, demand, settings)
    settings = settings.with_new_budget()
    if demand.boot_s > 0.0 and formulation.shared is None:
        fastest_known = fastest_within_with_boot(formulation, demand, ceiling_usd, settings)
        return fastest_known and _cheapest_at_same_rate(formulation, demand, settings, fastest_known, ceiling_usd)
    best: Point | None = None
    rough = settings if demand.boot_s == 0.0 else replace(settings, relative_gap=MULTICAST_WINDOW_GAP)
    highest = 0.0
    windows = [(0.0, demand.rate_max_gbps)]
    for _ in range(settings.windows_max):
        if not windows:
            break
        low, high = windows.pop()
        low = max(low, best.rate_gbps if best else 0.0)
        if low > high * (1 - MULTICAST_BOOT_GAP):
            continue
        factor = demand.machine_factor(low)
        subproblem = Subproblem(low, high, maximise_rate=True, machine_factor=factor, ceiling_usd_per_gbit=ceiling)
        start = best.solution if best is not None and low <= best.rate_gbps else None
        try:
            relaxed = solve_machines(formulation, subproblem, rough, start=start)
        except SolverLimitReached:
            if best is not None:
                highest = max(highest, high)  # a plan that was not found there is part of the gap
                continue
            if formulation.shared is None:
                raise
            best = cheapest(formulation, demand, settings)
            if best is None or best.cost_usd > ceiling_usd:
                raise
            # Solve again from a known plan, below the rate that no plan exceeds.
            windows.append((low, min(high, formulation.shared.relax(subproblem, settings.budget).bound)))
            continue
        if relaxed is None or relaxed.objective <= 0.0:
            continue
        point = fastest_for_machines(formulation, demand, settings, relaxed, ceiling)
        if point is not None and (best is None or point.rate_gbps > best.rate_gbps):
            best = point
            if formulation.shared is not None:
                rough = replace(rough, time_limit_s=min(rough.time_limit_s, LATER_SOLVE_S))
        reached = best.rate_gbps if best else 0.0
        if demand.boot_s == 0.0 or relaxed.bound <= reached * (1 + MULTICAST_BOOT_GAP):
            highest = max(highest, relaxed.bound)
            continue
        middle = (max(low, reached) + relaxed.bound) / 2
        windows += [(max(low, reached), middle), (middle, relaxed.bound)]
    if best is None:
        return None
    highest = max([highest, *(high for _, high in windows)])
    best = replace(best, gap=max(0.0, (highest - best.rate_gbps) / best.rate_gbps))
    return _cheapest_at_same_rate(formulation, demand, settings, best, ceiling_usd)


def _least_ratio(
    formulation: Formulation, demand: Demand, settings: SolverSettings, low: float, high: float
) -> tuple[Solution, float] | None:
    """Minimise R/T in a window of rates by Dinkelbach's method, with boot time as at its lower end; also return a
    bound.

    ``None`` if there is no plan.
    """
    factor = demand.machine_factor(low)
    if low > 0.0:
        solution = solve_machines(formulation, Subproblem(low, low, machine_factor=factor), settings)
    else:
        solution = solve_machines(formulation, Subproblem(low, high, maximise_rate=True), settings)
    if solution is None:
        return None
    for _ in range(DINKELBACH_STEPS_MAX):
        rate = float(solution.flow_gbps[formulation.out_of_source].sum())
        if rate <= 0.0:
            return None
        ratio = cost_rate(formulation, solution, factor) / rate
        subproblem = Subproblem(low, high, usd_per_gbit=ratio, machine_factor=factor)
        found = solve_machines(formulation, subproblem, settings, start=solution)
        gain = 0.0 if found is None else -found.objective
        if found is None or gain <= settings.relative_gap * abs(ratio) * rate:
            slack = 0.0 if found is None else max(0.0, -found.bound) / max(low, rate * 1e-3)
            return solution, max(ratio - slack, _relaxed_ratio(formulation, low, factor, settings))
        solution = found
    return solution, 0.0


def _relaxed_ratio(formulation: Formulation, low: float, factor: float, settings: SolverSettings) -> float:
    """Return a lower bound on R/T from `low` on, if relaxed: R is convex and zero at zero, so R/T rises."""
    if formulation.shared is None:
        return 0.0
    rate = max(low, RATE_SMALL_GBPS)
    relaxed = formulation.shared.relax(Subproblem(rate, rate, machine_factor=factor), settings.budget)
    return max(0.0, relaxed.bound / rate) if relaxed.feasible else 0.0


def _cheapest_at_same_rate(
    formulation: Formulation, demand: Demand, settings: SolverSettings, best: Point, ceiling_usd: float
) -> Point:
    """Return the cheapest of the fastest plans. If the ceiling binds, there is nothing to gain."""
    if best.cost_usd >= ceiling_usd * (1 - settings.relative_gap):
        return best
    factor = demand.machine_factor(best.rate_gbps)
    subproblem = Subproblem(best.rate_gbps * (1 - RATE_SLACK), demand.rate_max_gbps, machine_factor=factor)
    solution = solve_machines(formulation, subproblem, settings, start=best.solution)
    point = best if solution is None else Point.of(formulation, demand, solution)
    return best if point.cost_usd > best.cost_usd else replace(point, gap=best.gap)


def _relative_gap(solution: Solution) -> float:
    return abs(solution.objective - solution.bound) / max(abs(solution.objective), 1e-12)
