"""The cheapest and the fastest plan when the boot time of machines counts.

With one destination, boot time is handled in windows of rates [l, u] in which machines cost w to w'. Two planes lie
under W·T there (`formulation.BootWindow`). With these planes, one solve shows whether anything in the window beats the
incumbent. If not, the window is proven. If so, the machines found are evaluated at their best use and true cost, and
the window is cut in two at their rate: at the ends of a window the planes equal W·T. If the work limit is reached
before the proof is complete, the answer has a gap. Several destinations: see `goals`.
"""

from __future__ import annotations

import heapq
import math

from tradewind.model.records import replace
from tradewind.planner.allocation import MachineAllocator
from tradewind.planner.formulation import BootWindow, Formulation, Subproblem
from tradewind.planner.network import GBPS_MIN
from tradewind.planner.points import Demand, Point, cheapest_for_machines, fastest_for_machines
from tradewind.planner.solver import (
    SolverSettings,
    least_relaxed,
    solve_flows,
    solve_machines,
    solve_with_cutoff,
)

__all__ = ["BOOT_GAP", "cheapest_with_boot", "fastest_within_with_boot"]

BOOT_GAP = 5e-7
"""Relative; smaller improvements are not searched for."""
CUT_MIN = 1e-3
"""Minimum relative distance between a cut and both ends of its window."""
RATE_TRIES = 7
"""Rates tried for a first answer under a ceiling; each halves the remaining interval."""
RATE_TRY_RELAXATIONS_MAX = 12
WIDE = 1.5
"""Ratio of a window's ends above which it is cut before any solve: boot would be counted too low in it."""
RELAXATIONS_MAX = 60
"""Share for one window: if it is undecided by then, two halves of it are easier."""
WINDOW_MIN = 1e-9
"""Relative width of a window that is not cut any further."""
POLISH_ROUNDS_MAX = 6
"""Alternations between the best machines for a rate and the best rate for machines, from a first answer."""


def cheapest_with_boot(
    formulation: Formulation, demand: Demand, settings: SolverSettings, rate_min_gbps: float
) -> Point | None:
    """Return the cheapest plan at a minimum rate; ``None`` if the rate is out of reach."""
    limited = replace(settings, relaxations_max=RELAXATIONS_MAX)
    best = _first(formulation, demand, limited, rate_min_gbps)
    if best is None:
        return None
    bounds = _RelaxationBounds(formulation, demand, settings)
    low = max(rate_min_gbps, bounds.rate_min(best.cost_usd))
    windows = [(bounds.relaxed_usd(low), low, max(low, bounds.rate_max))]
    proven = math.inf
    while windows and windows[0][0] < best.cost_usd * (1 - BOOT_GAP) and not settings.budget.spent:
        lower_bound, low, high = heapq.heappop(windows)
        usd_per_gbit = (best.cost_usd * (1 - BOOT_GAP) - demand.requests_usd) / demand.gbit
        boot = bounds.window(low, high, best.cost_usd)
        if boot is None:
            continue
        lower_bound = max(lower_bound, bounds.cost_usd(boot.machines_usd_per_s_min, high), bounds.relaxed_usd(low))
        if high > WIDE * low:
            middle = math.sqrt(low * high)
            heapq.heappush(windows, (lower_bound, low, middle))
            heapq.heappush(windows, (lower_bound, middle, high))
            continue
        subproblem = Subproblem(low, high, usd_per_gbit=usd_per_gbit, boot=boot)
        found = solve_with_cutoff(formulation, subproblem, limited, 0.0)
        lower_bound = max(lower_bound, (usd_per_gbit + min(0.0, found.bound) / low) * demand.gbit + demand.requests_usd)
        cut = math.sqrt(low * high)
        if found.solution is not None:
            point = cheapest_for_machines(formulation, demand, settings, found.solution, rate_min_gbps)
            if point.cost_usd < best.cost_usd:
                best = _polished(formulation, demand, limited, point, rate_min_gbps)
            cut = Point.of(formulation, demand, found.solution).rate_gbps
        if lower_bound >= best.cost_usd * (1 - BOOT_GAP) or high <= low * (1 + WINDOW_MIN):
            proven = min(proven, lower_bound)
            continue
        cut = _inside(low, cut, high)
        heapq.heappush(windows, (lower_bound, low, cut))
        heapq.heappush(windows, (lower_bound, cut, high))
    lower_bound = min([proven, best.cost_usd, *(lower_bound for lower_bound, _, _ in windows)])
    return _with_gap(best, (best.cost_usd - lower_bound) / best.cost_usd)


