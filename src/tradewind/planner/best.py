"""The best point for a goal over all boot times and volume tiers. Branches where costs are not linear.

Boot times: the problem has one part per time that a plan may wait (`transfer.by_boot_time`). The best answer of all
parts is the best.

Volume tiers (`tiers.py`): at first each billing count has one line. Nearly always it is the true price of every volume
that a plan can send. Otherwise the search branches over spans of volumes, lowest bound first. A span's line never
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from contextlib import suppress

from tradewind.errors import SolverLimitReached
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.records import dataclass, field, replace
from tradewind.planner.boot_windows import BOOT_GAP
from tradewind.planner.budget import WorkBudget
from tradewind.planner.formulation import Subproblem
from tradewind.planner.goals import SOONEST_TIE, SOONEST_TIE_S, fastest
from tradewind.planner.network import GBPS_MIN
from tradewind.planner.points import PROVEN_GAP, Point
from tradewind.planner.pricing import count_columns, keep_inside, priced, priced_at, volumes_gb
from tradewind.planner.solver import least_relaxed
from tradewind.planner.tiers import Line, Span, TierCount
from tradewind.planner.transfer import Transfer, by_boot_time, solve_goal

__all__ = ["solve_over_boot_times"]

RATE_TIE = 1e-8
"""Relative; of two plans whose rates differ by less, the cheaper one wins."""
TIER_WORK = 2.0
"""Share of the work of a question for branching over volume tiers."""
TIER_WORK_SEVERAL = 0.5
"""The same with several destinations, where a question has twelve times the work limit: about 20 CPU-s."""
AGREES = 1e-7
"""Relative; a cost counts as reached if the difference is smaller."""
CEILING_SLACK = 1e-9
"""Relative; a ceiling counts as kept if it is exceeded by less."""


def solve_over_boot_times(transfer: Transfer, goal: Goal) -> tuple[Transfer, Point] | None:
    """Return the best point, and the transfer with the machines and prices among which it was found.

    `None` if nothing meets the goal.
    """
    parts = by_boot_time(transfer)
    if not transfer.network.counts:
        found = _best_part(parts, goal)
        return None if found is None else (parts[found[0]], found[1])
    return _Tiers(transfer, parts, goal).best()


def _best_part(parts: Sequence[Transfer], goal: Goal) -> tuple[int, Point] | None:
    """Return which part has the best point for a goal, and the point."""
    if len(parts) == 1:
        point = solve_goal(parts[0], goal)
        return None if point is None else (0, point)
    if isinstance(goal, Soonest):
        goal = _deadline_of_soonest(parts)
    solved = [(number, solve_goal(part, goal)) for number, part in enumerate(parts)]
    found = [(number, point) for number, point in solved if point is not None]
    if not found:
        return None
    if isinstance(goal, MaxCost | Fastest):
        _, best = min(found, key=lambda of: (-of[1].rate_gbps * (1 - RATE_TIE), of[1].cost_usd))
        highest = max(point.rate_gbps * (1 + point.gap) for _, point in found)
        gap = highest / best.rate_gbps - 1
        near = [of for of in found if of[1].rate_gbps >= best.rate_gbps * (1 - RATE_TIE)]
        number, best = min(near, key=lambda of: of[1].cost_usd)
    else:
        number, best = min(found, key=lambda of: of[1].cost_usd)
        lower_bound_usd = min(point.cost_usd * (1 - point.gap) for _, point in found)
        gap = 1 - lower_bound_usd / best.cost_usd if best.cost_usd > 0 else 0.0
    return number, replace(best, gap=max(best.gap, gap))


def _deadline_of_soonest(parts: Sequence[Transfer]) -> Goal:
    """Return the deadline that stands for `Soonest`: within it, a plan counts as finishing as early as the earliest."""
    ends_s = []
    for part in parts:
        top = fastest(part.formulation, part.demand, part.settings, cheapest_too=False)
        if top is not None:
            ends_s.append(part.demand.boot_s + part.demand.gbit / top.rate_gbps)
    soonest_s = min(ends_s, default=math.inf)
    return Deadline(soonest_s + max(SOONEST_TIE_S, SOONEST_TIE * soonest_s)) if ends_s else Fastest()


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A point of one part, with its true cost."""

    number: int
    """Number of the part."""
    point: Point
    usd: float
    volumes_gb: tuple[float, ...]
    """Per count."""


