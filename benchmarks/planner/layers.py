"""Evaluate the layers of the catalog: the model's error, the ageing of a measured grid, the loss by planning on each.

Part of `python -m benchmarks planner`.
"""

from __future__ import annotations

import csv
import datetime
import math
import random
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.planner.grids import CLOUDS
from benchmarks.planner.section import Section
from tradewind.catalog.ageing import HALF_LIFE_DAYS, Figure, layered
from tradewind.catalog.load import load_catalog
from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.goal import Fastest
from tradewind.model.origin import Origin
from tradewind.model.price import PriceBook
from tradewind.model.region import Region
from tradewind.planner.goals import fastest
from tradewind.planner.network import PlanningLimits, build_network
from tradewind.planner.plan import prepare, solve_overlay

JANUARY, NOVEMBER = datetime.date(2022, 1, 29), datetime.date(2022, 11, 28)

Rates = Mapping[tuple[Region, Region], float]


def measured(folder: Path, month: str) -> Rates:
    """Return the received rate by pair [Gbit/s], without pairs that measured 0."""
    with (folder / f"throughput_{month}.csv").open() as table:
        rows = [(row["src"], row["dst"], float(row["received_gbps"])) for row in csv.DictReader(table)]
    return {(Region.parse(src), Region.parse(dst)): gbps for src, dst, gbps in rows if gbps > 0}


def model_error(model: Rates, grids: Mapping[str, Rates]) -> Iterator[str]:
    """Yield the error of the modelled grid, by pair of clouds."""
    yield "| grid | clouds | pairs | median error | 90th percentile | mean of model / measured | correlation of logs |"
    yield "|---|---|---|---|---|---|---|"
    for month, rates in grids.items():
        for ways in [("all", "")] + [(a, b) for a in CLOUDS for b in CLOUDS]:
            pairs = [p for p in rates if p in model and _is_of(p, ways)]
            errors = sorted(abs(model[p] - rates[p]) / rates[p] for p in pairs)
            bias = math.exp(statistics.fmean(math.log(model[p] / rates[p]) for p in pairs))
            name = "all" if ways[0] == "all" else f"{ways[0]} → {ways[1]}"
            yield (
                f"| {month} | {name} | {len(pairs)} | {statistics.median(errors):.0%} | "
                f"{errors[int(0.9 * (len(errors) - 1))]:.0%} | {bias:.2f} | {_correlation(model, rates, pairs):.2f} |"
            )
    yield ""


def _is_of(pair: tuple[Region, Region], ways: tuple[str, str]) -> bool:
    return ways[0] == "all" or (pair[0].provider, pair[1].provider) == ways


def _correlation(one: Rates, other: Rates, pairs: list[tuple[Region, Region]]) -> float:
    logs = [(math.log(one[p]), math.log(other[p])) for p in pairs]
    if len({a for a, _ in logs}) < 2:
        return float("nan")
    return statistics.correlation([a for a, _ in logs], [b for _, b in logs])


def ageing(model: Rates, january: Rates, november: Rates) -> Iterator[str]:
    """Yield how much of January's deviation from the model remained in November, and the half-life that follows."""
    days = (NOVEMBER - JANUARY).days
    yield "| pairs | number | correlation of rates | what was left | half-life | best weight of January |"
    yield "|---|---|---|---|---|---|"
    shared = [p for p in january if p in november and p in model]
    public = [p for p in shared if (p[0].provider, p[1].provider) != ("gcp", "gcp")]
    for name, pairs in (("all", shared), ("without GCP → GCP, whose path changed", public)):
        was = [math.log(january[p] / model[p]) for p in pairs]
        became = [math.log(november[p] / model[p]) for p in pairs]
        left = sum(a * b for a, b in zip(was, became, strict=True)) / sum(a * a for a in was)
        half_life = days * math.log(2) / -math.log(left)
        best = min((_rms(pairs, w / 100, january, model, november), w / 100) for w in range(101))
        rates = statistics.correlation([january[p] for p in pairs], [november[p] for p in pairs])
        yield f"| {name} | {len(pairs)} | {rates:.2f} | {left:.0%} | {half_life:.0f} days | {best[1]:.2f} |"
    yield ""
    yield f"`HALF_LIFE_DAYS` is {HALF_LIFE_DAYS:g}: after {days} days a figure weighs {0.5 ** (days / 180):.2f}."


