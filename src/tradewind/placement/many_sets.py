"""F-FCT for many sets of proxies at once, to find the set with the shortest total completion time.

The sets that a proxy-greedy algorithm compares differ by a few proxies, so F-FCT makes the same first decisions for
most of them. A branch is a state of F-FCT and the sets that lead to it. It splits where the next decision depends on
how many proxies a set has in a region. The result is that of `flow_greedy` for each set, decision by decision.

A branch ends early if its total exceeds the best one so far even if each flow that is left gets the path it waits for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tradewind.placement.flow_greedy import Preferences
from tradewind.placement.packing import FITS
from tradewind.placement.paths import DIRECT

__all__ = ["SetSearch"]

ROUNDING = 1 + 1e-9
"""Factor for comparisons that only skip work: a group or branch is kept in case of doubt."""

#: A path of a group: its first and second region (-1 if none), rate, egress price, and number.
Member = tuple[int, int, float, float, int]
#: The first and second region of a path (-1 if none), and its rate.
End = tuple[int, int, float]
#: How a branch can continue: new instances, cost, position in the group, sets that can, path, instances, rate.
Option = tuple[int, float, int, int, int, tuple[tuple[int, int], ...], float]


class _Groups:
    """The groups of one flow: paths of equal gain, the best first."""

    def __init__(self, preferences: Preferences, flow: int) -> None:
        paths = preferences.paths
        self._paths, self._flow = paths, flow
        ordered, ranks = preferences.ordered[flow], preferences.ranks[flow]
        needed = ~_needless(preferences, flow)[ordered]
        ordered, ranks = ordered[needed], ranks[needed]
        self.ordered = ordered
        #: Group of each position in `ordered`.
        self.rank_of: list[int] = ranks.tolist()
        starts = np.searchsorted(ranks, np.arange((self.rank_of[-1] if self.rank_of else -1) + 2)).tolist()
        self.starts: list[int] = starts
        #: By group, the gain that orders the flows, and the least completion time.
        self.gains_s: list[float] = preferences.value[flow, ordered[starts[:-1]]].tolist()
        fct_s = paths.fct_s[flow, ordered]
        self.fct_s: list[float] = np.minimum.reduceat(fct_s, starts[:-1]).tolist() if len(fct_s) else []
        self.direct_s = float(paths.fct_s[flow, DIRECT])
        self._members: dict[int, tuple[list[Member], bool]] = {}

    def ends(self) -> list[End]:
        """Return the first and second region of each path in order (-1 if none) and its rate, and an end mark."""
        paths, ordered = self._paths, self.ordered
        first, second = paths.first[ordered].tolist(), paths.second[ordered].tolist()
        return [*zip(first, second, paths.rate_mbps[self._flow, ordered].tolist(), strict=True), (-1, -1, -math.inf)]

    def members(self, group: int) -> tuple[list[Member], bool]:
        """Return the paths of a group, and whether their prices never fall."""
        known = self._members.get(group)
        if known is None:
            paths, ordered = self._paths, self.ordered[self.starts[group] : self.starts[group + 1]]
            cents: list[float] = paths.egress_cents[self._flow, ordered].tolist()
            first, second = paths.first[ordered].tolist(), paths.second[ordered].tolist()
            rates_mbps = paths.rate_mbps[self._flow, ordered].tolist()
            made: list[Member] = list(zip(first, second, rates_mbps, cents, ordered.tolist(), strict=True))
            known = self._members[group] = made, all(one <= other for one, other in pairwise(cents))
        return known


class _Branch:
    """A state of F-FCT, and the sets that lead to it as bits."""

    __slots__ = ("at", "bound_s", "heads", "loads", "path_of", "sets", "spent_cents")

    def __init__(self, sets: int, flows: int, regions: int) -> None:
        self.sets = sets
        self.path_of = [DIRECT] * flows
        self.loads: list[list[float]] = [[] for _ in range(regions)]
        self.spent_cents = 0.0
        #: The next group of each flow without a path: minus its value, the flow, the group.
        self.heads: list[tuple[float, int, int]] = []
        #: By flow, the first position with room when that was last determined. Room never grows.
        self.at = [0] * flows
        #: Total if each flow in `heads` gets a path of its group, and others without a path stay direct.
        self.bound_s = 0.0

    def split(self, sets: int) -> _Branch:
        """Return a branch that continues on its own with some of the sets."""
        other = _Branch.__new__(_Branch)
        other.sets = sets
        other.path_of, other.heads, other.at = list(self.path_of), list(self.heads), list(self.at)
        other.loads = [list(of_region) for of_region in self.loads]
        other.spent_cents, other.bound_s = self.spent_cents, self.bound_s
        return other


class SetSearch:
    """Searches sets of proxies for the one with the shortest total of F-FCT. Preferences must be by gain."""

    def __init__(self, preferences: Preferences) -> None:
        paths = preferences.paths
        problem = paths.problem
        self.paths = paths
        self._flows = [_Groups(preferences, flow) for flow in range(len(problem.flows))]
        #: By flow and position: both regions and the rate. The last position always has room and is no path.
        self._ends = [groups.ends() for groups in self._flows]
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
        every.bound_s = sum(groups.fct_s[0] if groups.fct_s else groups.direct_s for groups in self._flows)
        every.heads = [(-groups.gains_s[0], flow, 0) for flow, groups in enumerate(self._flows) if groups.gains_s]
        self._wait(every)
        left = [every]
        while left:
            self._follow(left.pop(), left)
        return self._best[1], self._best[0]

    def _follow(self, branch: _Branch, left: list[_Branch]) -> None:
        """Make the decisions of F-FCT to the end. Where the sets differ, other branches are added to `left`."""
        while branch.heads and branch.bound_s <= self._limit_s:
            _, flow, group = heappop(branch.heads)
            options = self._options(branch, flow, group)
            remaining = branch.sets
            if not options or options[0][3] == remaining:
                self._decide(branch, flow, group, options[0] if options else None)
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
                self._decide(other, flow, group, choice)
                left.append(other)
            branch.sets = taken[0][0]
            self._decide(branch, flow, group, taken[0][1])
        if branch.bound_s <= self._limit_s:
            total_s = sum(fct_s[path] for fct_s, path in zip(self._fct_s, branch.path_of, strict=True))
            first = (branch.sets & -branch.sets).bit_length() - 1
            if total_s < self._best[0] or (total_s == self._best[0] and first < self._best[1]):
                self._best, self._limit_s = (total_s, first), total_s * ROUNDING

    def _decide(self, branch: _Branch, flow: int, group: int, option: Option | None) -> None:
        """Let a flow take a path, or wait for its next group."""
        if option is None:
            groups = self._flows[flow]
            if group + 1 < len(groups.gains_s):
                branch.bound_s += groups.fct_s[group + 1] - groups.fct_s[group]
                branch.at[flow] = max(branch.at[flow], groups.starts[group + 1])
                heappush(branch.heads, (-groups.gains_s[group + 1], flow, group + 1))
            else:
                branch.bound_s += groups.direct_s - groups.fct_s[group]
            if branch.bound_s <= self._limit_s:
                self._wait(branch)
            return
        _, cents, _, _, path, instances, rate_mbps = option
        branch.path_of[flow] = path
        branch.spent_cents += cents
        for region, number in instances:
            loads = branch.loads[region]
            if number == len(loads):
                loads.append(0.0)
            loads[number] += rate_mbps

    def _wait(self, branch: _Branch) -> None:
        """Let each flow without a path wait for a group that some set has room for, its present one or a later one."""
        room, at = self._room(branch), branch.at
        heads: list[tuple[float, int, int]] = []
        for head in branch.heads:
            _, flow, group = head
            ends, position = self._ends[flow], at[flow]
            p, q, rate_mbps = ends[position]
            if rate_mbps <= room[p] and rate_mbps <= room[q]:
                heads.append(head)
                continue
            while rate_mbps > room[p] or rate_mbps > room[q]:
                position += 1
                p, q, rate_mbps = ends[position]
            at[flow] = position
            groups = self._flows[flow]
            if position == len(groups.rank_of):
                branch.bound_s += groups.direct_s - groups.fct_s[group]
                continue
            found = groups.rank_of[position]
            heads.append((-groups.gains_s[found], flow, found))
            branch.bound_s += groups.fct_s[found] - groups.fct_s[group]
        heapify(heads)
        branch.heads = heads

    def _room(self, branch: _Branch) -> list[float]:
        """Return the highest rate for which any of the sets has room, by region, then without a region."""
        room = [math.inf] * (len(self._capacity) + 1)
        for region, loads in enumerate(branch.loads):
            if self._more[region][len(loads)] & branch.sets:
                room[region] = self._capacity[region] * ROUNDING
            else:
                room[region] = (self._capacity[region] - min(loads)) * ROUNDING + 1e-6 if loads else -1.0
        return room

    def _options(self, branch: _Branch, flow: int, group: int) -> list[Option]:
        """Return the ways in which a branch can give the flow a path of a group, the best one first."""
        capacity, setup, more, every = self._capacity, self._setup, self._more, branch.sets
        found: list[Option] = []
        members, by_price = self._flows[flow].members(group)
        for position, (p, q, rate_mbps, cents, path) in enumerate(members):
            sets, new = every, 0
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
    found = []
    for least in range(max(counts) + 1):
        bits = bytearray(len(counts) // 8 + 1)
        for number, count in enumerate(counts):
            if count > least:
                bits[number // 8] |= 1 << number % 8
        found.append(int.from_bytes(bits, "little"))
    return found
