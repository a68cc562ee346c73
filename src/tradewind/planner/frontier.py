"""The complete frontier, not samples of it: every rate that no cheaper plan reaches.

With a set of machines N fixed, the least rate of cost R_N(T) is the value of a linear program in its right-hand side:
convex and piecewise linear, found exactly from values and duals. With boot time b, R_N(T) + T·b·vm·N/8V is still
piecewise linear, and the cost of the transfer is 8V times its slope seen from the origin. So:

1. keep a pool of machine sets, at first those of the cheapest and of the fastest plan;
2. take the lower envelope of their functions and its efficient part: a few straight pieces in the plane (T, R);
3. for each piece, one mixed-integer solve decides whether *any* machines get below it within its window of rates.
   If so, they join the pool and step 2 is repeated there; if not, the piece is proven.

Rates between the pieces are dominated: a faster plan costs no more. They are proven in the same way, against the
straight line through the origin that represents the faster plan's cost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from tradewind.model.records import dataclass, field, replace
from tradewind.planner.formulation import Formulation, Subproblem
from tradewind.planner.goals import cheapest, fastest
from tradewind.planner.linear import WORK_MAX
from tradewind.planner.network import IntArray
from tradewind.planner.points import RATE_UNBOUNDED_GBPS, Demand, Point
from tradewind.planner.solver import SolverSettings, solve_flows, solve_with_cutoff

__all__ = ["SOLVES_MAX", "Frontier", "FrontierFormulations", "Segment", "trace_frontier"]

SOLVES_MAX = 400
"""Mixed-integer solves of one frontier, unless the caller sets less; pieces not proven by then are marked as such."""
COST_TOLERANCE = 1e-7
"""Relative: improvements smaller than this are rounding."""
END_STEPS_MAX = 8
"""Attempts to evaluate a function at the end of its range, each a billionth further inside."""
START_BELOW = 1e-3
"""Relative; functions are traced from slightly below the cheapest plan's rate, so that it is inside the range."""
EDGE = 1e-5
"""Relative width of the sliver behind a jump that is not examined."""
WINDOW_MIN = 1e-6
"""Relative width below which a window of rates is a point."""

SEGMENT_PROVEN_GAP = 1e-6
"""Relative; a piece is proven if nothing beats it by more than this."""
SEGMENT_BOOT_GAP = 1e-3
"""Relative gap of the first proof if machines are paid while they start, before `SEGMENT_PROVEN_GAP` is required."""
CUTOFF_WORK = WORK_MAX / 2
"""Work limit of one solve (`budget.WorkBudget`)."""
BOOT_CUTOFF_WORK = WORK_MAX / 5
"""The same if machines are paid while they start: then pieces are many, and more work seldom proves them."""
BOUND_ROUNDING = 1e-3
"""Share of the required gap by which a solver's bound may miss the value to beat."""

Line = tuple[float, float]
"""Intercept and slope in the plane (T, R)."""


@dataclass(frozen=True, slots=True, eq=False)
class FrontierFormulations:
    """The models to trace: one, or one per choice of tiers if volume tiers make costs nonlinear.

    For every plan, the minimum over ``prices`` is at least its cost, and the minimum over ``bounds`` at most its cost.
    """

    prices: tuple[Formulation, ...]
    bounds: tuple[Formulation, ...]

    def bounds_by_boot(self, demand: Demand) -> tuple[tuple[Formulation, Demand], ...]:
        """Return each bound once per time that a plan may wait, with the machines that start within it.

        A machine set is charged until its slowest machine has started, so no bound overcharges.
        """
        if demand.boot_given:
            return tuple((bound, demand) for bound in self.bounds)
        network = self.bounds[0].network
        boots_s = np.array([option.offer.machine.boot_s for option in network.options])
        ends = (self.bounds[0].source, *self.bounds[0].sinks)
        soonest_s = max(min(network.boots_at(end), default=0.0) for end in ends)
        return tuple(
            (
                replace(bound, machine_max=np.where(boots_s <= boot_s, bound.machine_max, 0.0)),
                replace(demand, boot_s=boot_s),
            )
            for boot_s in network.boot_times_s
            if boot_s >= soonest_s
            for bound in self.bounds
        )


