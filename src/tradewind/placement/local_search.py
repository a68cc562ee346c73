"""Improve an assignment move by move: a flow takes a better path, and another flow makes room or money for it.

Where no move helps any more, some flows are made direct and placed again, and the moves begin anew.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tradewind.placement.assignment import Assignment, Fit
from tradewind.placement.deadline import CpuDeadline
from tradewind.placement.flow_greedy import Preferences, upgrade
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

#: A flow, its path before a move, and what `Assignment.place` needs to restore it.
Undo = tuple[int, int, Fit]


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
        for path in self.best_paths[flow]:
            gain_s = now_s - float(self.fct_s[flow, path])
            if gain_s <= SHORTER_S:
                continue
            for other in self._in_the_way(flow, path):
                if self.left <= 0:
                    return False
                self.left -= 1
                if self._exchanged(flow, path, other, gain_s):
                    return True
        return False

    def _in_the_way(self, flow: int, path: int) -> Iterator[int]:
        """Yield flows in the regions of a path, then those that cost most for what they gain."""
        path_of, instances_of = self.assignment.path_of, self.assignment.instances_of
        wanted = set(self.paths.regions[path])
        near = [
            other
            for other, instances in enumerate(instances_of)
            if other != flow and any(region in wanted for region, _ in instances)
        ]
        near.sort(key=lambda other: float(self.fct_s[other, DIRECT] - self.fct_s[other, path_of[other]]))
        far = [other for other in range(len(path_of)) if other != flow and path_of[other] and other not in set(near)]
        far.sort(key=lambda other: float(self.fct_s[other, DIRECT] - self.fct_s[other, path_of[other]]))
        yield from (near + far)[:OTHERS_MAX]

    def _exchanged(self, flow: int, path: int, other: int, gain_s: float) -> bool:
        """Let a flow take a path, and another one its best path after that. Undone unless both together gain."""
        undo: list[Undo] = [(other, *self.assignment.release(other)), (flow, *self.assignment.release(flow))]
        before_s = float(self.fct_s[other, undo[0][1]])
        fit = self.assignment.fit(flow, path)
        if fit is not None and self.assignment.affords(fit.cents):
            self.assignment.place(flow, path, fit)
            after = self._best_path(other, before_s + gain_s - SHORTER_S)
            if after is not None:
                if after[1] is not None:
                    self.assignment.place(other, after[0], after[1])
                return True
            self.assignment.release(flow)
        for one, its_path, its_fit in reversed(undo):
            self.assignment.place(one, its_path, its_fit)
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
