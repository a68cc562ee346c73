"""Reproduces the Skyplane paper's planner figures on the measured grids, and measures our planner.

One command: `python benchmarks/planner/run.py --grid ../shared/grid [--pairs 200]`. Prints Markdown. Without --pairs
all ordered pairs of the November grid are planned for Figures 7 and 8.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import random
import resource
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tradewind.catalog.load import load_catalog
from tradewind.model.catalog import Catalog
from tradewind.model.goal import Fastest, MaxCost, MinThroughput
from tradewind.model.grid import Grid, Link
from tradewind.model.machine import MachineOffer, MachineType
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice, PriceBook, PriceTier
from tradewind.model.region import Region
from tradewind.planner.baseline import direct, ron
from tradewind.planner.explain import bottlenecks
from tradewind.planner.goals import Point, cheapest_exactly, fastest, fastest_within
from tradewind.planner.network import Limits, Network, build_network
from tradewind.planner.plan import Transfer, answer_goal, prepare, trace_transfer
from tradewind.planner.solver import Answer

CAPS = {"aws": (5.0, 10.0, 1.536), "azure": (16.0, 16.0, 1.536), "gcp": (7.0, 16.0, 1.5539)}
MEASURED = Origin("measured", "shared/grid", "")


def measured_catalog(folder: Path, date: str, column: str) -> Catalog:
    """The paper's machines and prices over a measured grid."""
    links, prices = {}, {}
    with (folder / f"throughput_{date}.csv").open() as table:
        for row in csv.DictReader(table):
            links[Region.parse(row["src"]), Region.parse(row["dst"])] = Link(float(row[column]), MEASURED)
    with (folder / "egress_price_2022.csv").open() as table:
        for row in csv.DictReader(table):
            tier = PriceTier(0.0, float(row["usd_per_gb"]))
            prices[Region.parse(row["src"]), Region.parse(row["dst"])] = EgressPrice((tier,), MEASURED)
    offers = {}
    for provider, (egress, ingress, usd_per_hour) in CAPS.items():
        machine = MachineType(provider, f"{provider}-32", 32, 16, egress, ingress, 0.0, MEASURED)
        offers[provider] = (MachineOffer(machine, usd_per_hour, spot=False, origin=MEASURED),)
    return Catalog({}, PriceBook(prices), Grid(links), offers)


def transfer(catalog: Catalog, src: str, dst: str, volume_gb: float, machines: int) -> Transfer:
    """One transfer with at most `machines` per region."""
    return prepare(catalog, Region.parse(src), Region.parse(dst), volume_gb, Limits(machines_per_region=machines))


def figure_1(january: Catalog) -> Iterator[str]:
    """The paper's opening route."""
    made = transfer(january, "azure:canadacentral", "gcp:asia-northeast1", 50, 1)
    plan = answer_goal(made, MinThroughput(12.4, exactly=True))
    straight = direct(made)
    assert straight is not None
    yield "## Fig. 1: azure:canadacentral → gcp:asia-northeast1\n"
    yield "| | paper | ours |\n|---|---|---|"
    yield f"| direct | 6.2 Gbit/s | {straight.throughput_gbps:.2f} Gbit/s |"
    yield f"| via azure:westus2 | 12.4 Gbit/s | {plan.throughput_gbps:.2f} Gbit/s |"
    over = plan.cost.total_usd / straight.cost.total_usd
    yield f"| cost against direct | 1.2× | {over:.2f}× ({plan.cost.total_usd:.4f} USD) |\n"


def table_2(january: Catalog, november: Catalog) -> Iterator[str]:
    """16 GB from Azure East US to AWS ap-northeast-1."""
    yield "## Table 2: 16 GB, azure:eastus → aws:ap-northeast-1\n"
    yield "| way | paper | ours, January sent | ours, November received |\n|---|---|---|---|"
    columns = []
    for catalog in (january, november):
        one = transfer(catalog, "azure:eastus", "aws:ap-northeast-1", 16, 1)
        four = transfer(catalog, "azure:eastus", "aws:ap-northeast-1", 16, 4)
        alone, relayed = direct(one), ron(four)
        assert alone is not None
        assert relayed is not None
        plans = [
            alone,
            relayed,
            answer_goal(four, MinThroughput(3.88)),
            answer_goal(four, MaxCost(alone.cost.total_usd * 1.14)),
        ]
        columns.append([f"{p.throughput_gbps:.2f} Gbit/s, {p.cost.total_usd:.2f} USD" for p in plans])
    names = ["direct, 1 VM", "RON, 4 VMs", "cost optimised, ≥ 3.88 Gbit/s", "fastest within 14% of direct's cost"]
    paper = ["1.71, 1.40", "6.02, 2.27", "3.88, 1.56", "8.07, 1.59"]
    for line in zip(names, paper, *columns, strict=True):
        yield "| " + " | ".join(line) + " |"
    yield ""


