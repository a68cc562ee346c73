"""Each goal as a short sequence of exact solves.

With T the rate, R the rate of cost [USD/s] and boot time b, a transfer of V GB costs

    C = R · 8V/T + b · Σ N vm + requests.

- *exactly a rate*: T is a constant, so C is linear: one solve (the paper's reformulation).
- *at least a rate, cheapest*: minimise R/T by Dinkelbach's method: min R − λT, then λ ← R/T, until R/T stops falling.
- *a cost ceiling*: R · 8V/T ≤ budget ⇔ R ≤ (budget / 8V) · T, linear; maximise T: one solve.
- *boot time* adds b·W·T to R·8V, where W = vm·N is the price of all machines. That is not linear.

With one destination, boot time is handled in windows of rates [l, u] in which machines cost w to w'. Two planes lie
under W·T there (`formulation.BootWindow`). With these planes, one solve shows whether anything in the window beats the
incumbent. If not, the window is proven. If so, the machines found are evaluated at their best use and true cost, and
the window is cut in two at their rate: at the ends of a window the planes equal W·T. With several destinations, boot
time is counted as at the lower end of a window, every solution is evaluated at its true cost, and windows are halved
until bound and incumbent meet. If the work limit is reached before the proof is complete, the answer has a gap.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

from tradewind.errors import SolverLimitReached
from tradewind.model.overlay import RegionMachines
from tradewind.model.records import dataclass, replace
from tradewind.model.requests import ObjectSet
from tradewind.model.units import BITS_PER_BYTE
from tradewind.planner.allocation import MachineAllocator
from tradewind.planner.formulation import BootWindow, Formulation, Subproblem
from tradewind.planner.network import GBPS_MIN, IntArray
from tradewind.planner.solver import (
    WHOLE_COLUMNS_MAX,
    Solution,
    SolverSettings,
    least_relaxed,
    solve_flows,
    solve_machines,
    solve_with_cutoff,
)

__all__ = [
    "BOOT_GAP",
    "DINKELBACH_STEPS_MAX",
    "RATE_UNBOUNDED_GBPS",
    "Demand",
    "Point",
    "RelaxationBounds",
    "all_machines",
    "cheapest",
    "cheapest_exactly",
    "cheapest_for_machines",
    "cheapest_with_boot",
    "cost_rate",
    "fastest",
    "fastest_for_machines",
    "fastest_within",
    "fastest_within_with_boot",
    "soonest",
]

RATE_UNBOUNDED_GBPS = 1e6
PROVEN_GAP = 2e-6
"""Relative; an answer with a smaller gap counts as proven."""
DINKELBACH_STEPS_MAX = 30
"""Maximum steps of Dinkelbach's method. Never reached: it converges superlinearly, in two to five steps here."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Volume and boot time of a transfer, as far as costs depend on them."""

    volume_gb: float
    boot_s: float = 0.0
    requests_usd: float = 0.0
    objects: ObjectSet | None = None
    """The objects whose requests are charged."""
    boot_given: bool = False
    """True if all machines take ``boot_s`` to start; otherwise ``boot_s`` is the longest permitted wait of a plan."""

    def boot_of(self, machines: Iterable[RegionMachines]) -> float:
        """Return the seconds until the slowest of these machines answers."""
        return self.boot_s if self.boot_given else max((m.offer.machine.boot_s for m in machines), default=0.0)

    @property
    def gbit(self) -> float:
        """Volume in Gbit."""
        return BITS_PER_BYTE * self.volume_gb

    @property
    def object_count(self) -> int | None:
        """Number of objects, if it is known or assumed."""
        return None if self.objects is None else self.objects.count

    def machine_factor(self, rate_gbps: float) -> float:
        """Return the weight of machine prices in R that also pays for boot time at one rate."""
        return 1.0 + rate_gbps * self.boot_s / self.gbit


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """An answer with its true rate and cost, and its maximum gap to the optimum."""

    solution: Solution
    rate_gbps: float
    cost_usd: float
    gap: float = 0.0

    @property
    def proven(self) -> bool:
        """True if the answer is proven optimal: complete search and closed gap."""
        return self.solution.optimal and self.gap <= PROVEN_GAP

    @classmethod
    def of(cls, formulation: Formulation, demand: Demand, solution: Solution, gap: float = 0.0) -> Point:
        """Evaluate an answer at its true rate and cost."""
        rate = float(solution.flow_gbps[formulation.out_of_source].sum())
        machines_usd_per_s = float(formulation.machine_usd_per_s @ solution.machines)
        egress_usd_per_s = float(formulation.egress_usd_per_s @ solution.flow_gbps)
        time_s = demand.gbit / rate
        cost = egress_usd_per_s * time_s + machines_usd_per_s * (time_s + demand.boot_s) + demand.requests_usd
        return cls(solution, rate, cost, gap)


def cost_rate(formulation: Formulation, solution: Solution, factor: float) -> float:
    """R [USD/s], machines counted ``factor`` times."""
    machines = float(formulation.machine_usd_per_s @ solution.machines)
    return float(formulation.egress_usd_per_s @ solution.flow_gbps) + machines * factor


def cheapest_for_machines(
    formulation: Formulation, demand: Demand, settings: SolverSettings, solution: Solution, rate_min_gbps: float
) -> Point:
    """Return the cheapest use of one set of machines at a minimum rate. Their boot is then a constant: plain
    Dinkelbach.
    """
    best = Point.of(formulation, demand, solution)
    for _ in range(DINKELBACH_STEPS_MAX):
        ratio = cost_rate(formulation, best.solution, 1.0) / best.rate_gbps
        subproblem = Subproblem(rate_min_gbps, RATE_UNBOUNDED_GBPS, usd_per_gbit=ratio)
        found = solve_flows(formulation, subproblem, solution.machines, settings)
        if found is None:
            break
        point = Point.of(formulation, demand, found)
        if point.cost_usd >= best.cost_usd * (1 - settings.relative_gap):
            break
        best = point
    return best