@dataclass(order=True, slots=True)
class _Node:
    """One part with a span of volumes per count. The node of lowest bound (USD, or negative Gbit/s) is first."""

    bound: float
    sequence: int
    number: int = field(compare=False)
    spans: tuple[Span, ...] = field(compare=False)


class _Tiers:
    """The search over volume tiers for one goal."""

    def __init__(self, transfer: Transfer, parts: Sequence[Transfer], goal: Goal) -> None:
        self._transfer, self._parts, self._goal = transfer, parts, goal
        self._counts: tuple[TierCount, ...] = transfer.network.counts
        self._copies = len(transfer.formulation.sinks)
        self._rows = self._copies == 1
        self._ceiling_usd = goal.usd if isinstance(goal, MaxCost) else math.inf
        self._best: _Found | None = None
        self._sequence = itertools.count()

    def best(self) -> tuple[Transfer, Point] | None:
        """Return the best point, and the transfer in which it was found, with the prices that hold there."""
        spans = self._reach(self._ceiling_usd)
        if not isinstance(self._goal, MaxCost):
            # A guess, checked against the cost of the answer: hardly any plan sends every byte twice.
            most_gb = self._transfer.demand.volume_gb * self._copies
            spans = tuple((low, min(high, most_gb)) for low, high in spans)
        lines = self._under(spans)
        first = _best_part([self._with(part, lines) for part in self._parts], self._goal)
        if first is None:
            return None
        found = self._found(*first, lines)
        if self._agrees(found, lines):
            return self._finished(found, first[1].gap)
        return self._search(found)

    def _reach(self, usd: float) -> tuple[Span, ...]:
        """Return the volumes that the counts can reach in a plan that costs no more than ``usd``."""
        most_gb = self._transfer.demand.volume_gb * self._copies
        return tuple((0.0, min(most_gb * count.sources, count.volume_gb(usd))) for count in self._counts)

    def _agrees(self, found: _Found, lines: Sequence[Line]) -> bool:
        """Return whether these lines hold: no equally good plan costs less than they say, nor this point more."""
        if isinstance(self._goal, MaxCost):
            return found.usd <= self._ceiling_usd * (1 + CEILING_SLACK)
        counted = zip(self._counts, lines, self._reach(found.usd), strict=True)
        under = all(count.is_under(line, high) for count, line, (_, high) in counted)
        return under and found.usd <= found.point.cost_usd * (1 + AGREES)

    def _search(self, first: _Found) -> tuple[Transfer, Point] | None:
        """Branch and bound, from a first answer."""
        goal = self._plain_goal(first)
        if isinstance(goal, MaxCost):
            self._dive(first, goal, self._transfer.settings.shared_budget)
        else:
            self._best = first
        spans = self._reach(min(self._ceiling_usd, math.inf if isinstance(goal, MaxCost) else first.usd))
        nodes = [_Node(-math.inf, next(self._sequence), number, spans) for number in range(len(self._parts))]
        share = TIER_WORK if self._copies == 1 else TIER_WORK_SEVERAL
        shared = WorkBudget(self._transfer.settings.work_max * share)
        closed = math.inf
        while nodes and not shared.spent and not self._beaten(nodes[0].bound):
            node = heapq.heappop(nodes)
            try:
                bound, cut = self._solved(node, spans, goal, shared)
            except SolverLimitReached:
                bound, cut = node.bound, None
            if cut is None:
                closed = min(closed, bound)
                continue
            place, volume_gb = cut
            low, high = node.spans[place]
            for span in ((low, volume_gb), (volume_gb, high)):
                parted = (*node.spans[:place], span, *node.spans[place + 1 :])
                heapq.heappush(nodes, _Node(bound, next(self._sequence), node.number, parted))
        return self._answer(first, min([closed, *(node.bound for node in nodes)]))

    def _plain_goal(self, first: _Found) -> Goal:
        """Return the goal as a ceiling, or as a bound at which the cheapest plan is wanted."""
        if isinstance(self._goal, Fastest):
            return MinThroughput(first.point.rate_gbps * (1 - RATE_TIE))
        return _deadline_of_soonest(self._parts) if isinstance(self._goal, Soonest) else self._goal

    def _solved(
        self, node: _Node, reach: Sequence[Span], goal: Goal, shared: WorkBudget
    ) -> tuple[float, tuple[int, float] | None]:
        """Return a node's bound, and which count to cut at which volume; `None` if a cut gains nothing."""
        lines = self._under(node.spans)
        kept = [None if span == most else span for span, most in zip(node.spans, reach, strict=True)]
        part = self._with(self._parts[node.number], lines, kept, shared)
        least_usd = _relaxed_usd(part, goal)
        if least_usd is None or self._beaten(least_usd):
            return math.inf if least_usd is None else least_usd, None
        point = solve_goal(part, goal)
        if point is None:
            return math.inf, None
        found = self._found(node.number, point, lines)
        if isinstance(goal, MaxCost):
            bound, met = -point.rate_gbps * (1 + point.gap), found.usd <= self._ceiling_usd * (1 + CEILING_SLACK)
            if met:
                self._take(found)
            else:
                self._dive(found, goal, shared)
        else:
            bound, met = point.cost_usd * (1 - point.gap), found.usd <= point.cost_usd * (1 + AGREES)
            self._take(found)
        bound = max(bound, node.bound)
        return bound, None if met or self._beaten(bound) else self._cut(found, lines, node.spans)

    def _cut(self, found: _Found, lines: Sequence[Line], spans: Sequence[Span]) -> tuple[int, float] | None:
        """Return where a tier begins inside a span, for the count whose line is furthest below the true cost."""
        wrong = [c.usd(x) - line.at(x) for c, x, line in zip(self._counts, found.volumes_gb, lines, strict=True)]
        for place in sorted(range(len(wrong)), key=lambda place: -wrong[place]):
            (low, high), volume_gb = spans[place], found.volumes_gb[place]
            inside = [step for step in self._counts[place].steps_gb if low < step < high]
            if inside and wrong[place] > 0.0:
                return place, min(inside, key=lambda step: abs(step - volume_gb))
        return None

    def _dive(self, found: _Found, goal: Goal, shared: WorkBudget | None) -> None:
        """Try the best plan under the ceiling at the prices of the last GB of an answer."""
        part = self._at(self._parts[found.number], found.volumes_gb, shared)
        with suppress(SolverLimitReached):
            point = solve_goal(part, goal)
            if point is not None:
                volumes = volumes_gb(part.formulation, part.demand, point.solution.flow_gbps)
                self._take(_Found(found.number, point, self._true_usd(part, point), volumes))

    def _take(self, found: _Found) -> None:
        """Keep a point that is within the ceiling and better than the incumbent."""
        best = self._best
        if found.usd > self._ceiling_usd * (1 + CEILING_SLACK):
            return
        if isinstance(self._goal, MaxCost):
            better = best is None or found.point.rate_gbps > best.point.rate_gbps
        else:
            better = best is None or found.usd < best.usd
        self._best = found if better else best

    def _beaten(self, bound: float) -> bool:
        """Return whether no point with this bound can improve on the incumbent."""
        if self._best is None:
            return False
        if isinstance(self._goal, MaxCost):
            return -bound <= self._best.point.rate_gbps * (1 + BOOT_GAP)
        return bound >= self._best.usd * (1 - BOOT_GAP)

    def _answer(self, first: _Found, bound: float) -> tuple[Transfer, Point] | None:
        """Return the incumbent with its gap; ``bound`` is the lowest bound that was not searched."""
        best = self._best
        if best is None:
            if bound == math.inf:
                return None
            # No better bound is known: the cheapest plan may be under the ceiling.
            cheapest = solve_over_boot_times(self._transfer, Cheapest())
            if cheapest is None or cheapest[1].cost_usd > self._ceiling_usd:
                return None
            gap = max(0.0, -bound / cheapest[1].rate_gbps - 1)
            return cheapest[0], _with_gap(cheapest[1], gap)
        if isinstance(self._goal, MaxCost):
            return self._finished(best, max(0.0, -bound / best.point.rate_gbps - 1), searched=True)
        gap = max(0.0, 1 - bound / best.usd)
        if isinstance(self._goal, Fastest):
            gap = max(gap, first.point.gap)
        return self._finished(best, gap, searched=True)

    def _finished(self, found: _Found, gap: float, *, searched: bool = False) -> tuple[Transfer, Point]:
        part = self._at(self._parts[found.number], found.volumes_gb, None)
        point = Point.of(part.formulation, part.demand, found.point.solution, gap)
        return part, _with_gap(point, gap) if searched else point

    def _under(self, spans: Sequence[Span]) -> list[Line]:
        return [count.under(span) for count, span in zip(self._counts, spans, strict=True)]

    def _with(
        self, part: Transfer, lines: Sequence[Line], spans: Sequence[Span | None] = (), shared: WorkBudget | None = None
    ) -> Transfer:
        """Return the part with these lines as prices; a count whose price rises keeps its volume in its span."""
        formulation = priced(part.formulation, part.demand, lines)
        if self._rows and spans:
            rising = [None if count.falls else span for count, span in zip(self._counts, spans, strict=True)]
            formulation = keep_inside(formulation, part.demand, rising)
        settings = part.settings if shared is None else replace(part.settings, shared_budget=shared)
        return replace(part, formulation=formulation, settings=settings)

    def _at(self, part: Transfer, volumes: Sequence[float], shared: WorkBudget | None) -> Transfer:
        """Return the part with the prices of the last GB of these volumes."""
        settings = part.settings if shared is None else replace(part.settings, shared_budget=shared)
        return replace(part, formulation=priced_at(part.formulation, part.demand, volumes), settings=settings)

    def _found(self, number: int, point: Point, lines: Sequence[Line]) -> _Found:
        part = self._parts[number]
        volumes = volumes_gb(part.formulation, part.demand, point.solution.flow_gbps)
        reached = [len(columns) > 0 for columns in count_columns(part.formulation)]
        counted = zip(self._counts, volumes, lines, reached, strict=True)
        wrong = math.fsum(count.usd(x) - line.at(x) for count, x, line, there in counted if there)
        return _Found(number, point, point.cost_usd + wrong, volumes)

    def _true_usd(self, part: Transfer, point: Point) -> float:
        """Return the true cost of a point, independent of the lines of its part."""
        at = self._at(part, volumes_gb(part.formulation, part.demand, point.solution.flow_gbps), None)
        return Point.of(at.formulation, at.demand, point.solution).cost_usd