def figure_9c(january: Catalog) -> Iterator[str]:
    """Throughput against cost, the exact frontier; and what 100 samples miss of it."""
    yield "## Fig. 9c: frontier of three routes, one machine per region\n"
    yield "| route | elbows (cost against cheapest × speed-up) | exact | 100 samples | rate lost by sampling, worst |"
    yield "|---|---|---|---|---|"
    routes = [
        ("azure:westus", "aws:eu-west-1"),
        ("gcp:asia-east1", "aws:sa-east-1"),
        ("aws:af-south-1", "aws:ap-southeast-2"),
    ]
    for src, dst in routes:
        made = transfer(january, src, dst, 50, 1)
        start = time.process_time()
        frontier = trace_transfer(made)
        exact_s = time.process_time() - start
        start = time.process_time()
        samples = sampled(made, frontier.segments[0].rate_from_gbps, frontier.segments[-1].rate_to_gbps)
        sampled_s = time.process_time() - start
        low_usd, low_gbps = frontier.segments[0].cost_from_usd, frontier.segments[0].rate_from_gbps
        worst = 0.0
        for step in range(200):
            cost = low_usd + (frontier.segments[-1].cost_to_usd - low_usd) * (step + 0.5) / 200
            have = max((rate for rate, usd in samples if usd <= cost), default=0.0)
            worst = max(worst, 1 - have / frontier.rate_gbps(cost))
        elbows = ", ".join(f"{usd / low_usd:.2f}× {gbps / low_gbps:.2f}×" for gbps, usd in frontier.elbows()[:6])
        yield f"| {src} → {dst} | {elbows} | {exact_s:.1f} CPU-s | {sampled_s:.1f} CPU-s | {worst:.1%} |"
    yield ""


def sampled(made: Transfer, low: float, high: float) -> list[tuple[float, float]]:
    """The paper's way: the cheapest plan at each of 100 rates."""
    points = []
    for step in range(100):
        rate = low + (high - low) * step / 99
        point = cheapest_exactly(made.formulation, made.job, rate * (1 - 1e-9), made.settings)
        if point is not None:
            points.append((point.rate_gbps, point.cost_usd))
    return points


def figure_10(january: Catalog) -> Iterator[str]:
    """Machines against overlay."""
    yield "## Fig. 10: overlay against more machines on the direct path (speed-up at equal machines per region)\n"
    routes = [("azure:westus", "aws:eu-west-1"), ("aws:us-east-1", "aws:us-west-2")]
    for src, dst in routes:
        gains = []
        for machines in (1, 2, 4, 8):
            made = transfer(january, src, dst, 50, machines)
            straight = direct(made)
            assert straight is not None
            gains.append(answer_goal(made, Fastest()).throughput_gbps / straight.throughput_gbps)
        shown = ", ".join(f"{gain:.2f}×" for gain in gains)
        yield f"- {src} → {dst}: {shown} with 1, 2, 4, 8 machines; geomean {geomean(gains):.2f}×"
    yield "- paper: 2.08× inter-continental, 1.03× intra-continental (it does not name its routes)\n"