@dataclass(frozen=True)
class Segment:
    """Part of the frontier on which the same machines are used and cost is 8V·(intercept/T + slope) + requests."""

    rate_from_gbps: float
    rate_to_gbps: float
    cost_from_usd: float
    cost_to_usd: float
    intercept_usd_per_s: float
    slope_usd_per_gbit: float
    machines: tuple[int, ...]
    """Machines per machine option of the network."""
    gap: float
    """No plan costs less by more than this share; infinite if nothing was proven."""

    @property
    def proven(self) -> bool:
        """True if nothing better exists."""
        return self.gap <= SEGMENT_PROVEN_GAP


@dataclass(frozen=True, eq=False)
class Frontier:
    """Segments from the cheapest to the fastest, and the effort to find them."""

    segments: tuple[Segment, ...]
    solves: int
    demand: Demand
    formulations: tuple[Formulation, ...] = field(repr=False)

    def cost_usd(self, rate_gbps: float) -> float:
        """Return the least cost of a plan at ``rate_gbps`` or more; infinite beyond the fastest."""
        for segment in self.segments:
            if rate_gbps <= segment.rate_from_gbps:
                return segment.cost_from_usd
            if rate_gbps <= segment.rate_to_gbps * (1 + WINDOW_MIN):
                line = segment.intercept_usd_per_s / rate_gbps + segment.slope_usd_per_gbit
                return self.demand.gbit * line + self.demand.requests_usd
        return float("inf")

    def rate_gbps(self, cost_usd: float) -> float:
        """Return the highest rate for at most ``cost_usd``; zero below the cheapest."""
        best = 0.0
        for segment in self.segments:
            if cost_usd >= segment.cost_to_usd:
                best = segment.rate_to_gbps
            elif cost_usd >= segment.cost_from_usd:
                usd_per_gbit = (cost_usd - self.demand.requests_usd) / self.demand.gbit - segment.slope_usd_per_gbit
                return segment.intercept_usd_per_s / usd_per_gbit
        return best

    def elbows(self) -> tuple[tuple[float, float], ...]:
        """Return (rate, cost) where the machines or the marginal price change."""
        return tuple((s.rate_to_gbps, s.cost_to_usd) for s in self.segments)

    def point(self, rate_gbps: float, settings: SolverSettings) -> Point | None:
        """Return the plan at a rate of the frontier."""
        for segment in self.segments:
            if rate_gbps <= segment.rate_to_gbps * (1 + WINDOW_MIN):
                rate = min(max(rate_gbps, segment.rate_from_gbps), segment.rate_to_gbps)
                machines = np.array(segment.machines, dtype=np.int64)
                points = (
                    _charged(formulation, self.demand, Point.of(formulation, self.demand, solution))
                    for formulation in self.formulations
                    if (solution := solve_flows(formulation, Subproblem(rate, rate), machines, settings)) is not None
                )
                return min(points, key=lambda point: point.cost_usd, default=None)
        return None


@dataclass(frozen=True, slots=True)
class _Piece:
    """A straight piece of one machine set's function."""

    low: float
    high: float
    line: Line
    machines: tuple[int, ...]

    def value(self, rate: float) -> float:
        return self.line[0] + self.line[1] * rate


def trace_frontier(
    formulations: FrontierFormulations,
    demand: Demand,
    settings: SolverSettings,
    *,
    solves_max: int = SOLVES_MAX,
    known: Sequence[IntArray] = (),
) -> Frontier | None:
    """Return the frontier; ``None`` if the sink is unreachable. Plans with the machines in ``known`` never beat it."""
    tops = [
        _charged(of, demand, top) for of in formulations.prices if (top := fastest(of, demand, settings)) is not None
    ]
    if not tops:
        return None
    highest_gbps = max(point.rate_gbps for point in tops)
    as_fast = [point for point in tops if point.rate_gbps >= highest_gbps * (1 - WINDOW_MIN)]
    top = min(as_fast, key=lambda point: point.cost_usd)
    bottoms = [
        _charged(of, demand, low) for of in formulations.prices if (low := cheapest(of, demand, settings)) is not None
    ]
    bottom = min(bottoms, key=lambda point: point.cost_usd)
    if bottom.rate_gbps >= top.rate_gbps * (1 - WINDOW_MIN):
        segment = _single_point(top, demand)
        return Frontier((segment,), 2, demand, formulations.prices)
    work_max = BOOT_CUTOFF_WORK if demand.boot_s > 0.0 else CUTOFF_WORK
    limited = replace(settings, work_max=min(settings.work_max, work_max))
    tracer = _Tracer(formulations, demand, limited, bottom.rate_gbps * (1 - START_BELOW), top.rate_gbps)
    tracer.add(bottom.solution.machines)
    tracer.add(top.solution.machines)
    for machines in known:
        tracer.add(machines)
    tracer.prove(solves_max)
    return Frontier(tuple(tracer.segments()), tracer.solves, demand, formulations.prices)


