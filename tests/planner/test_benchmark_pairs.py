"""The all-pairs benchmark skips the solver if the direct path is proven best. Here it is compared with the solver."""

from __future__ import annotations

import pytest

from benchmarks.planner.grids import GRID_FOLDER, Grids, transfer
from benchmarks.planner.pairs import AllPairs, PairPlanner, Planned
from tests.planner.worlds import random_world
from tradewind.model.region import Region
from tradewind.planner.goals import fastest
from tradewind.planner.plan import prepare


def planned_of(seed: int) -> tuple[PairPlanner, list[Planned]]:
    planner = PairPlanner(random_world(seed, 6))
    regions = planner.network.regions
    found = [planner.plan((a, b)) for a in regions for b in regions if a != b]
    return planner, [planned for planned in found if planned is not None]


@pytest.mark.parametrize("seed", range(4))
def test_pairs_proven_without_the_solver_match_the_solver(seed: int) -> None:
    planner, found = planned_of(seed)
    assert any(not planned.solved for planned in found), "the world must have pairs that are proven without the solver"
    for planned in found:
        made = prepare(planner.catalog, planned.src, planned.dst, 50.0, network=planner.network)
        best = fastest(made.formulation, made.demand, made.settings)
        assert best is not None
        assert planned.gbps == pytest.approx(best.rate_gbps, rel=1e-6)
        assert planned.usd == pytest.approx(best.cost_usd, rel=1e-6)
        assert planned.speedup >= 1 - 1e-6


def test_plans_of_all_pairs_can_be_stored_and_read() -> None:
    _, found = planned_of(0)
    every = AllPairs(tuple(found), 30, 1.0, 2.0, 2, 0.5, 0.6)
    assert AllPairs.from_json(every.to_json()) == every


def test_a_pair_whose_first_model_fails_in_the_simplex_is_proven() -> None:
    """Without presolve the solver's answer is "unknown"."""
    grids = Grids(GRID_FOLDER)
    if reason := grids.missing():
        pytest.skip(reason)
    ends = Region("aws", "eu-north-1"), Region("azure", "uaenorth")
    made = transfer(grids.november, *ends, 1)
    best = fastest(made.formulation, made.demand, made.settings)
    assert best is not None
    assert best.gap < 1e-6