def figures_7_and_8(november: Catalog, pairs_max: int | None) -> Iterator[str]:
    """All pairs, one machine per region: speed-up, cost overhead, bottlenecks, and the time it takes."""
    network = build_network(november, Limits(machines_per_region=1), volume_gb=50)
    pairs = [(a, b) for a in network.regions for b in network.regions if a != b]
    if pairs_max is not None and pairs_max < len(pairs):
        pairs = random.Random(7).sample(pairs, pairs_max)
    speedups, overheads = defaultdict(list), defaultdict(list)
    with_overlay: Counter[str] = Counter()
    without: Counter[str] = Counter()
    cold_s = []
    for src, dst in pairs:
        start = time.process_time()
        made = prepare(november, src, dst, 50, Limits(machines_per_region=1), network=network)
        best = fastest(made.formulation, made.job, made.settings)
        cold_s.append(time.process_time() - start)
        straight = direct(made)
        if best is None or straight is None:
            continue
        clouds = f"{src.provider} → {dst.provider}"
        speedups[clouds].append(best.rate_gbps / straight.throughput_gbps)
        overheads[clouds].append(best.cost_usd / straight.cost.total_usd)
        with_overlay.update(bottlenecks(made.formulation, best))
        without.update(bottlenecks(made.formulation, straight_point(made, network)))
    yield f"## Fig. 7 and 8: {len(pairs)} pairs of the November grid (received), 50 GB, one machine per region\n"
    yield "| clouds | pairs | speed-up geomean | median | 90th percentile | cost geomean |\n|---|---|---|---|---|---|"
    for clouds in sorted(speedups):
        gains = sorted(speedups[clouds])
        yield (
            f"| {clouds} | {len(gains)} | {geomean(gains):.2f}× | {statistics.median(gains):.2f}× | "
            f"{gains[int(0.9 * (len(gains) - 1))]:.2f}× | {geomean(overheads[clouds]):.2f}× |"
        )
    every = [gain for gains in speedups.values() for gain in gains]
    yield f"| all | {len(every)} | {geomean(every):.2f}× | {statistics.median(every):.2f}× | | |\n"
    yield "| bottleneck (over 99% used) | direct | overlay |\n|---|---|---|"
    for place in ("source machine", "source link", "relay machine", "relay link", "destination machine"):
        yield f"| {place} | {without[place] / len(every):.0%} | {with_overlay[place] / len(every):.0%} |"
    cold_s.sort()
    yield (
        f"\nCPU time of one fastest-then-cheapest plan (two solves): median {statistics.median(cold_s):.3f} s, 95th "
        f"percentile {cold_s[int(0.95 * (len(cold_s) - 1))]:.3f} s; {sum(cold_s):.0f} CPU-s in all.\n"
    )


def straight_point(made: Transfer, network: Network) -> Point:
    """The direct plan as a point of the programme, to count its bottlenecks in the same way."""
    import numpy as np

    formulation = made.formulation
    flow = np.zeros(formulation.link_count)
    machines = np.zeros(formulation.option_count, dtype=np.int64)
    for option, machine in enumerate(network.options):
        machines[option] = int(machine.region_index in (formulation.source, formulation.sink))
    straight = direct(made)
    assert straight is not None
    for column, link in enumerate(formulation.links):
        if network.tail[link] == formulation.source and network.head[link] == formulation.sink:
            flow[column] = straight.throughput_gbps
    return Point.of(formulation, made.job, Answer(flow, machines, 0.0, 0.0, optimal=True))


def exactness(january: Catalog) -> Iterator[str]:
    """At least against exactly."""
    yield "## At least against exactly (100 random pairs, 0.3 to 0.9 of the fastest rate, one machine per region)\n"
    rng = random.Random(11)
    network = build_network(january, Limits(machines_per_region=1), volume_gb=50)
    savings, times = [], []
    for _ in range(100):
        src, dst = rng.sample(network.regions, 2)
        made = prepare(january, src, dst, 50, Limits(machines_per_region=1), network=network)
        best = fastest(made.formulation, made.job, made.settings, cheapest_too=False)
        if best is None:
            continue
        goal = rng.uniform(0.3, 0.9) * best.rate_gbps
        start = time.process_time()
        exact = cheapest_exactly(made.formulation, made.job, goal, made.settings)
        times.append(time.process_time() - start)
        least = answer_goal(made, MinThroughput(goal))
        assert exact is not None
        savings.append(1 - least.cost.total_usd / exact.cost_usd)
        fastest_within(made.formulation, made.job, least.cost.total_usd * 1.1, made.settings)
    better = [saving for saving in savings if saving > 1e-6]
    times.sort()
    yield (
        f"At least is cheaper in {len(better)} of {len(savings)} and saves {max(savings):.2%} at most, never dearer "
        f"({min(savings):.1e}). One exact solve: median {statistics.median(times):.3f} CPU-s, 95th percentile "
        f"{times[int(0.95 * (len(times) - 1))]:.3f} CPU-s.\n"
    )


def modelled_error(folder: Path) -> Iterator[str]:
    """The packaged model against both measured grids, and what planning on it costs."""
    model = load_catalog()
    yield "## The modelled grid against the measured ones (received)\n"
    yield "| grid | pairs | median error | 90th percentile | correlation of logarithms |\n|---|---|---|---|---|"
    for date in ("2022-01", "2022-11"):
        measured = measured_catalog(folder, date, "received_gbps")
        pairs = []
        for (src, dst), link in measured.grid.links.items():
            guess = model.grid.link(src, dst)
            if guess is not None and link.gbps > 0:
                pairs.append((guess.gbps, link.gbps))
        errors = sorted(abs(a - b) / b for a, b in pairs)
        logs = [(math.log(a), math.log(b)) for a, b in pairs]
        correlation = statistics.correlation([a for a, _ in logs], [b for _, b in logs])
        tail = errors[int(0.9 * (len(errors) - 1))]
        yield f"| {date} | {len(pairs)} | {statistics.median(errors):.0%} | {tail:.0%} | {correlation:.2f} |"
    yield ""
    yield from regret(folder, model)


