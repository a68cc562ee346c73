"""Compare our branch and bound with that of HiGHS, on the same models (docs/decisions/0018)."""

from __future__ import annotations

import highspy
import numpy as np
import pytest

from tests.planner.worlds import random_world
from tradewind.model.region import Region
from tradewind.planner.branch import search_machines
from tradewind.planner.formulation import Formulation, Subproblem, build_formulation
from tradewind.planner.linear import SolverSettings, pass_model, quiet_highs
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import prepare

SOURCE, SINK = Region("p", "r0"), Region("q", "r1")
EXACT = 1e-9


def formulation_of(seed: int) -> Formulation:
    """Return the model of a random world of 5 to 9 regions, with up to 4 machines each, of up to 3 types."""
    catalog = random_world(seed, 5 + seed % 5, types=1 + seed % 3)
    limits = PlanningLimits(machines_per_region=1 + seed % 4)
    network = prepare(catalog, SOURCE, SINK, 40.0, limits).network
    return build_formulation(network, network.regions.index(SOURCE), network.regions.index(SINK))


def least_of_highs(formulation: Formulation, subproblem: Subproblem) -> float | None:
    """Return the minimum objective of the whole model by HiGHS alone; None if it is infeasible."""
    highs = quiet_highs(EXACT)
    pass_model(highs, formulation, subproblem, relax=False)
    highs.run()
    if highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return None
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(highs.getObjectiveValue())


@pytest.mark.parametrize("seed", range(24))
def test_both_find_the_same_best_machines(seed: int) -> None:
    formulation = formulation_of(seed)
    fastest = Subproblem(0.0, np.inf, maximise_rate=True)
    top = least_of_highs(formulation, fastest)
    assert top is not None and top < 0
    asks = [fastest, *(Subproblem(-top * part, np.inf) for part in (0.2, 0.6, 0.95)), Subproblem(-top * 1.05, np.inf)]
    compared = 0
    for subproblem in asks:
        ours = search_machines(formulation, subproblem, SolverSettings().with_new_budget(), cutoff=np.inf)
        theirs = least_of_highs(formulation, subproblem)
        if theirs is None:
            assert ours.machines is None and ours.complete
            continue
        assert ours.complete and ours.objective == pytest.approx(theirs, rel=1e-6, abs=1e-6)
        compared += 1
    assert compared == len(asks) - 1, "a rate above the fastest is infeasible"
