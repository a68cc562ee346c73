"""The proxy-greedy algorithms of CloudPilot, section 6.2: 1-P (Algorithm 3), 2-P (4) and 2-P with rollback (5).

They add proxies to a set while that shortens the total completion time of F-FCT with this set. The paper leaves open
that the search starts from all flows direct and no proxy, and that the rollback of an empty set is the set itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tradewind.placement.assignment import Assignment
from tradewind.placement.flow_greedy import Preferences, flow_greedy, upgrade
from tradewind.placement.many_sets import SetSearch
from tradewind.placement.paths import DIRECT

__all__ = ["Counts", "ProxySets", "one_proxy", "two_proxies", "two_proxies_with_rollback"]

#: Number of proxies in each region.
Counts = tuple[int, ...]
Candidates = Callable[[Counts], Iterator[Counts]]
SHORTER = 1 - 1e-9
"""A set is better if its total is below the best total times this."""


class ProxySets:
    """Sets of proxies, and those that are a step away from a set. A set is as good as F-FCT with it."""

    def __init__(self, preferences: Preferences) -> None:
        self.preferences = preferences
        self.search = SetSearch(preferences)
        self._most = tuple(region.max_instances for region in preferences.paths.problem.regions)

    @property
    def empty(self) -> Counts:
        """The set without a proxy."""
        return (0,) * len(self._most)

    def with_one_more(self, counts: Counts) -> Iterator[Counts]:
        """Yield the set with one more proxy, in each region that may have one (ADD-ONE-PROXY)."""
        for region, count in enumerate(counts):
            if count < self._most[region]:
                yield (*counts[:region], count + 1, *counts[region + 1 :])

    def with_two_more(self, counts: Counts) -> Iterator[Counts]:
        """Yield the set with two more proxies, each such set once (ADD-TWO-PROXIES); with one, if no second may be."""
        two = {second: None for first in self.with_one_more(counts) for second in self.with_one_more(first)}
        yield from two or self.with_one_more(counts)

    def without_one(self, counts: Counts) -> Iterator[Counts]:
        """Yield the set without one of its proxies, each such set once; the empty set stays."""
        if not any(counts):
            yield counts
        for region, count in enumerate(counts):
            if count:
                yield (*counts[:region], count - 1, *counts[region + 1 :])

    def with_rollback(self, counts: Counts) -> Iterator[Counts]:
        """Yield the sets with one proxy less and then two more (Algorithm 5)."""
        for fewer in self.without_one(counts):
            yield from self.with_two_more(fewer)


def one_proxy(sets: ProxySets) -> Assignment:
    """Add one proxy at a time (Algorithm 3)."""
    return _grown(sets, sets.with_one_more)


def two_proxies(sets: ProxySets) -> Assignment:
    """Add two proxies at a time (Algorithm 4)."""
    return _grown(sets, sets.with_two_more)


def two_proxies_with_rollback(sets: ProxySets) -> Assignment:
    """Remove one proxy and add two at a time (Algorithm 5)."""
    return _grown(sets, sets.with_rollback)


def _grown(sets: ProxySets, candidates: Candidates) -> Assignment:
    paths = sets.preferences.paths
    best, best_s = sets.empty, float(paths.fct_s[:, DIRECT].sum())
    while found := list(dict.fromkeys(candidates(best))):
        number, total_s = sets.search.best(found, best_s * SHORTER)
        if number < 0:
            break
        best, best_s = found[number], total_s
    assignment = flow_greedy(sets.preferences, best)
    upgrade(sets.preferences, assignment)
    return assignment
