"""Measure the gain of exactness: the frontier against samples of it, and minimum rates against exact rates."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence

from benchmarks.planner.grids import Grids, network_of, transfer
from benchmarks.planner.paper import Traced
from benchmarks.planner.section import Section, quantile, table
from tradewind.model.goal import MinThroughput
from tradewind.planner.goals import cheapest_exactly, fastest
from tradewind.planner.plan import Transfer, solve_overlay

SAMPLES = 100
"""Number of samples, as in the paper (§5.3)."""
COSTS_COMPARED = 400
BETTER = 1e-6
"""Relative tolerance: a smaller saving is a rounding error."""


def sampled(made: Transfer, low_gbps: float, high_gbps: float) -> list[tuple[float, float]]:
    """Return the frontier by the paper's method: (rate, cost) of the cheapest plan at each of 100 rates."""
    points = []
    for step in range(SAMPLES):
        rate = low_gbps + (high_gbps - low_gbps) * step / (SAMPLES - 1)
        point = cheapest_exactly(made.formulation, made.demand, rate * (1 - 1e-9), made.settings)
        if point is not None:
            points.append((point.rate_gbps, point.cost_usd))
    return points


def exactness(grids: Grids, traced: Mapping[str, Traced], pairs: int) -> Section:
    """Return the section with both comparisons."""
    rows = [_against_samples(one) for one in traced.values()]
    savings, exact_s, least_s = _against_exactly(grids, pairs)
    better = [saving for saving in savings if saving > BETTER]
    header = ["route", "exact: solves, CPU-s", f"{SAMPLES} samples: CPU-s", "rate lost by sampling: mean", "worst"]
    header.append("all proven")
    lines = [
        *table(header, rows),
        "The loss is the difference in rate between the fastest sampled plan within a ceiling and the exact one, over "
        f"{COSTS_COMPARED} ceilings from the cheapest to the fastest plan. The paper takes 100 samples in under 20 s. "
        "A single ceiling does not need the frontier, only one solve.",
        "",
        f"**At least against exactly** ({len(savings)} random pairs of January, at 0.3 to 0.9 of their fastest rate): "
        f"the cheapest plan at the rate or more is cheaper than the one at exactly the rate for {len(better)} pairs, "
        f"by {statistics.median(better):.1%} in the median of these and {max(better):.1%} at most. It is more "
        f"expensive for none (largest excess {max(0.0, -min(savings)):.0e}). Machines are paid whole, so a slightly "
        f"higher rate can cost less in total. Solving takes {statistics.median(exact_s):.3f} CPU-s in the median and "
        f"{quantile(exact_s, 0.95):.3f} at the 95th percentile for exactly, {statistics.median(least_s):.3f} and "
        f"{quantile(least_s, 0.95):.3f} for at least.",
    ]
    return Section("Gain of exactness", tuple(lines))


def _against_samples(one: Traced) -> list[str]:
    segments = one.frontier.segments
    start_s = time.process_time()
    points = sampled(one.made, segments[0].rate_from_gbps, segments[-1].rate_to_gbps)
    spent_s = time.process_time() - start_s
    low, high = segments[0].cost_from_usd, segments[-1].cost_to_usd
    lost = []
    for step in range(COSTS_COMPARED):
        cost = low + (high - low) * (step + 0.5) / COSTS_COMPARED
        have = max((rate for rate, usd in points if usd <= cost), default=0.0)
        lost.append(1 - have / one.frontier.rate_gbps(cost))
    regions, ends = one.made.network.regions, (one.made.formulation.source, one.made.formulation.sink)
    proven = sum(segment.proven for segment in segments)
    return [
        " → ".join(str(regions[end]) for end in ends),
        f"{one.frontier.solves}, {one.cpu_s:.1f}",
        f"{spent_s:.1f}",
        f"{statistics.fmean(lost):.1%}",
        f"{max(lost):.1%}",
        f"{proven} of {len(segments)} segments",
    ]


def _against_exactly(grids: Grids, pairs: int) -> tuple[list[float], Sequence[float], Sequence[float]]:
    """Return the fraction saved for each pair, then the CPU seconds of both solves."""
    rng, network = random.Random(11), network_of(grids.january, 1)
    savings, exact_s, least_s = [], [], []
    for _ in range(pairs):
        src, dst = rng.sample(network.regions, 2)
        made = transfer(grids.january, src, dst, 1, network=network)
        best = fastest(made.formulation, made.demand, made.settings, cheapest_too=False)
        if best is None:
            continue
        goal = rng.uniform(0.3, 0.9) * best.rate_gbps
        start_s = time.process_time()
        exact = cheapest_exactly(made.formulation, made.demand, goal, made.settings)
        exact_s.append(time.process_time() - start_s)
        start_s = time.process_time()
        least = solve_overlay(made, MinThroughput(goal))
        least_s.append(time.process_time() - start_s)
        assert exact is not None
        savings.append(1 - least.cost.total_usd / exact.cost_usd)
    return savings, exact_s, least_s