def _rms(pairs: list[tuple[Region, Region]], weight: float, figure: Rates, below: Rates, truth: Rates) -> float:
    errors = (weight * math.log(figure[p]) + (1 - weight) * math.log(below[p]) - math.log(truth[p]) for p in pairs)
    return math.sqrt(statistics.fmean(error**2 for error in errors))


def regret(packaged: Catalog, january: Rates, november: Rates, count: int) -> Iterator[str]:
    """Yield the loss of planning on each kind of grid: choose regions on it, then compute their rate in November."""
    yield "| planned on | median loss of rate | mean | 90th percentile | worst | November's best found |"
    yield "|---|---|---|---|---|---|"
    model = {pair: link for pair, link in packaged.grid.links.items() if pair in november}
    links = {
        "the model": model,
        "January as it was": {p: replace(model[p], gbps=january[p]) for p in model if p in january},
        "the catalog: January aged 303 days over the model": {p: _aged(model[p], january.get(p)) for p in model},
        "November itself": {p: replace(model[p], gbps=november[p]) for p in model},
    }
    truth = _catalog(packaged, links["November itself"])
    rng = random.Random(7)
    pairs: list[tuple[Region, Region]] = []
    both = sorted({region for pair in january for region in pair} & {region for pair in november for region in pair})
    while len(pairs) < count:
        src, dst = rng.sample(both, 2)
        if (src, dst) in november and (src, dst) in january:
            pairs.append((src, dst))
    for name, grid in links.items():
        losses = sorted(_loss(_catalog(packaged, grid), truth, src, dst) for src, dst in pairs)
        found = sum(loss < 1e-6 for loss in losses)
        tail = losses[int(0.9 * (len(losses) - 1))]
        yield (
            f"| {name} | {statistics.median(losses):.1%} | {statistics.fmean(losses):.1%} | {tail:.1%} | "
            f"{losses[-1]:.1%} | {found} of {len(losses)} |"
        )
    yield ""


def _aged(model: Link, gbps: float | None) -> Link:
    if gbps is None:
        return model
    old = Figure(gbps, Origin("measured", "January", JANUARY.isoformat()))
    return layered([old, Figure(model.gbps, model.origin)], NOVEMBER)


def _catalog(packaged: Catalog, links: Mapping[tuple[Region, Region], Link]) -> Catalog:
    machines = {"aws": "m5.8xlarge", "azure": "Standard_D32_v5", "gcp": "n2-standard-32"}
    offers = {p: tuple(o for o in packaged.offers[p] if o.name == name) for p, name in machines.items()}
    return Catalog(packaged.places, PriceBook(rules=packaged.prices.rules), Grid(links), offers)


def _loss(planned_on: Catalog, truth: Catalog, src: Region, dst: Region) -> float:
    """Return the loss as a fraction of the best rate, with the plan's regions and the best flows that they allow."""
    limits = PlanningLimits(machines_per_region=1)
    known = prepare(truth, src, dst, 50, limits)
    best = fastest(known.formulation, known.demand, known.settings, cheapest_too=False)
    planned = solve_overlay(prepare(planned_on, src, dst, 50, limits), Fastest())
    kept = {region for route in planned.routes for region in route.regions}
    network = build_network(truth, limits, regions=kept)
    real = prepare(truth, src, dst, 50, limits, network=network)
    got = fastest(real.formulation, real.demand, real.settings, cheapest_too=False)
    assert best is not None
    return 1.0 if got is None else max(0.0, 1 - got.rate_gbps / best.rate_gbps)


def layers(folder: Path, pairs: int) -> Iterator[Section]:
    """Yield three sections: the model's error, ageing, and the loss by planning on each layer."""
    packaged = load_catalog()
    model = {pair: link.gbps for pair, link in packaged.grid.links.items()}
    january, november = measured(folder, "2022-01"), measured(folder, "2022-11")
    days = (NOVEMBER - JANUARY).days
    for title, lines in (
        (
            "The modelled grid against the measured ones (received)",
            model_error(model, {"2022-01": january, "2022-11": november}),
        ),
        (
            f"How a measured grid ages: January against November 2022, {days} days apart",
            ageing(model, january, november),
        ),
        (
            f"Loss by planning on each grid, with November as the truth ({pairs} pairs, one machine per region)",
            regret(packaged, january, november, pairs),
        ),
    ):
        yield Section(title, tuple(lines))
