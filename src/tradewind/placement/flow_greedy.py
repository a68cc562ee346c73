"""The flow-greedy algorithms of CloudPilot, section 6.1: F-FCT (Algorithm 1) and F-Cost (Algorithm 2).

The flow that gains most takes its best path, then the next one. The paper leaves these cases open, and they are closed
here: a path that has no room or that the budget cannot pay is dropped from the flow's list, and an empty list means
direct; paths that gain nothing are never taken; a price of zero makes a gain per cost infinite. Paths of equal gain are
frequent, because a last mile limits many of them alike: the one with the fewest new instances is taken, then the
cheapest, then the first. At the end flows are moved to better paths that have become affordable, because other flows
have paid for their instances.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tradewind.model.records import dataclass
from tradewind.placement.assignment import Assignment, Fit
from tradewind.placement.paths import IntArray, Paths
from tradewind.placement.problem import FloatArray

__all__ = ["Preferences", "flow_greedy", "preferences_of", "ranked", "upgrade"]

EQUAL = 1e-9
"""Relative; gains that differ by less are equal."""
UPGRADE_ROUNDS_MAX = 20
"""Maximum passes over all flows that look for better paths."""

#: Paths of equal value, and that value.
Group = tuple[float, list[int]]


@dataclass(frozen=True, slots=True, eq=False)
class Preferences:
    """The paths of each flow that end it earlier than the direct one, the best first."""

    paths: Paths
    value: FloatArray
    """The preference of a flow for a path, by flow and path: the gain, or the gain per cost."""
    ordered: tuple[IntArray, ...]
    """The paths of each flow, by falling value."""
    ranks: tuple[IntArray, ...]
    """For each of them, the number of its group of equal value."""

    def groups(self, flow: int, allowed: NDArray[np.bool_]) -> Iterator[Group]:
        """Yield the allowed paths of a flow in groups of equal value."""
        ordered, ranks = self.ordered[flow], self.ranks[flow]
        here = allowed[ordered]
        value = self.value[flow]
        members: list[int] = []
        last = -1
        for path, rank in zip(ordered[here].tolist(), ranks[here].tolist(), strict=True):
            if rank != last and members:
                yield float(value[members[0]]), members
                members = []
            last = rank
            members.append(path)
        if members:
            yield float(value[members[0]]), members

    def best(self, flow: int, most: int) -> list[int]:
        """Return the best paths of a flow, `most` at most."""
        best: list[int] = self.ordered[flow][:most].tolist()
        return best


def ranked(paths: Paths, value: FloatArray, useful: NDArray[np.bool_]) -> Preferences:
    """Return preferences by a value of each flow and path. Flows never take paths that are not `useful`.

    Paths of equal value are ordered by gain, then by price.
    """
    gain_s, ordered, ranks = paths.gain_s, [], []
    for flow in range(len(value)):
        found = np.flatnonzero(useful[flow])
        order = np.lexsort((found, paths.egress_cents[flow, found], -gain_s[flow, found], -value[flow, found]))
        found = found[order]
        its = value[flow, found]
        with np.errstate(invalid="ignore"):
            falls = its[1:] < its[:-1] - EQUAL * np.abs(its[:-1])
        ordered.append(found)
        ranks.append(np.concatenate([[0], np.cumsum(falls)])[: len(found)])
    return Preferences(paths, value, tuple(ordered), tuple(ranks))


def preferences_of(paths: Paths, by: Literal["gain", "gain per cost"]) -> Preferences:
    """Return the preferences of flows: the gain (Algorithm 1), or the gain per cost (Algorithm 2)."""
    gain_s = paths.gain_s
    value = gain_s if by == "gain" else _gain_per_cost(paths)
    return ranked(paths, value, gain_s > EQUAL * paths.fct_s[:, :1])


def _gain_per_cost(paths: Paths) -> FloatArray:
    """Return gain / (egress + the part of each setup that the flow's rate is of the capacity): Algorithm 2, line 2."""
    regions = paths.problem.regions
    setup_per_mbps = np.append([region.setup_cents / region.capacity_mbps for region in regions], 0.0)
    cost = paths.egress_cents + paths.rate_mbps * (setup_per_mbps[paths.first] + setup_per_mbps[paths.second])
    gain_s = paths.gain_s
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: FloatArray = np.where(cost > 0, gain_s / cost, np.where(gain_s > 0, math.inf, 0.0))
    return ratio


def flow_greedy(preferences: Preferences, available: Sequence[int] | None = None) -> Assignment:
    """Return the assignment of the flow-greedy algorithm, without the moves of `upgrade`.

    `available` is the number of instances that each region may have.
    """
    paths = preferences.paths
    assignment = Assignment(paths, available)
    allowed = paths.within(np.array(assignment.available) > 0)
    left: dict[int, Iterator[Group]] = {}
    heads: list[tuple[float, int, list[int]]] = []

    def advance(flow: int) -> None:
        value, group = next(left[flow], (0.0, []))
        if group:
            heapq.heappush(heads, (-value, flow, group))

    for flow in range(len(paths.problem.flows)):
        left[flow] = preferences.groups(flow, allowed)
        advance(flow)
    while heads:
        _, flow, group = heapq.heappop(heads)
        best = _best_fit(assignment, flow, group)
        if best is None:
            advance(flow)
        else:
            assignment.place(flow, *best)
    return assignment


def upgrade(preferences: Preferences, assignment: Assignment) -> None:
    """Move flows to better paths that the budget now affords, until no flow can be moved."""
    fct_s = assignment.paths.fct_s
    allowed = assignment.paths.within(np.array(assignment.available) > 0)
    groups = [list(preferences.groups(flow, allowed)) for flow in range(len(fct_s))]
    least_s = fct_s.min(axis=1).tolist()
    for _ in range(UPGRADE_ROUNDS_MAX):
        moved = False
        for flow, of_flow in enumerate(groups):
            now_s = float(fct_s[flow, assignment.path_of[flow]])
            if now_s <= least_s[flow] * (1 + EQUAL):
                continue
            before = assignment.release(flow)
            for _, group in of_flow:
                better = [path for path in group if fct_s[flow, path] < now_s * (1 - EQUAL)]
                if better and (best := _best_fit(assignment, flow, better)) is not None:
                    assignment.place(flow, *best)
                    moved = True
                    break
            else:
                assignment.place(flow, *before)
        if not moved:
            return


def _best_fit(assignment: Assignment, flow: int, group: Sequence[int]) -> tuple[int, Fit] | None:
    """Return the affordable path with the fewest new instances, then the cheapest, then the first; None if none is."""
    best: tuple[int, Fit] | None = None
    for path in group:
        fit = assignment.fit(flow, path)
        if fit is None or not assignment.affords(fit.cents):
            continue
        if best is None or (fit.new, fit.cents) < (best[1].new, best[1].cents):
            best = path, fit
    return best
