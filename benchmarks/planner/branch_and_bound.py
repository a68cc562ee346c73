"""Compare the planner's branch and bound with that of HiGHS, on random pairs of the packaged catalog (decision 0018).

`python -m benchmarks.planner.branch_and_bound [PAIRS]`
"""

from __future__ import annotations

import random
import statistics
import sys
import time

import highspy
import numpy as np

from tradewind.catalog.load import load_catalog
from tradewind.planner.branch import search_machines
from tradewind.planner.formulation import Subproblem, build_formulation
from tradewind.planner.linear import SolverSettings, pass_model, quiet_highs
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import prepare

SEED = 1
VOLUME_GB = 100.0
RATES = (0.3, 0.7)
"""Minimum rates of the goals, as fractions of the fastest rate."""
GAP = 1e-7
TIME_LIMIT_S = 60.0


def main(pairs: int) -> None:
    """Print CPU time and objective of both solvers for each problem, and the sums."""
    catalog, rng = load_catalog(), random.Random(SEED)
    regions = sorted({src for src, _ in catalog.grid.links}, key=str)
    ours_s, highs_s = [], []
    print(f"{'from':<22} {'to':<24} {'rate':>5} {'ours':>8} {'HiGHS':>8}  same objective, proven by us, by HiGHS")
    for _ in range(pairs):
        source, sink = rng.sample(regions, 2)
        network = prepare(catalog, source, sink, VOLUME_GB, PlanningLimits(machines_per_region=8)).network
        formulation = build_formulation(network, network.regions.index(source), network.regions.index(sink))
        fastest = search_machines(
            formulation, Subproblem(0.0, np.inf, maximise_rate=True), SolverSettings(), cutoff=np.inf
        )
        for part in RATES:
            subproblem = Subproblem(-fastest.objective * part, np.inf)
            began_s = time.process_time()
            ours = search_machines(formulation, subproblem, SolverSettings(), cutoff=np.inf)
            ours_s.append(time.process_time() - began_s)
            highs = quiet_highs(GAP)
            highs.setOptionValue("time_limit", TIME_LIMIT_S)
            pass_model(highs, formulation, subproblem, relax=False)
            began_s = time.process_time()
            highs.run()
            highs_s.append(time.process_time() - began_s)
            proven = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
            same = abs(ours.objective / highs.getObjectiveValue() - 1) < 1e-6
            print(
                f"{source!s:<22} {sink!s:<24} {part:>5.0%} {ours_s[-1]:>6.2f} s {highs_s[-1]:>6.2f} s"
                f"  {same}, {ours.complete}, {proven}"
            )
    print(f"median {statistics.median(ours_s):.2f} s against {statistics.median(highs_s):.2f} s CPU; ", end="")
    print(f"sum {sum(ours_s):.1f} s against {sum(highs_s):.1f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
