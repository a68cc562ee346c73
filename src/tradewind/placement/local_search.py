"""Improve an assignment move by move: a flow takes a better path, and another flow makes room or money for it.

Where no move helps any more, some flows are made direct and placed again, and the moves begin anew.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from tradewind.placement.assignment import Assignment, Fit
from tradewind.placement.deadline import CpuDeadline
from tradewind.placement.flow_greedy import Preferences, upgrade
from tradewind.placement.packing import FITS
from tradewind.placement.paths import DIRECT

__all__ = ["improve", "ruin_and_recreate"]

SHORTER_S = 1e-6
"""A move must shorten the total completion time by more than this."""
PATHS_MAX = 24
"""Paths that a flow tries, the best first."""
OTHERS_MAX = 60
"""Other flows that may make way for one flow on one path."""

RUINED_MAX = 8
"""Most flows that are placed again at once."""
INSTANCES_PART = 0.5
"""Part of the attempts that empty an instance."""
MOVES_AFTER_RUIN = 200
"""Most moves that are tried after flows were placed again."""


def improve(preferences: Preferences, assignment: Assignment, moves_max: int) -> None:
    """Move flows until no move shortens the total, or until `moves_max` moves have been tried."""
    search = _Search(preferences, assignment, moves_max)
    while search.pass_over_flows():
        upgrade(preferences, assignment)


def ruin_and_recreate(
    preferences: Preferences,
    thrifty: Preferences,
    known: Assignment,
    deadline: CpuDeadline,
    target_s: float,
    seed: int = 0,
) -> Assignment:
    """Place flows that share regions again, in random order, and keep what is better.

    Half of the time they are placed by `thrifty` preferences, which take the price of room and money into account.

    Ends at the deadline, or when the total reaches `target_s`.
    """
    rng = random.Random(seed)
    best = known
    while not deadline.is_over and best.total_fct_s > target_s:
        tried = best.copy()
        used = [flow for flow, path in enumerate(tried.path_of) if path != DIRECT]
        if not used:
            break
        ruined = _related(tried, rng.choice(used), rng)
        for flow in ruined:
            tried.release(flow)
        rng.shuffle(ruined)
        by = rng.choice((preferences, thrifty))
        for flow in ruined:
            _place_best(by, tried, flow)
        upgrade(preferences, tried)
        improve(preferences, tried, MOVES_AFTER_RUIN)
        if tried.total_fct_s < best.total_fct_s - SHORTER_S:
            best = tried
    return best


def _related(assignment: Assignment, flow: int, rng: random.Random) -> list[int]:
    """Return a flow and others that share a region with it, in random number; all flows of a region at times."""
    regions = {region for region, _ in assignment.instances_of[flow]}
    near = [
        other
        for other, instances in enumerate(assignment.instances_of)
        if other != flow and any(region in regions for region, _ in instances)
    ]
    if rng.random() < INSTANCES_PART:
        # Empty an instance: the money for it can then be spent elsewhere.
        chosen = rng.choice(assignment.instances_of[flow])
        return [other for other, instances in enumerate(assignment.instances_of) if chosen in instances]
    rng.shuffle(near)
    return [flow, *near[: rng.randint(1, RUINED_MAX)]]


def _place_best(preferences: Preferences, assignment: Assignment, flow: int) -> None:
    for path in preferences.best(flow, PATHS_MAX):
        fit = assignment.fit(flow, path)
        if fit is not None and assignment.affords(fit.cents):
            assignment.place(flow, path, fit)
            return


class _Search:
    def __init__(self, preferences: Preferences, assignment: Assignment, moves_max: int) -> None:
        self.paths, self.assignment, self.left = assignment.paths, assignment, moves_max
        self.fct_s = self.paths.fct_s
        self.setup_cents = [region.setup_cents for region in self.paths.problem.regions]
        self.best_paths = [preferences.best(flow, PATHS_MAX) for flow in range(len(self.fct_s))]

    def pass_over_flows(self) -> bool:
        """Try to improve each flow, those that lose most first. Returns whether any move was kept."""
        path_of = self.assignment.path_of
        loss_s = [float(self.fct_s[flow, path_of[flow]] - self.fct_s[flow].min()) for flow in range(len(path_of))]
        moved = False
        for flow in sorted(range(len(path_of)), key=lambda one: -loss_s[one]):
            if loss_s[flow] > SHORTER_S and self.left > 0:
                moved |= self._improved(flow)
        return moved

    def _improved(self, flow: int) -> bool:
        """Give a flow a better path, whatever it costs another one, if both together gain."""
        now_s = float(self.fct_s[flow, self.assignment.path_of[flow]])
        before = self.assignment.release(flow)
        for path in self.best_paths[flow]:
            gain_s = now_s - float(self.fct_s[flow, path])
            if gain_s <= SHORTER_S:
                continue
            for other in self._in_the_way(flow, path):
                self.left -= 1
                if self.left < 0:
                    break
                if self._exchanged(flow, path, other, gain_s):
                    return True
        self.assignment.place(flow, *before)
        return False

    def _in_the_way(self, flow: int, path: int) -> list[int]:
        """Return flows that may make room or money for a direct flow on a path, those that gain least first.

        If regions have no room, these are the flows that make room there. Otherwise they are those that cost enough,
        first those in the regions of the path.
        """
        rate_mbps = float(self.paths.rate_mbps[flow, path])
        others = [other for other, instances in enumerate(self.assignment.instances_of) if instances and other != flow]
        if full := self.assignment.without_room(flow, path):
            makes_room = self.assignment.makes_room
            useful = [other for other in others if all(makes_room(other, region, rate_mbps) for region in full)]
        else:
            useful = self._saving(others, flow, path, rate_mbps)
        wanted = set(self.paths.regions[path])
        path_of, regions = self.assignment.path_of, self.paths.regions
        useful.sort(key=lambda other: (wanted.isdisjoint(regions[path_of[other]]), self._gained_s(other)))
        return useful[:OTHERS_MAX]

    def _saving(self, others: list[int], flow: int, path: int, rate_mbps: float) -> list[int]:
        """Return the flows of `others` that may free the money which the budget lacks for a path with room."""
        fit = self.assignment.fit(flow, path)
        if fit is None:
            return []
        missing_cents = self.assignment.missing_cents(fit.cents)
        new = dict.fromkeys(self.assignment.new_regions(fit), rate_mbps)
        return [other for other in others if self._saved_cents(other, new) >= missing_cents]

    def _gained_s(self, flow: int) -> float:
        """Return what a flow gains on its path."""
        return float(self.fct_s[flow, DIRECT] - self.fct_s[flow, self.assignment.path_of[flow]])

    def _saved_cents(self, flow: int, new: Mapping[int, float]) -> float:
        """Return an upper bound on what is saved if a flow leaves its path.

        `new` has the regions in which another flow would need a new instance, and its rate: it may take over a place.
        """
        cents = self.assignment.own_cents(flow)
        for region, rate_mbps in new.items():
            if self.assignment.makes_room(flow, region, rate_mbps):
                cents += self.setup_cents[region]
        return cents * FITS

    def _exchanged(self, flow: int, path: int, other: int, gain_s: float) -> bool:
        """Let a direct flow take a path, and another one its best path after that. Undone unless both together gain."""
        before_s = float(self.fct_s[other, self.assignment.path_of[other]])
        before = self.assignment.release(other)
        fit = self.assignment.fit(flow, path)
        if fit is not None and self.assignment.affords(fit.cents):
            self.assignment.place(flow, path, fit)
            after = self._best_path(other, before_s + gain_s - SHORTER_S)
            if after is not None:
                if after[1] is not None:
                    self.assignment.place(other, after[0], after[1])
                return True
            self.assignment.release(flow)
        self.assignment.place(other, *before)
        return False

    def _best_path(self, flow: int, most_s: float) -> tuple[int, Fit | None] | None:
        """Return the best affordable path with room that ends a direct flow before `most_s`; None if there is none."""
        for path in self.best_paths[flow]:
            if self.fct_s[flow, path] >= most_s:
                continue
            fit = self.assignment.fit(flow, path)
            if fit is not None and self.assignment.affords(fit.cents):
                return path, fit
        return (DIRECT, None) if self.fct_s[flow, DIRECT] < most_s else None