def fastest_within_with_boot(
    formulation: Formulation, demand: Demand, ceiling_usd: float, settings: SolverSettings
) -> Point | None:
    """Return the fastest plan for at most ``ceiling_usd``; ``None`` if nothing that cheap is found."""
    ceiling = (ceiling_usd - demand.requests_usd) / demand.gbit
    limited = replace(settings, relaxations_max=RELAXATIONS_MAX)
    cheap = _first(formulation, demand, limited, 0.0)
    if cheap is not None and cheap.cost_usd > ceiling_usd:
        cheap = cheapest_with_boot(formulation, demand, settings, 0.0)
    if cheap is None or cheap.cost_usd > ceiling_usd:
        return None
    best = fastest_for_machines(formulation, demand, settings, cheap.solution, ceiling) or cheap
    bounds = _RelaxationBounds(formulation, demand, settings)
    best = _raise_rate(formulation, demand, limited, best, ceiling, bounds.rate_max)
    windows = [(best.rate_gbps, bounds.rate_max)]
    highest = best.rate_gbps
    while windows and not settings.budget.spent:
        low, high = windows.pop()
        low = max(low, best.rate_gbps * (1 + BOOT_GAP))
        boot = bounds.window(low, high, ceiling_usd) if low < high else None
        if boot is None:
            continue
        if high > WIDE * low:
            middle = math.sqrt(low * high)
            windows += [(low, middle), (middle, high)]
            continue
        found = solve_with_cutoff(formulation, Subproblem(low, high, usd_per_gbit=ceiling, boot=boot), limited, 0.0)
        if found.solution is None and found.bound >= 0.0:
            continue
        if found.solution is not None:
            point = fastest_for_machines(formulation, demand, settings, found.solution, ceiling)
            if point is not None and point.rate_gbps > best.rate_gbps:
                best = point
        low = max(low, best.rate_gbps)
        if high <= low * (1 + WINDOW_MIN):
            highest = max(highest, high)
            continue
        cut = math.sqrt(low * high)
        windows += [(low, cut), (cut, high)]
    highest = max([highest, best.rate_gbps, *(high for _, high in windows)])
    return _with_gap(best, (highest - best.rate_gbps) / best.rate_gbps)


class _RelaxationBounds:
    """Lower and upper bounds for all plans, from relaxations and from the ends of the transfer."""

    def __init__(self, formulation: Formulation, demand: Demand, settings: SolverSettings) -> None:
        self._formulation = formulation
        self._demand = demand
        self._settings = settings
        self._allocator = MachineAllocator(formulation)
        fastest = least_relaxed(formulation, Subproblem(0.0, demand.rate_max_gbps, maximise_rate=True), settings)
        self.rate_max = min((fastest or 0.0) * (1 + BOOT_GAP), demand.rate_max_gbps)
        """No plan is faster [Gbit/s]."""
        # With machines free of charge, every flow carries at least this much: no plan needs a slower link.
        free = least_relaxed(formulation, Subproblem(GBPS_MIN, GBPS_MIN, machine_factor=0.0), settings)
        self.egress_usd = max(0.0, (free or 0.0) * (1 - BOOT_GAP)) / GBPS_MIN * demand.gbit
        """No plan pays less for egress."""

    def rate_min(self, cost_usd: float) -> float:
        """Return the minimum rate of plans that cost at most this: C ≥ egress + W · (8V/T + b)."""
        machines = self._allocator.endpoints_usd_per_s(GBPS_MIN)
        left_usd = cost_usd - self._demand.requests_usd - self.egress_usd - machines * self._demand.boot_s
        return self._demand.gbit * machines / left_usd if left_usd > 0.0 else GBPS_MIN

    def cost_usd(self, machines_usd_per_s: float, rate_gbps: float) -> float:
        """Return a lower bound on the cost of plans with machines at this price or more, no faster than this rate."""
        time_s = self._demand.boot_s + self._demand.gbit / rate_gbps
        return self._demand.requests_usd + self.egress_usd + machines_usd_per_s * time_s

    def relaxed_usd(self, rate_gbps: float) -> float:
        """Return a lower bound on the cost of plans at least this fast: relaxed R is convex, and zero at zero."""
        subproblem = Subproblem(rate_gbps, rate_gbps, machine_factor=self._demand.machine_factor(rate_gbps))
        relaxed = least_relaxed(self._formulation, subproblem, self._settings)
        return (
            0.0
            if relaxed is None
            else relaxed * (1 - BOOT_GAP / 5) / rate_gbps * self._demand.gbit + self._demand.requests_usd
        )

    def window(self, low: float, high: float, cost_usd: float) -> BootWindow | None:
        """Return the price range of machines in a window of rates; ``None`` if no plan costs at most ``cost_usd``."""
        relaxed = least_relaxed(self._formulation, Subproblem(low, low, machines_only=True), self._settings)
        if relaxed is None:
            return None
        least = max(relaxed * (1 - BOOT_GAP), self._allocator.endpoints_usd_per_s(low))
        left_usd = cost_usd - self._demand.requests_usd - self.egress_usd
        most = left_usd / (self._demand.boot_s + self._demand.gbit / high)
        return BootWindow(self._demand.boot_s / self._demand.gbit, least, most) if least <= most else None


