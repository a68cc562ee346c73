"""The default algorithm: greedy answers and the relaxation, rounded; then moves; then branch and bound for the gap."""

from __future__ import annotations

import time

from tradewind.model.records import replace
from tradewind.placement.assignment import Assignment
from tradewind.placement.diving import dive
from tradewind.placement.exact import Polished, polish
from tradewind.placement.flow_greedy import Preferences, flow_greedy, preferences_of, ranked, upgrade
from tradewind.placement.local_search import improve, ruin_and_recreate
from tradewind.placement.model import Duals, priced
from tradewind.placement.paths import DIRECT, Paths
from tradewind.placement.proxy_greedy import ProxySets, one_proxy
from tradewind.placement.relaxation import Relaxation, relax

__all__ = ["AUTO_GAP", "best_placement"]

AUTO_GAP = 1e-3
"""The search ends when the total is proven to be within this part of the best one."""
ONE_PROXY_MAX = 3_000
"""Most flows times regions for which 1-P is tried. Its time grows with the square of the flows."""
SMALL_MAX = 300
"""Most flows times regions for which branch and bound begins at once: it often proves the answer of small problems."""
SMALL_PART = 0.4
"""Part of the time limit that it may take there."""
MOVES_MAX = 20_000
"""Most moves that are tried from one answer."""
RELAXED_BY = 0.35
"""Part of the time limit until which the relaxation may run; the next two are for its rounding and for moves."""
ROUNDED_BY = 0.6
MOVED_BY = 0.9
CAPACITY_PARTS = (0.95, 1.0)
"""Parts of the capacities with which the relaxation is rounded; see `dive`."""


def best_placement(paths: Paths, time_limit_s: float) -> Polished:
    """Return the best placement that is found within about `time_limit_s`, with a proven bound.

    The same problem may end with another placement on a busier machine.
    """
    began_s = time.monotonic()
    by_gain = preferences_of(paths, "gain")
    best = _best_moved(by_gain, _greedy(by_gain))
    relaxation = relax(paths, RELAXED_BY * time_limit_s)
    if len(paths.problem.flows) * len(paths.problem.regions) <= SMALL_MAX:
        found = polish(by_gain, best, relaxation, SMALL_PART * time_limit_s, AUTO_GAP)
        best, relaxation = found.assignment, replace(relaxation, bound_s=max(found.bound_s, relaxation.bound_s))
    target_s = relaxation.bound_s / (1 - AUTO_GAP)
    if best.total_fct_s <= target_s:
        return Polished(best, min(relaxation.bound_s, best.total_fct_s))
    best = _best_moved(by_gain, [best, *_rounded(by_gain, relaxation, began_s + ROUNDED_BY * time_limit_s)])
    thrifty = by_gain if relaxation.duals is None else _thrifty(paths, relaxation.duals)
    best = ruin_and_recreate(by_gain, thrifty, best, began_s + MOVED_BY * time_limit_s, target_s)
    left_s = max(0.0, time_limit_s - (time.monotonic() - began_s))
    return polish(by_gain, best, relaxation, left_s, AUTO_GAP)


def _best_moved(by_gain: Preferences, known: list[Assignment]) -> Assignment:
    """Return the best of some placements, each after moves."""
    for assignment in known:
        improve(by_gain, assignment, MOVES_MAX)
    return min(known, key=lambda assignment: assignment.total_fct_s)


def _thrifty(paths: Paths, duals: Duals) -> Preferences:
    """Return preferences by the gain less the price of what a path uses."""
    priced_s = priced(paths, duals)
    value = priced_s[:, [DIRECT]] - priced_s
    return ranked(paths, value, (paths.gain_s > 0) & (value > 0))


def _greedy(by_gain: Preferences) -> list[Assignment]:
    paths = by_gain.paths
    known = [flow_greedy(by_gain), flow_greedy(preferences_of(paths, "gain per cost"))]
    for assignment in known:
        upgrade(by_gain, assignment)
    if len(paths.problem.flows) * len(paths.problem.regions) <= ONE_PROXY_MAX:
        known.append(one_proxy(ProxySets(by_gain)))
    return known


def _rounded(by_gain: Preferences, relaxation: Relaxation, deadline_s: float) -> list[Assignment]:
    """Return placements near to the relaxation."""
    found = []
    for number, part in enumerate(CAPACITY_PARTS):
        left_s = (deadline_s - time.monotonic()) / (len(CAPACITY_PARTS) - number)
        made = dive(by_gain, relaxation, part, left_s) if left_s > 0 else None
        if made is not None:
            found.append(made)
    return found