def regret(folder: Path, model: Catalog) -> Iterator[str]:
    """Routes planned on the model, their rate as measured, against routes planned on the measurement."""
    truth = measured_catalog(folder, "2022-11", "received_gbps")
    shared = {pair: link for pair, link in model.grid.links.items() if pair in truth.grid.links}
    guess = Catalog({}, truth.prices, Grid(shared), truth.offers)
    rng, losses = random.Random(3), []
    limits = Limits(machines_per_region=1)
    for _ in range(40):
        src, dst = rng.sample(truth.grid.regions(), 2)
        if (src, dst) not in shared:
            continue
        known = prepare(truth, src, dst, 50, limits)
        best = fastest(known.formulation, known.job, known.settings, cheapest_too=False)
        planned = answer_goal(prepare(guess, src, dst, 50, limits), Fastest())
        kept = {region for route in planned.routes for region in route.regions}
        real = prepare(truth, src, dst, 50, limits, network=build_network(truth, limits, volume_gb=50, regions=kept))
        got = fastest(real.formulation, real.job, real.settings, cheapest_too=False)
        if best is not None and got is not None:
            losses.append(1 - got.rate_gbps / best.rate_gbps)
    losses.sort()
    yield (
        f"Regret: with the regions chosen on the model, the November grid would have given "
        f"{statistics.median(losses):.0%} less rate than the best (median of {len(losses)} pairs; 90th percentile "
        f"{losses[int(0.9 * len(losses))]:.0%}).\n"
    )


def growth() -> Iterator[str]:
    """How a solve grows with the number of regions; synthetic beyond the measured."""
    yield "## Growth and footprint\n"
    yield "| regions | links | median CPU-s of a cheapest plan at a rate | worst of 5 |\n|---|---|---|---|"
    rng = random.Random(5)
    for count in (20, 71, 200):
        regions = [Region(("aws", "azure", "gcp")[i % 3], f"r{i}") for i in range(count)]
        links = {(a, b): Link(rng.uniform(0.5, 12), MEASURED) for a in regions for b in regions if a != b}
        prices = {p: EgressPrice((PriceTier(0, rng.choice([0.02, 0.05, 0.09, 0.12])),), MEASURED) for p in links}
        machines = measured_offers()
        catalog = Catalog({}, PriceBook(prices), Grid(links), machines)
        limits, times = Limits(machines_per_region=1), []
        network = build_network(catalog, limits, volume_gb=50)
        for number in range(5):
            made = prepare(catalog, regions[number], regions[-1 - number], 50, limits, network=network)
            start = time.process_time()
            cheapest_exactly(made.formulation, made.job, 4.0, made.settings)
            times.append(time.process_time() - start)
        yield f"| {count} | {len(links)} | {statistics.median(times):.2f} | {max(times):.2f} |"
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield f"\nPeak memory of this whole run: {memory_mb:.0f} MB.\n"


def measured_offers() -> dict[str, tuple[MachineOffer, ...]]:
    """The paper's machines."""
    found: dict[str, tuple[MachineOffer, ...]] = {}
    for provider, (egress, ingress, usd_per_hour) in CAPS.items():
        machine = MachineType(provider, f"{provider}-32", 32, 16, egress, ingress, 0.0, MEASURED)
        found[provider] = (MachineOffer(machine, usd_per_hour, spot=False, origin=MEASURED),)
    return found


def geomean(values: list[float]) -> float:
    """Geometric mean."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


def main() -> None:
    """Runs all and prints as it goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grid", type=Path, required=True, help="folder with the measured grids")
    parser.add_argument("--pairs", type=int, help="plan so many random pairs for Fig. 7 and 8 instead of all")
    args = parser.parse_args()
    january = measured_catalog(args.grid, "2022-01", "sent_gbps")
    november = measured_catalog(args.grid, "2022-11", "received_gbps")
    print(f"# Planner, measured on {os.cpu_count()} cores at load {os.getloadavg()[0]:.1f}; times are CPU-seconds\n")
    for part in (
        figure_1(january),
        table_2(january, november),
        figure_9c(january),
        figure_10(january),
        figures_7_and_8(november, args.pairs),
        exactness(january),
        modelled_error(args.grid),
        growth(),
    ):
        for line in part:
            print(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
