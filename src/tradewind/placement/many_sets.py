"""F-FCT for many sets of proxies at once, to find the set with the shortest total completion time.

The sets that a proxy-greedy algorithm compares differ by a few proxies, so F-FCT makes the same first decisions for
most of them. A branch is a state of F-FCT and the sets that lead to it. It splits where the next decision depends on
how many proxies a set has in a region. The result is that of `flow_greedy` for each set, decision by decision.

A branch ends early if its total exceeds the best one so far even if each flow that is left gets the path it waits for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop

import numpy as np
from numpy.typing import NDArray

from tradewind.placement.flow_greedy import Preferences
from tradewind.placement.packing import FITS
from tradewind.placement.paths import DIRECT

__all__ = ["SetSearch"]

ROUNDING = 1 + 1e-9
"""Factor for comparisons that only skip work: a group or branch is kept in case of doubt."""

#: A path that a flow waits for: minus its gain, the flow, its group, its position in the order of the flow, its
#: first and second region (-1 if none), rate, egress price, and number.
Head = tuple[float, int, int, int, int, int, float, float, int]
#: How a branch can continue: new instances, cost, position, sets that can, path, instances, rate.
Option = tuple[int, float, int, int, int, tuple[tuple[int, int], ...], float]


class _Groups:
    """The groups of one flow: paths of equal gain, the best first."""

    def __init__(self, preferences: Preferences, flow: int) -> None:
        paths = preferences.paths
        ordered, ranks = preferences.ordered[flow], preferences.ranks[flow]
        needed = ~_needless(preferences, flow)[ordered]
        ordered, ranks = ordered[needed], ranks[needed]
        cents = paths.egress_cents[flow, ordered]
        #: First position of each group, and the number of positions.
        self.starts: list[int] = np.searchsorted(ranks, np.arange((ranks[-1] if len(ranks) else -1) + 2)).tolist()
        starts = self.starts[:-1]
        #: Groups in which a later path may be cheaper than an earlier one.
        self.unordered: set[int] = set(ranks[1:][(cents[1:] < cents[:-1]) & (ranks[1:] == ranks[:-1])].tolist())
        fct_s = paths.fct_s[flow, ordered]
        #: The least completion time of each group, and at the end that of the direct path.
        self.fct_s: list[float] = np.minimum.reduceat(fct_s, starts).tolist() if len(fct_s) else []
        self.fct_s.append(float(paths.fct_s[flow, DIRECT]))
        columns = (
            -preferences.value[flow, ordered[starts]][ranks],
            np.full(len(ordered), flow),
            ranks,
            np.arange(len(ordered)),
            paths.first[ordered],
            paths.second[ordered],
            paths.rate_mbps[flow, ordered],
            cents,
            ordered,
        )
        #: The paths in order, and an end mark that always has room.
        self.heads: list[Head] = [
            *zip(*(column.tolist() for column in columns), strict=True),
            (0.0, flow, len(starts), len(ordered), -1, -1, -math.inf, 0.0, DIRECT),
        ]


class _Branch:
    """A state of F-FCT, and the sets that lead to it as bits."""

    __slots__ = ("bound_s", "heads", "loads", "path_of", "room", "sets", "spent_cents")

    def __init__(self, sets: int, flows: int, regions: int) -> None:
        self.sets = sets
        self.path_of = [DIRECT] * flows
        self.loads: list[list[float]] = [[] for _ in range(regions)]
        #: The highest rate for which any of the sets has room, or more, by region, then without a region. Never grows.
        self.room = [math.inf] * (regions + 1)
        self.spent_cents = 0.0
        #: The first group with room of each flow without a path, as a heap.
        self.heads: list[Head] = []
        #: Total if each flow in `heads` gets a path of its group, and others without a path stay direct.
        self.bound_s = 0.0

    def split(self, sets: int) -> _Branch:
        """Return a branch that continues on its own with some of the sets."""
        other = _Branch.__new__(_Branch)
        other.sets = sets
        other.path_of, other.heads, other.room = self.path_of[:], self.heads[:], self.room[:]
        other.loads = [of_region[:] for of_region in self.loads]
        other.spent_cents, other.bound_s = self.spent_cents, self.bound_s
        return other


class SetSearch:
    """Searches sets of proxies for the one with the shortest total of F-FCT. Preferences must be by gain."""

    def __init__(self, preferences: Preferences) -> None:
        paths = preferences.paths
        problem = paths.problem
        self.paths = paths
        self._flows = [_Groups(preferences, flow) for flow in range(len(problem.flows))]
        self._every_region = range(len(problem.regions))
        self._heads = [groups.heads for groups in self._flows]
        self._group_fct_s = [groups.fct_s for groups in self._flows]
        self._fct_s: list[list[float]] = paths.fct_s.tolist()
        self._capacity = [region.capacity_mbps * FITS for region in problem.regions]
        self._setup = [region.setup_cents for region in problem.regions]
        self._budget = problem.budget_cents * FITS
        #: By region, the sets with more proxies there than the index says.
        self._more: list[list[int]] = []
        self._best = (math.inf, -1)
        self._limit_s = math.inf

    def best(self, sets: Sequence[Sequence[int]], below_s: float) -> tuple[int, float]:
        """Return the number of the best set, the first one of equals, and its total; -1 if none is below `below_s`.

        A set is the number of proxies in each region.
        """
        self._more = [_more(column) for column in zip(*sets, strict=True)]
        self._best, self._limit_s = (below_s, -1), below_s * ROUNDING
        every = _Branch((1 << len(sets)) - 1, len(self._flows), len(self._capacity))
        every.bound_s = sum(fct_s[0] for fct_s in self._group_fct_s)
        every.heads = [heads[0] for heads in self._heads if len(heads) > 1]
        self._see_room(every, self._every_region)
        self._wait(every)
        left = [every]
        while left:
            self._follow(left.pop(), left)
        return self._best[1], self._best[0]

    def _follow(self, branch: _Branch, left: list[_Branch]) -> None:
        """Make the decisions of F-FCT to the end. Where the sets differ, other branches are added to `left`."""
        while branch.heads and branch.bound_s <= self._limit_s:
            head = heappop(branch.heads)
            options = self._options(branch, head)
            remaining = branch.sets
            if not options or options[0][3] == remaining:
                self._decide(branch, head, options[0] if options else None)
                continue
            taken: list[tuple[int, Option | None]] = []
            for option in options:
                if able := remaining & option[3]:
                    taken.append((able, option))
                    remaining ^= able
                    if not remaining:
                        break
            if remaining:
                taken.append((remaining, None))
            for sets, choice in taken[1:]:
                other = branch.split(sets)
                self._see_room(other, self._every_region)
                self._decide(other, head, choice)
                left.append(other)
            branch.sets = taken[0][0]
            self._see_room(branch, self._every_region)
            self._decide(branch, head, taken[0][1])
        if branch.bound_s <= self._limit_s:
            total_s = sum(fct_s[path] for fct_s, path in zip(self._fct_s, branch.path_of, strict=True))
            first = (branch.sets & -branch.sets).bit_length() - 1
            if total_s < self._best[0] or (total_s == self._best[0] and first < self._best[1]):
                self._best, self._limit_s = (total_s, first), total_s * ROUNDING

    def _decide(self, branch: _Branch, head: Head, option: Option | None) -> None:
        """Let a flow take a path, or wait for its next group."""
        if option is None:
            flow, group = head[1], head[2]
            fct_s = self._group_fct_s[flow]
            branch.bound_s += fct_s[group + 1] - fct_s[group]
            if group + 2 < len(fct_s):
                branch.heads.append(self._heads[flow][self._flows[flow].starts[group + 1]])
            self._wait(branch)
            return
        _, cents, _, _, path, instances, rate_mbps = option
        branch.path_of[head[1]] = path
        branch.spent_cents += cents
        for region, number in instances:
            loads = branch.loads[region]
            if number == len(loads):
                loads.append(0.0)
            loads[number] += rate_mbps
        self._see_room(branch, self.paths.regions[path])

    def _wait(self, branch: _Branch) -> None:
        """Let each flow without a path wait for a group that some set has room for, its present one or a later one."""
        room, limit_s, bound_s = branch.room, self._limit_s, branch.bound_s
        heads: list[Head] = []
        for head in branch.heads:
            _, flow, group, position, p, q, rate_mbps, _, _ = head
            if rate_mbps <= room[p] and rate_mbps <= room[q]:
                heads.append(head)
                continue
            its = self._heads[flow]
            while rate_mbps > room[p] or rate_mbps > room[q]:
                position += 1
                head = its[position]
                _, _, found, _, p, q, rate_mbps, _, _ = head
            fct_s = self._group_fct_s[flow]
            if found != group:
                bound_s += fct_s[found] - fct_s[group]
                if bound_s > limit_s:
                    break
            if position < len(its) - 1:
                heads.append(head)
        heapify(heads)
        branch.heads, branch.bound_s = heads, bound_s

    def _see_room(self, branch: _Branch, regions: Iterable[int]) -> None:
        """Determine the room in some regions anew."""
        for region in regions:
            loads = branch.loads[region]
            if self._more[region][len(loads)] & branch.sets:
                branch.room[region] = self._capacity[region] * ROUNDING
            else:
                branch.room[region] = (self._capacity[region] - min(loads)) * ROUNDING + 1e-6 if loads else -1.0

    def _options(self, branch: _Branch, head: Head) -> list[Option]:
        """Return the ways in which a branch can give the flow a path of its group, the best one first."""
        capacity, setup, more, room = self._capacity, self._setup, self._more, branch.room
        found: list[Option] = []
        groups = self._flows[head[1]]
        group, start = head[2], head[3]
        by_price = group not in groups.unordered
        for _, _, _, position, p, q, rate_mbps, cents, path in groups.heads[start : groups.starts[group + 1]]:
            if rate_mbps > room[p] or rate_mbps > room[q]:
                continue
            sets, new = branch.sets, 0
            instances = []
            for region in (p, q):
                if region < 0:
                    continue
                loads = branch.loads[region]
                most = capacity[region] - rate_mbps
                number = 0
                for load in loads:
                    if load <= most:
                        break
                    number += 1
                else:
                    sets &= more[region][number]
                    if not sets or most < 0:
                        sets = 0
                        break
                    new += 1
                    cents += setup[region]
                instances.append((region, number))
            if sets and branch.spent_cents + cents <= self._budget:
                found.append((new, cents, position, sets, path, tuple(instances), rate_mbps))
                if not new and by_price:
                    break
        if len(found) > 1:
            found.sort()
        return found


def _needless(preferences: Preferences, flow: int) -> NDArray[np.bool_]:
    """Return for each path whether it has two proxies where one of them alone is as good.

    F-FCT never takes it: the path over one proxy needs less room and money and comes first.
    """
    paths = preferences.paths
    rate_mbps, value = paths.rate_mbps[flow], preferences.value[flow]
    pairs = paths.second >= 0
    needless = np.zeros(len(pairs), dtype=np.bool_)
    for ends in (paths.first, paths.second):
        alone = 1 + ends[pairs]
        needless[pairs] |= (rate_mbps[alone] == rate_mbps[pairs]) & (value[alone] == value[pairs])
    return needless


def _more(counts: Sequence[int]) -> list[int]:
    """Return for 0, 1, 2 … proxies the sets that have more than that, as bits."""
    known = np.asarray(counts)
    return [
        int.from_bytes(np.packbits(known > least, bitorder="little").tobytes(), "little")
        for least in range(max(counts) + 1)
    ]