def _boot_s(formulation: Formulation, demand: Demand, machines: IntArray) -> float:
    """Return the seconds until the slowest of these machines answers."""
    options = formulation.network.options
    boots_s = (options[k].offer.machine.boot_s for k in np.flatnonzero(machines))
    return demand.boot_s if demand.boot_given else max(boots_s, default=0.0)


def _charged(formulation: Formulation, demand: Demand, point: Point) -> Point:
    """Return the point charged for the boot of its own machines, not for the longest permitted wait."""
    own = replace(demand, boot_s=_boot_s(formulation, demand, point.solution.machines))
    return Point.of(formulation, own, point.solution, point.gap)


def _single_point(top: Point, demand: Demand) -> Segment:
    usd_per_gbit = (top.cost_usd - demand.requests_usd) / demand.gbit
    machines = tuple(int(n) for n in top.solution.machines)
    rate, cost = top.rate_gbps, top.cost_usd
    return Segment(rate, rate, cost, cost, 0.0, usd_per_gbit, machines, top.gap)


class _Tracer:
    """The pool of machine sets, their envelope, and the parts of it that have been proven."""

    def __init__(
        self, formulations: FrontierFormulations, demand: Demand, settings: SolverSettings, low: float, high: float
    ) -> None:
        self.formulations = formulations
        self._bounds = formulations.bounds_by_boot(demand)
        self.demand = demand
        self.settings = settings
        self.low = low
        self.high = high
        self.solves = 0
        self._pool: dict[tuple[int, ...], list[_Piece]] = {}
        self._proven: list[tuple[float, float, Line, float]] = []
        self._solves_max = 0
        self._given_up: list[tuple[float, float]] = []
        self._relative = COST_TOLERANCE

    def add(self, machines: IntArray) -> bool:
        """Add a machine set to the pool; return ``False`` if the pool has it."""
        key = tuple(int(n) for n in machines)
        if key in self._pool:
            return False
        self._pool[key] = [piece for of in self.formulations.prices for piece in self._pieces(of, machines, key)]
        return True

    def prove(self, solves_max: int) -> None:
        """Look for better machines below each piece until every piece is proven."""
        self._solves_max = solves_max
        for relative in (SEGMENT_BOOT_GAP, SEGMENT_PROVEN_GAP) if self.demand.boot_s > 0.0 else (COST_TOLERANCE,):
            self._relative = relative
            self._given_up.clear()
            while self.solves < solves_max:
                window = next((w for w in self._targets() if not self._is_done(w)), None)
                if window is None:
                    break
                self._solve_with_cutoff(*window)

    def _is_done(self, window: tuple[float, float, Line]) -> bool:
        return self._is_proven(window, self._relative) or self._is_given_up(window)

    def segments(self) -> Iterator[Segment]:
        """Return the efficient pieces of the envelope, from the cheapest to the fastest."""
        for piece in self._efficient():
            yield Segment(
                piece.low,
                piece.high,
                self._cost(piece, piece.low),
                self._cost(piece, piece.high),
                piece.line[0],
                piece.line[1],
                piece.machines,
                self._gap((piece.low, piece.high, piece.line)),
            )

    def _cost(self, piece: _Piece, rate: float) -> float:
        return self.demand.gbit * piece.value(rate) / rate + self.demand.requests_usd

    def _gap(self, window: tuple[float, float, Line]) -> float:
        gaps = sorted({gap for *_, gap in self._proven})
        return next((gap for gap in gaps if self._is_proven(window, gap)), math.inf)

    def _is_proven(self, window: tuple[float, float, Line], gap: float) -> bool:
        """Return whether proven windows cover this one: each has a proven line that is nowhere below this one."""
        low, high, line = window
        slack = 2 * COST_TOLERANCE * high * abs(line[1])
        reached = low
        for proven_low, proven_high, proven, proven_gap in sorted(self._proven):
            if proven_gap > gap or proven_low > reached * (1 + WINDOW_MIN) or proven_high <= reached:
                continue
            upper = min(high, proven_high)
            if all(proven[0] + proven[1] * t >= line[0] + line[1] * t - slack for t in (reached, upper)):
                reached = upper
            if reached >= high * (1 - WINDOW_MIN):
                return True
        return reached >= high * (1 - WINDOW_MIN)

    def _is_given_up(self, window: tuple[float, float, Line]) -> bool:
        low, high, _ = window
        return any(start <= high and end >= low for start, end in self._given_up)

    def _solve_with_cutoff(self, low: float, high: float, line: Line) -> None:
        """Search for machines that get below ``line`` between two rates."""
        intercept, slope = line
        # Cost is R / T: a point this far below the line saves no more than the gap anywhere in the window.
        tolerance = self._relative * min(intercept + slope * low, intercept + slope * high)
        cutoff = intercept - tolerance
        for formulation, demand in self._bounds:
            subproblem = Subproblem(low, high, usd_per_gbit=slope, machine_factor=demand.machine_factor(low))
            found = solve_with_cutoff(formulation, subproblem, self.settings.with_new_budget(), cutoff)
            self.solves += 1
            if found.solution is None and found.bound >= cutoff - BOUND_ROUNDING * abs(tolerance):
                continue
            if found.solution is None:
                self._given_up.append((low, high))
            elif not self.add(found.solution.machines):
                rate = float(found.solution.flow_gbps[formulation.out_of_source].sum())
                self._narrow(low, high, line, rate)
            return
        self._proven.append((low, high, line, self._relative))

    def _narrow(self, low: float, high: float, line: Line, rate: float) -> None:
        """Handle known machines that seem better at ``rate``: they end at the low edge, or boot is undercounted.

        At an edge the frontier jumps, and the machines that end there hide those that begin behind it: continue there.
        Otherwise boot was counted as at the lower edge; halving the window makes that bound tighter.
        """
        past = low * (1 + EDGE)
        if self.solves >= self._solves_max:
            self._given_up.append((low, high))
            return
        if rate <= past < high:
            self._proven.append((low, past, line, self._relative))
            self._solve_with_cutoff(past, high, line)
        elif self.demand.boot_s > 0.0 and high - low > EDGE * low:
            middle = (low + rate) / 2
            self._solve_with_cutoff(low, middle, line)
            self._solve_with_cutoff(middle, high, line)
        else:
            self._given_up.append((low, high))

    def _targets(self) -> Iterator[tuple[float, float, Line]]:
        """Yield windows with the line to beat: the efficient pieces, and rays over the gaps."""
        reached = self.low
        for piece in self._efficient():
            if piece.low > reached * (1 + WINDOW_MIN):
                yield (reached, piece.low, (0.0, piece.value(piece.low) / piece.low))
            yield (piece.low, piece.high, piece.line)
            reached = piece.high

    def _efficient(self) -> list[_Piece]:
        """Return the pieces of the envelope where cost rises with rate and no faster point costs the same or less."""
        kept: list[_Piece] = []
        cheapest_beyond = float("inf")
        for piece in reversed(list(self._envelope())):
            at_high = piece.value(piece.high) / piece.high
            rises = piece.line[0] < 0
            if rises and at_high <= cheapest_beyond * (1 + COST_TOLERANCE):
                kept.append(piece)
                cheapest_beyond = min(cheapest_beyond, piece.value(piece.low) / piece.low)
            elif rises and piece.value(piece.low) / piece.low < cheapest_beyond:
                crossing = piece.line[0] / (cheapest_beyond - piece.line[1])
                kept.append(_Piece(piece.low, crossing, piece.line, piece.machines))
                cheapest_beyond = piece.value(piece.low) / piece.low
            elif not rises and at_high < cheapest_beyond * (1 - COST_TOLERANCE):
                kept.append(_Piece(piece.high, piece.high, (0.0, at_high), piece.machines))
                cheapest_beyond = at_high
        return _joined(kept[::-1])

    def _envelope(self) -> Iterator[_Piece]:
        """Return the lower envelope of all functions in the pool, as pieces in order of rate."""
        pieces = [piece for function in self._pool.values() for piece in function]
        cuts = sorted({t for p in pieces for t in (p.low, p.high)})
        for low, high in itertools.pairwise(cuts):
            middle = (low + high) / 2
            over = [p for p in pieces if p.low <= middle <= p.high]
            if over and high - low > WINDOW_MIN * high * 1e-3:
                yield from _lowest(over, low, high)

    def _pieces(self, formulation: Formulation, machines: IntArray, key: tuple[int, ...]) -> Iterator[_Piece]:
        """Yield the machine set's function between ``low`` and its maximum rate."""
        subproblem = Subproblem(0.0, RATE_UNBOUNDED_GBPS, maximise_rate=True)
        top = solve_flows(formulation, subproblem, machines, self.settings)
        if top is None or top.objective <= self.low:
            return
        left = self._value(formulation, machines, self.low)
        right = self._value(formulation, machines, min(top.objective, self.high))
        if left is not None and right is not None:
            yield from self._between(formulation, machines, key, left, right)

    def _value(self, formulation: Formulation, machines: IntArray, rate: float) -> _Tangent | None:
        """Return a machine set's function and slope at one rate; at the end of its range, as near as possible."""
        for _ in range(END_STEPS_MAX):
            solution = solve_flows(formulation, Subproblem(rate, rate), machines, self.settings)
            if solution is not None and solution.duals is not None:
                boot = (
                    float(formulation.machine_usd_per_s @ machines)
                    * _boot_s(formulation, self.demand, machines)
                    / self.demand.gbit
                )
                return _Tangent(rate, solution.objective + boot * rate, float(solution.duals[-1]) + boot)
            rate *= 1 - 1e-9
        return None

    def _between(
        self, formulation: Formulation, machines: IntArray, key: tuple[int, ...], left: _Tangent, right: _Tangent
    ) -> Iterator[_Piece]:
        """Cut a convex function where the tangents at both ends meet, until one of them is the chord."""
        width = right.rate - left.rate
        if width <= WINDOW_MIN * right.rate:
            return
        tolerance = 1e-9 * max(abs(right.value), abs(left.value))
        above_left = right.value - left.value - left.slope * width
        above_right = left.value - right.value + right.slope * width
        meeting = left.rate + above_right / max(right.slope - left.slope, 1e-15)
        middle = None
        if min(above_left, above_right) > tolerance and left.rate < meeting < right.rate:
            middle = self._value(formulation, machines, meeting)
        if middle is None:
            slope = (right.value - left.value) / width
            yield _Piece(left.rate, right.rate, (left.value - slope * left.rate, slope), key)
            return
        yield from self._between(formulation, machines, key, left, middle)
        yield from self._between(formulation, machines, key, middle, right)