def _first(formulation: Formulation, demand: Demand, settings: SolverSettings, rate_min_gbps: float) -> Point | None:
    """Return a good answer, from the cheapest at exactly the rate; ``None`` if the rate is out of reach."""
    rate = max(rate_min_gbps, GBPS_MIN)
    subproblem = Subproblem(rate, rate, machine_factor=demand.machine_factor(rate))
    machines = MachineAllocator(formulation).strongest()
    start = None if machines is None else solve_flows(formulation, subproblem, machines, settings)
    if machines is not None and start is None:
        return None
    solution = solve_machines(formulation, subproblem, settings, start=start)
    if solution is None:
        return None
    point = cheapest_for_machines(formulation, demand, settings, solution, rate_min_gbps)
    return _polished(formulation, demand, settings, point, rate_min_gbps)


def _polished(
    formulation: Formulation, demand: Demand, settings: SolverSettings, point: Point, rate_min_gbps: float
) -> Point:
    """Improve an answer: find the best machines for its rate, then the best rate for these machines, repeatedly."""
    for _ in range(POLISH_ROUNDS_MAX):
        rate = point.rate_gbps
        subproblem = Subproblem(rate, rate, machine_factor=demand.machine_factor(rate))
        solution = solve_machines(formulation, subproblem, settings, start=point.solution)
        if solution is None:
            break
        better = cheapest_for_machines(formulation, demand, settings, solution, rate_min_gbps)
        if better.cost_usd >= point.cost_usd * (1 - BOOT_GAP):
            break
        point = better
    return point


def _raise_rate(
    formulation: Formulation,
    demand: Demand,
    settings: SolverSettings,
    best: Point,
    ceiling: float,
    rate_max_gbps: float,
) -> Point:
    """Return a faster answer under the ceiling [USD/Gbit], from the cheapest at a few higher rates."""
    brief = replace(settings, relaxations_max=RATE_TRY_RELAXATIONS_MAX)
    low, high = best.rate_gbps, rate_max_gbps
    for _ in range(RATE_TRIES):
        rate = math.sqrt(low * high)
        subproblem = Subproblem(rate, rate, usd_per_gbit=ceiling, machine_factor=demand.machine_factor(rate))
        found = solve_with_cutoff(formulation, subproblem, brief, 0.0)
        reached = best.rate_gbps
        if found.solution is not None:
            point = fastest_for_machines(formulation, demand, settings, found.solution, ceiling)
            best = point if point is not None and point.rate_gbps > reached else best
        if best.rate_gbps > reached:
            low = best.rate_gbps
        else:
            high = rate
    return best


def _inside(low: float, cut: float, high: float) -> float:
    """Return where to cut a window: not too close to an end, so that both parts have a width."""
    margin = CUT_MIN * (high - low)
    return cut if low + margin < cut < high - margin else (low + high) / 2


def _with_gap(point: Point, gap: float) -> Point:
    gap = max(0.0, gap)
    return Point(replace(point.solution, optimal=gap <= 2 * BOOT_GAP), point.rate_gbps, point.cost_usd, gap)
