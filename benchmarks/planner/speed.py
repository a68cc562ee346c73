"""Measure the time of planning: cold and warm, with more regions, and the cost of importing the planner."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.planner.grids import Grids, network_of, synthetic_catalog, transfer
from benchmarks.planner.pairs import AllPairs, effort
from benchmarks.planner.section import Section, quantile, table
from tradewind.model.catalog import Catalog
from tradewind.model.goal import Cheapest, Fastest, Goal, MaxCost, MinThroughput
from tradewind.planner.plan import Transfer, solve_overlay, trace_transfer

REGIONS = (20, 71, 200)
RATE_PART = 0.6
"""Minimum rate of goals that need one, as a fraction of the fastest rate."""
CEILING = 1.25
"""Budget of goals that need one, as a multiple of the cheapest plan's cost."""
FOOTPRINT = """
import time
start = time.process_time()
{work}
spent = time.process_time() - start
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(spent, int(peak.split()[1]) / 1024)
"""
"""It reads VmHWM, because a child's `ru_maxrss` starts with its parent's."""
WORKS = {
    "Python alone": "",
    "`import highspy, numpy`": "import highspy, numpy",
    "`import tradewind`": "import tradewind",
    "the planner, first plan of the packaged catalog included": (
        'import tradewind\ntradewind.plan("aws:us-east-1", "gcp:europe-west4", volume_gb=100, min_throughput_gbps=10)'
    ),
}


def speed(grids: Grids, every: AllPairs, pairs: int, frontiers: int) -> Section:
    """Return the section."""
    lines = [
        "All pairs (Fig. 7 and 8):",
        "",
        *effort(every),
        "",
        f"Goals on the November grid, one machine per region, {pairs} random pairs. *Cold* includes building the "
        "network from the catalog, *warm* does not; both check the plan and find its limits. CPU-seconds in one "
        "process:",
        "",
        *_goals(grids.november, pairs),
        *_frontiers(grids.november, frontiers),
        "Growth, the fastest and the cheapest plan at 0.6 of its rate; 20 and 200 regions are synthetic, as is the "
        "second line of 71 (random links, which share fewer bottlenecks than real ones):",
        "",
        *_growth(grids.november, max(3, pairs // 8)),
        "Footprint, each in a process of its own:",
        "",
        *_footprint(),
        "Aims: median ≤ 0.15 s and 95th percentile ≤ 1 s a plan, a frontier in ≤ 3 s, all pairs in ≤ 300 s on two "
        "cores.",
    ]
    return Section("Speed", tuple(lines))


def _goals(catalog: Catalog, pairs: int) -> list[str]:
    rng, network = random.Random(17), network_of(catalog, 1)
    cold_s: list[float] = []
    warm_s: dict[str, list[float]] = {}
    for _ in range(pairs):
        src, dst = rng.sample(network.regions, 2)
        made = transfer(catalog, src, dst, 1, network=network)
        rate = RATE_PART * solve_overlay(made, Fastest()).throughput_gbps
        ceiling = CEILING * solve_overlay(made, Cheapest()).cost.total_usd
        at_least = MinThroughput(rate)
        start_s = time.process_time()
        solve_overlay(transfer(catalog, src, dst, 1), at_least)
        cold_s.append(time.process_time() - start_s)
        goals: dict[str, Goal] = {
            "cheapest at a rate, exactly": MinThroughput(rate, exactly=True),
            "cheapest at a rate or more": at_least,
            "cheapest": Cheapest(),
            "fastest within 1.25× of the cheapest's cost": MaxCost(ceiling),
            "fastest, and the cheapest of these": Fastest(),
        }
        for name, goal in goals.items():
            start_s = time.process_time()
            solve_overlay(made, goal)
            warm_s.setdefault(name, []).append(time.process_time() - start_s)
    rows = [_times("cheapest at a rate or more, cold", cold_s)]
    rows += [_times(f"{name}, warm", spent) for name, spent in warm_s.items()]
    return table(["goal", "median", "95th percentile", "worst"], rows)


def _times(name: str, spent_s: list[float]) -> list[str]:
    return [name, f"{statistics.median(spent_s):.3f}", f"{quantile(spent_s, 0.95):.3f}", f"{max(spent_s):.2f}"]


def _frontiers(catalog: Catalog, count: int) -> list[str]:
    rng, network = random.Random(23), network_of(catalog, 1)
    spent_s, solves, proven = [], [], 0
    for _ in range(count):
        src, dst = rng.sample(network.regions, 2)
        made = transfer(catalog, src, dst, 1, network=network)
        start_s = time.process_time()
        frontier = trace_transfer(made)
        spent_s.append(time.process_time() - start_s)
        solves.append(frontier.solves)
        proven += all(segment.proven for segment in frontier.segments)
    return [
        f"Exact frontiers of {count} random pairs: median {statistics.median(spent_s):.1f} CPU-s, 95th percentile "
        f"{quantile(spent_s, 0.95):.1f}, worst {max(spent_s):.1f}; {statistics.median(solves):.0f} solves in the "
        f"median, {max(solves)} at most; {proven} of {count} proven from end to end.",
        "",
    ]


def _growth(november: Catalog, pairs: int) -> list[str]:
    worlds = [(f"{count}, synthetic", synthetic_catalog(count)) for count in REGIONS]
    worlds.insert(1, ("71, November", november))
    rows = []
    for name, catalog in worlds:
        network, rng = network_of(catalog, 1), random.Random(29)
        ends = [rng.sample(network.regions, 2) for _ in range(pairs)]
        ways = [transfer(catalog, src, dst, 1, network=network) for src, dst in ends]
        fast_s, cheap_s = zip(*(_both(made) for made in ways), strict=True)
        cells = [f"{statistics.median(s):.2f}, {max(s):.2f}" for s in (fast_s, cheap_s)]
        rows.append([name, f"{len(network.tail):,}", *cells])
    return table(["regions", "links", "fastest: median, worst of CPU-s", "cheapest at a rate: median, worst"], rows)


def _both(made: Transfer) -> tuple[float, float]:
    start_s = time.process_time()
    best = solve_overlay(made, Fastest())
    middle_s = time.process_time()
    solve_overlay(made, MinThroughput(RATE_PART * best.throughput_gbps, exactly=True))
    return middle_s - start_s, time.process_time() - middle_s


def _footprint() -> list[str]:
    return table(["what", "CPU-s", "peak memory [MB]"], _footprints())


def _footprints() -> Iterator[list[str]]:
    for name, work in WORKS.items():
        ran = subprocess.run(
            [sys.executable, "-c", FOOTPRINT.format(work=work)], capture_output=True, text=True, check=True
        )
        cpu_s, memory_mb = map(float, ran.stdout.split())
        yield [name, f"{cpu_s:.2f}", f"{memory_mb:.0f}"]
