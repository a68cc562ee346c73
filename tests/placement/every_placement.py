"""The best of all placements of a small problem, by trying each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from tradewind.placement.packing import packed
from tradewind.placement.paths import Paths, paths_of
from tradewind.placement.problem import PlacementProblem

__all__ = ["least_total_s"]


def least_total_s(problem: PlacementProblem) -> float:
    """Return the least total completion time of all placements."""
    paths = paths_of(problem)
    return min(_total_s(paths, chosen) for chosen in itertools.product(*_choices(paths)))


def _choices(paths: Paths) -> Iterator[list[int]]:
    """Yield the paths that each flow may take: those that gain, and the direct one."""
    for gains in paths.gain_s:
        yield [path for path, gain_s in enumerate(gains) if path == 0 or gain_s > 0]


def _total_s(paths: Paths, chosen: tuple[int, ...]) -> float:
    """Return the total of a choice of paths; infinite if it needs more instances or money than there are."""
    problem = paths.problem
    cents = sum(float(paths.egress_cents[flow, path]) for flow, path in enumerate(chosen))
    for number, region in enumerate(problem.regions):
        rates = [
            float(paths.rate_mbps[flow, path]) for flow, path in enumerate(chosen) if number in paths.regions[path]
        ]
        needed = next(
            (
                count
                for count in range(region.max_instances + 1)
                if packed(rates, region.capacity_mbps, count) is not None
            ),
            None,
        )
        if needed is None:
            return math.inf
        cents += needed * region.setup_cents
    within = cents <= problem.budget_cents * (1 + 1e-9)
    return sum(float(paths.fct_s[flow, path]) for flow, path in enumerate(chosen)) if within else math.inf