@dataclass(frozen=True, slots=True)
class _Tangent:
    """Value and slope of a function at one rate."""

    rate: float
    value: float
    slope: float


def _lowest(pieces: list[_Piece], low: float, high: float) -> Iterator[_Piece]:
    """Return the lower envelope of straight lines between two rates."""
    at = low
    least = min(p.value(at) for p in pieces)
    tied = [p for p in pieces if p.value(at) <= least + 1e-9 * abs(least)]
    line = min(tied, key=lambda p: p.line[1])
    while at < high:
        meeting, following = high, None
        for other in pieces:
            falls = line.line[1] - other.line[1]
            if falls <= 1e-15:
                continue
            crossing = (other.line[0] - line.line[0]) / falls
            if at * (1 + WINDOW_MIN * 1e-3) < crossing < meeting:
                meeting, following = crossing, other
        yield _Piece(at, meeting, line.line, line.machines)
        if following is None:
            return
        at, line = meeting, following


def _joined(pieces: list[_Piece]) -> list[_Piece]:
    """Join neighbours that are one straight line of one machine set."""
    joined: list[_Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.machines == piece.machines
            and abs(last.high - piece.low) <= WINDOW_MIN * piece.low
            and abs(last.value(piece.high) - piece.value(piece.high)) <= COST_TOLERANCE * abs(piece.value(piece.high))
        ):
            joined[-1] = _Piece(last.low, piece.high, last.line, last.machines)
        else:
            joined.append(piece)
    return joined