def _relaxed_usd(part: Transfer, goal: Goal) -> float | None:
    """Return a lower bound on the cost of a part's plans, from one linear program with fractional machines.

    ``None`` if the part has no plan. Minus infinity for a ceiling, or with several destinations: no bound is known.
    """
    demand = part.demand
    if isinstance(goal, MaxCost) or part.formulation.shared is not None:
        return -math.inf
    rate_gbps = GBPS_MIN
    if isinstance(goal, MinThroughput):
        rate_gbps = goal.gbps
    elif isinstance(goal, Deadline):
        if goal.seconds <= demand.boot_s:
            return None
        rate_gbps = demand.gbit / (goal.seconds - demand.boot_s)
    subproblem = Subproblem(rate_gbps, rate_gbps, machine_factor=demand.machine_factor(rate_gbps))
    usd_per_s = least_relaxed(part.formulation, subproblem, part.settings.with_new_budget())
    # The relaxed cost per byte rises with the rate, so no faster plan costs less.
    return None if usd_per_s is None else usd_per_s * (1 - BOOT_GAP / 5) / rate_gbps * demand.gbit + demand.requests_usd


def _with_gap(point: Point, gap: float) -> Point:
    return Point(replace(point.solution, optimal=gap <= PROVEN_GAP), point.rate_gbps, point.cost_usd, gap)
