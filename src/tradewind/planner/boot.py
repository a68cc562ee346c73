"""The cheapest plan, and the fastest under a ceiling, where machines are paid while they start (one destination).

Boot time b adds b·W·T to R·8V, W being what the machines cost, and that is not linear. In a window of rates [l, u] in
which machines cost w to w', two planes lie under W·T (`formulation.BootWindow`); with them instead of it, one solve
says whether anything in the window beats the best that is known. If not, the window is proven. If so, the machines
found are used as well as they can be, as they truly cost, and the window is cut in two where they were found: at its
ends the planes are W·T itself. What is not proven when the work of a question is done remains as its answer's gap.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import replace

from tradewind.planner.formulation import Ask, BootWindow, Formulation
from tradewind.planner.network import GBPS_MIN, IntArray
from tradewind.planner.point import RATE_UNBOUNDED_GBPS, Job, Point, cheapest_for_machines, fastest_for_machines
from tradewind.planner.solver import SolverSettings, challenge, least_relaxed, solve_flows, solve_machines
from tradewind.planner.staffing import Staff

__all__ = ["GAP", "Floors", "all_machines", "cheapest_with_boot", "fastest_within_with_boot"]

GAP = 5e-7
"""Relative; what is better by less is not looked for."""
CUT_MIN = 1e-3
"""Relative distance from both ends of a window at which it is cut."""
CLIMBS = 7
"""Rates tried for a first answer under a ceiling, each halving what is left."""
CLIMB_RELAXATIONS_MAX = 12
WIDE = 1.5
"""Ratio of the ends of a window from which it is cut before anything is asked: boot is counted too low in it."""
RELAXATIONS_MAX = 60
"""Of one window: what has not been decided by then is easier in two parts of it."""
WINDOW_MIN = 1e-9
"""Relative width of a window that is not cut any further."""
STEPS_MAX = 6
"""Turns between the best machines for a rate and the best rate for machines, from a first answer."""


def cheapest_with_boot(
    formulation: Formulation, job: Job, settings: SolverSettings, rate_min_gbps: float, rate_max_gbps: float
) -> Point | None:
    """Cheapest at at least a rate; ``None`` if the rate is out of reach."""
    hasty = replace(settings, relaxations_max=RELAXATIONS_MAX)
    best = _first(formulation, job, hasty, rate_min_gbps)
    if best is None:
        return None
    floors = Floors(formulation, job, settings)
    low = max(rate_min_gbps, floors.rate_min(best.cost_usd))
    windows = [(floors.relaxed_usd(low), low, max(low, min(rate_max_gbps, floors.rate_max)))]
    proven = math.inf
    while windows and windows[0][0] < best.cost_usd * (1 - GAP) and not settings.meter.spent:
        floor, low, high = heapq.heappop(windows)
        usd_per_gbit = (best.cost_usd * (1 - GAP) - job.requests_usd) / job.gbit
        boot = floors.window(low, high, best.cost_usd)
        if boot is None:
            continue
        floor = max(floor, floors.cost_usd(boot.machines_usd_per_s_min, high), floors.relaxed_usd(low))
        if high > WIDE * low:
            middle = math.sqrt(low * high)
            heapq.heappush(windows, (floor, low, middle))
            heapq.heappush(windows, (floor, middle, high))
            continue
        ask = Ask(low, high, usd_per_gbit=usd_per_gbit, boot=boot)
        found = challenge(formulation, ask, hasty, 0.0)
        floor = max(floor, (usd_per_gbit + min(0.0, found.bound) / low) * job.gbit + job.requests_usd)
        cut = math.sqrt(low * high)
        if found.answer is not None:
            point = cheapest_for_machines(formulation, job, settings, found.answer, rate_min_gbps)
            if point.cost_usd < best.cost_usd:
                best = _polished(formulation, job, hasty, point, rate_min_gbps)
            cut = Point.of(formulation, job, found.answer).rate_gbps
        if floor >= best.cost_usd * (1 - GAP) or high <= low * (1 + WINDOW_MIN):
            proven = min(proven, floor)
            continue
        cut = _inside(low, cut, high)
        heapq.heappush(windows, (floor, low, cut))
        heapq.heappush(windows, (floor, cut, high))
    floor = min([proven, best.cost_usd, *(floor for floor, _, _ in windows)])
    return _with_gap(best, (best.cost_usd - floor) / best.cost_usd)


def fastest_within_with_boot(
    formulation: Formulation, job: Job, ceiling_usd: float, settings: SolverSettings
) -> Point | None:
    """Highest rate for at most ``ceiling_usd``; ``None`` if nothing that cheap is found."""
    ceiling = (ceiling_usd - job.requests_usd) / job.gbit
    hasty = replace(settings, relaxations_max=RELAXATIONS_MAX)
    cheap = _first(formulation, job, hasty, 0.0)
    if cheap is not None and cheap.cost_usd > ceiling_usd:
        cheap = cheapest_with_boot(formulation, job, settings, 0.0, RATE_UNBOUNDED_GBPS)
    if cheap is None or cheap.cost_usd > ceiling_usd:
        return None
    best = fastest_for_machines(formulation, job, settings, cheap.answer, ceiling) or cheap
    floors = Floors(formulation, job, settings)
    best = _climbed(formulation, job, hasty, best, ceiling, floors.rate_max)
    windows = [(best.rate_gbps, floors.rate_max)]
    highest = best.rate_gbps
    while windows and not settings.meter.spent:
        low, high = windows.pop()
        low = max(low, best.rate_gbps * (1 + GAP))
        boot = floors.window(low, high, ceiling_usd) if low < high else None
        if boot is None:
            continue
        if high > WIDE * low:
            middle = math.sqrt(low * high)
            windows += [(low, middle), (middle, high)]
            continue
        found = challenge(formulation, Ask(low, high, usd_per_gbit=ceiling, boot=boot), hasty, 0.0)
        if found.answer is None and found.bound >= 0.0:
            continue
        if found.answer is not None:
            point = fastest_for_machines(formulation, job, settings, found.answer, ceiling)
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


class Floors:
    """What no plan goes below, from relaxations and from the ends of the transfer."""

    def __init__(self, formulation: Formulation, job: Job, settings: SolverSettings) -> None:
        self._formulation = formulation
        self._job = job
        self._settings = settings
        self._staff = Staff(formulation)
        fastest = least_relaxed(formulation, Ask(0.0, RATE_UNBOUNDED_GBPS, maximise_rate=True), settings)
        self.rate_max = (fastest or 0.0) * (1 + GAP)
        """No plan is faster [Gbit/s]."""
        # No machines are paid, and what carries anything carries this: no link is slower.
        free = least_relaxed(formulation, Ask(GBPS_MIN, GBPS_MIN, machine_factor=0.0), settings)
        self.egress_usd = max(0.0, (free or 0.0) * (1 - GAP)) / GBPS_MIN * job.gbit
        """No plan pays less for egress."""

    def rate_min(self, cost_usd: float) -> float:
        """No plan that costs at most this is slower: C ≥ egress + W · (8V/T + b)."""
        machines = self._staff.ends_usd_per_s(GBPS_MIN)
        left_usd = cost_usd - self._job.requests_usd - self.egress_usd - machines * self._job.boot_s
        return self._job.gbit * machines / left_usd if left_usd > 0.0 else GBPS_MIN

    def cost_usd(self, machines_usd_per_s: float, rate_gbps: float) -> float:
        """No plan with machines at this price or more, and no faster, costs less."""
        time_s = self._job.boot_s + self._job.gbit / rate_gbps
        return self._job.requests_usd + self.egress_usd + machines_usd_per_s * time_s

    def relaxed_usd(self, rate_gbps: float) -> float:
        """No plan that is at least as fast costs less: with fractions of machines, R is convex and zero at zero."""
        ask = Ask(rate_gbps, rate_gbps, machine_factor=self._job.machine_factor(rate_gbps))
        relaxed = least_relaxed(self._formulation, ask, self._settings)
        return 0.0 if relaxed is None else relaxed * (1 - GAP / 5) / rate_gbps * self._job.gbit + self._job.requests_usd

    def window(self, low: float, high: float, cost_usd: float) -> BootWindow | None:
        """Least and most that machines cost in a window of rates; ``None`` if none is within ``cost_usd``."""
        relaxed = least_relaxed(self._formulation, Ask(low, low, machines_only=True), self._settings)
        if relaxed is None:
            return None
        least = max(relaxed * (1 - GAP), self._staff.ends_usd_per_s(low))
        left_usd = cost_usd - self._job.requests_usd - self.egress_usd
        most = left_usd / (self._job.boot_s + self._job.gbit / high)
        return BootWindow(self._job.boot_s / self._job.gbit, least, most) if least <= most else None


def all_machines(formulation: Formulation) -> IntArray | None:
    """All machines of the type that carries most, per region; ``None`` where none does in all respects."""
    return Staff(formulation).strongest()


def _first(formulation: Formulation, job: Job, settings: SolverSettings, rate_min_gbps: float) -> Point | None:
    """A good answer, from the cheapest at exactly the rate; ``None`` if the rate is out of reach."""
    rate = max(rate_min_gbps, GBPS_MIN)
    ask = Ask(rate, rate, machine_factor=job.machine_factor(rate))
    machines = all_machines(formulation)
    start = None if machines is None else solve_flows(formulation, ask, machines, settings)
    if machines is not None and start is None:
        return None
    answer = solve_machines(formulation, ask, settings, start=start)
    if answer is None:
        return None
    point = cheapest_for_machines(formulation, job, settings, answer, rate_min_gbps)
    return _polished(formulation, job, settings, point, rate_min_gbps)


def _polished(
    formulation: Formulation, job: Job, settings: SolverSettings, point: Point, rate_min_gbps: float
) -> Point:
    """The best machines for its rate, the best rate for these, and again."""
    for _ in range(STEPS_MAX):
        rate = point.rate_gbps
        ask = Ask(rate, rate, machine_factor=job.machine_factor(rate))
        answer = solve_machines(formulation, ask, settings, start=point.answer)
        if answer is None:
            break
        better = cheapest_for_machines(formulation, job, settings, answer, rate_min_gbps)
        if better.cost_usd >= point.cost_usd * (1 - GAP):
            break
        point = better
    return point


def _climbed(
    formulation: Formulation, job: Job, settings: SolverSettings, best: Point, ceiling: float, rate_max_gbps: float
) -> Point:
    """A faster answer under the ceiling [USD/Gbit], from the cheapest at a few rates above."""
    brief = replace(settings, relaxations_max=CLIMB_RELAXATIONS_MAX)
    low, high = best.rate_gbps, rate_max_gbps
    for _ in range(CLIMBS):
        rate = math.sqrt(low * high)
        ask = Ask(rate, rate, usd_per_gbit=ceiling, machine_factor=job.machine_factor(rate))
        found = challenge(formulation, ask, brief, 0.0)
        reached = best.rate_gbps
        if found.answer is not None:
            point = fastest_for_machines(formulation, job, settings, found.answer, ceiling)
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
    return Point(replace(point.answer, optimal=gap <= 2 * GAP), point.rate_gbps, point.cost_usd, gap)