def fastest_for_machines(
    formulation: Formulation, demand: Demand, settings: SolverSettings, solution: Solution, ceiling_usd_per_gbit: float
) -> Point | None:
    """Return the fastest use of one set of machines under the ceiling, after their boot is paid."""
    boot_usd = float(formulation.machine_usd_per_s @ solution.machines) * demand.boot_s
    left = ceiling_usd_per_gbit - boot_usd / demand.gbit
    if left <= 0.0:
        return None
    subproblem = Subproblem(0.0, RATE_UNBOUNDED_GBPS, maximise_rate=True, ceiling_usd_per_gbit=left)
    found = solve_flows(formulation, subproblem, solution.machines, settings)
    return None if found is None or found.objective <= 0.0 else Point.of(formulation, demand, found)


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
    formulation: Formulation, demand: Demand, settings: SolverSettings, rate_min_gbps: float, rate_max_gbps: float
) -> Point | None:
    """Return the cheapest plan at a minimum rate; ``None`` if the rate is out of reach."""
    limited = replace(settings, relaxations_max=RELAXATIONS_MAX)
    best = _first(formulation, demand, limited, rate_min_gbps)
    if best is None:
        return None
    bounds = RelaxationBounds(formulation, demand, settings)
    low = max(rate_min_gbps, bounds.rate_min(best.cost_usd))
    windows = [(bounds.relaxed_usd(low), low, max(low, min(rate_max_gbps, bounds.rate_max)))]
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
        cheap = cheapest_with_boot(formulation, demand, settings, 0.0, RATE_UNBOUNDED_GBPS)
    if cheap is None or cheap.cost_usd > ceiling_usd:
        return None
    best = fastest_for_machines(formulation, demand, settings, cheap.solution, ceiling) or cheap
    bounds = RelaxationBounds(formulation, demand, settings)
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


class RelaxationBounds:
    """Lower and upper bounds for all plans, from relaxations and from the ends of the transfer."""

    def __init__(self, formulation: Formulation, demand: Demand, settings: SolverSettings) -> None:
        self._formulation = formulation
        self._demand = demand
        self._settings = settings
        self._allocator = MachineAllocator(formulation)
        fastest = least_relaxed(formulation, Subproblem(0.0, RATE_UNBOUNDED_GBPS, maximise_rate=True), settings)
        self.rate_max = (fastest or 0.0) * (1 + BOOT_GAP)
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


def all_machines(formulation: Formulation) -> IntArray | None:
    """Return every machine of the strongest type per region; ``None`` if none is strongest in all respects."""
    return MachineAllocator(formulation).strongest()


def _first(formulation: Formulation, demand: Demand, settings: SolverSettings, rate_min_gbps: float) -> Point | None:
    """Return a good answer, from the cheapest at exactly the rate; ``None`` if the rate is out of reach."""
    rate = max(rate_min_gbps, GBPS_MIN)
    subproblem = Subproblem(rate, rate, machine_factor=demand.machine_factor(rate))
    machines = all_machines(formulation)
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
    subproblem = Subproblem(rate_gbps, rate_gbps, machine_factor=demand.machine_factor(rate_gbps))
    solution = solve_machines(formulation, subproblem, settings.with_new_budget())
    return None if solution is None else Point.of(formulation, demand, solution, _relative_gap(solution))


def fastest(
    formulation: Formulation, demand: Demand, settings: SolverSettings, *, cheapest_too: bool = True
) -> Point | None:
    """Return the cheapest plan at the highest possible rate; ``None`` if the sink is unreachable."""
    settings = settings.with_new_budget()
    everything = Subproblem(0.0, RATE_UNBOUNDED_GBPS, maximise_rate=True)
    machines = None if _too_wide(formulation) else all_machines(formulation)
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
    subproblem = Subproblem(rate * (1 - RATE_SLACK), RATE_UNBOUNDED_GBPS, machine_factor=demand.machine_factor(rate))
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
    rate_max_gbps: float = RATE_UNBOUNDED_GBPS,
) -> Point | None:
    """Return the cheapest plan at a minimum rate; ``None`` if the rate is out of reach."""
    if formulation.is_free:
        found = fastest(formulation, demand, settings)
        return found if found is not None and found.rate_gbps >= rate_min_gbps else None
    settings = settings.with_new_budget()
    if demand.boot_s > 0.0 and formulation.shared is None:
        return cheapest_with_boot(formulation, demand, settings, rate_min_gbps, rate_max_gbps)
    best: Point | None = None
    bound = float("inf")
    windows = [(0.0, rate_min_gbps, rate_max_gbps)]
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
    windows = [(0.0, RATE_UNBOUNDED_GBPS)]
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
    subproblem = Subproblem(best.rate_gbps * (1 - RATE_SLACK), RATE_UNBOUNDED_GBPS, machine_factor=factor)
    solution = solve_machines(formulation, subproblem, settings, start=best.solution)
    point = best if solution is None else Point.of(formulation, demand, solution)
    return best if point.cost_usd > best.cost_usd else replace(point, gap=best.gap)


def _relative_gap(solution: Solution) -> float:
    return abs(solution.objective - solution.bound) / max(abs(solution.objective), 1e-12)
