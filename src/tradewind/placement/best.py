"""The default algorithm: greedy answers and the relaxation, rounded; then moves; then branch and bound for the gap."""

from __future__ import annotations

import time

from tradewind.model.records import replace
from tradewind.placement.assignment import Assignment
from tradewind.placement.deadline import WALL_MORE_S, CpuDeadline, deadline_in
from tradewind.placement.diving import DIVES, dive
from tradewind.placement.exact import Polished, bound_by_counts, polish
from tradewind.placement.flow_greedy import Preferences, flow_greedy, preferences_of, ranked, upgrade
from tradewind.placement.local_search import improve, ruin_and_recreate
from tradewind.placement.model import Duals, priced
from tradewind.placement.paths import DIRECT, Paths
from tradewind.placement.proxy_greedy import ProxySets, one_proxy, two_proxies, two_proxies_with_rollback
from tradewind.placement.relaxation import Relaxation, relax

__all__ = ["AUTO_GAP", "best_placement"]

AUTO_GAP = 1e-3
"""The search ends when the total is proven to be within this part of the best one."""
PROXY_GREEDY_MAX = 1_200
"""Most flows times regions for which all algorithms of the paper run: 60 flows of 18 regions have 1,080."""
ONE_PROXY_MAX = 3_000
"""Most flows times regions for which 1-P is tried. Its time grows with the square of the flows."""
SMALL_MAX = 300
"""Most flows times regions for which branch and bound begins at once: it often proves the answer of small problems."""
SMALL_PART = 0.4
"""Part of the time limit that it may take there."""
MOVES_MAX = 20_000
"""Most moves that are tried from one answer."""
MOVED_MAX = 2
"""Most placements of a kind that are improved by moves."""
SEARCH_S_MIN = 1.2
"""CPU time of the search beyond the algorithms of the paper, even if these have used up the limit."""
RELAXED_PART = 0.35
"""Part of the CPU time that the relaxation may take."""
ROUNDED_PART = 0.85
"""Part of what is left for rounding and moves that rounding may take."""
BOUND_S = 0.4e-3
"""CPU time for a better bound, for each flow and region [s]. Most of what branch and bound over instances proves comes
within that; after it HiGHS often cannot be stopped for seconds."""
BOUND_PART = 0.75
"""Most of what is left after rounding that the bound may take."""
POLISHED_MAX = 600
"""Most flows times regions for which branch and bound over flows ends the search."""
MOVED_PART = 0.15
"""Part of what is left after rounding that moves may take before that."""


def best_placement(paths: Paths, cpu_limit_s: float, wall_more_s: float = WALL_MORE_S) -> Polished:
    """Return the best placement that is found within about `cpu_limit_s` of CPU time, with a proven bound.

    It is never worse than F-FCT and F-Cost, nor than 1-P, 2-P and 2-P RB if there are at most PROXY_GREEDY_MAX flows
    times regions: these run to their end, whatever the limit. The search after them gets what is left of the limit,
    but at least SEARCH_S_MIN. It ends at a limit of CPU time, so the same problem may end with another placement on
    another machine.
    """
    began_s = time.thread_time()
    by_gain = preferences_of(paths, "gain")
    best = _best_moved(by_gain, _greedy(by_gain))
    deadline = deadline_in(max(SEARCH_S_MIN, cpu_limit_s - (time.thread_time() - began_s)), wall_more_s)
    relaxation = relax(paths, deadline.part(RELAXED_PART))
    if len(paths.problem.flows) * len(paths.problem.regions) <= SMALL_MAX:
        found = polish(by_gain, best, relaxation, deadline.part(SMALL_PART), AUTO_GAP)
        best, relaxation = found.assignment, replace(relaxation, bound_s=max(found.bound_s, relaxation.bound_s))
    target_s = relaxation.bound_s / (1 - AUTO_GAP)
    if best.total_fct_s <= target_s:
        return Polished(best, min(relaxation.bound_s, best.total_fct_s))
    size = len(paths.problem.flows) * len(paths.problem.regions)
    moving = deadline.but(min(BOUND_S * size, BOUND_PART * deadline.left_s))
    rounded = _rounded(by_gain, relaxation, moving.part(ROUNDED_PART), target_s)
    best = min([best, *rounded], key=lambda assignment: assignment.total_fct_s)
    thrifty = by_gain if relaxation.duals is None else _thrifty(paths, relaxation.duals)
    if size <= POLISHED_MAX:
        moving = moving.part(MOVED_PART)
    best = ruin_and_recreate(by_gain, thrifty, best, moving, target_s)
    bound_s = bound_by_counts(best, relaxation, deadline.until(BOUND_S * size))
    if size > POLISHED_MAX:
        return Polished(best, min(bound_s, best.total_fct_s))
    return polish(by_gain, best, replace(relaxation, bound_s=bound_s), deadline, AUTO_GAP)


def _best_moved(by_gain: Preferences, known: list[Assignment]) -> Assignment:
    """Return the best of some placements, after moves of the MOVED_MAX best ones."""
    best = sorted(known, key=lambda assignment: assignment.total_fct_s)[:MOVED_MAX]
    for assignment in best:
        improve(by_gain, assignment, MOVES_MAX)
    return min(best, key=lambda assignment: assignment.total_fct_s)


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
    size = len(paths.problem.flows) * len(paths.problem.regions)
    if size <= ONE_PROXY_MAX:
        sets = ProxySets(by_gain)
        known.append(one_proxy(sets))
        if size <= PROXY_GREEDY_MAX:
            known += [two_proxies(sets), two_proxies_with_rollback(sets)]
    return known


def _rounded(by_gain: Preferences, relaxation: Relaxation, deadline: CpuDeadline, target_s: float) -> list[Assignment]:
    """Return placements near the relaxation, each improved by moves.

    Ends at the deadline, or with a placement whose total is at most `target_s`.
    """
    found = []
    for how in DIVES:
        if deadline.is_over:
            break
        made = dive(by_gain, relaxation, how, deadline)
        if made is not None:
            improve(by_gain, made, MOVES_MAX)
            found.append(made)
            if made.total_fct_s <= target_s:
                break
    return found
