"""Plan all ordered pairs of regions, on all cores: Figures 7 and 8 of the paper."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.planner.grids import Grids, network_of, transfer
from benchmarks.planner.section import Section, geomean, picture, quantile, table
from benchmarks.plots import Axis, bars, distributions
from tradewind.model.catalog import Catalog
from tradewind.model.region import Region, RegionInfo
from tradewind.planner.baseline import direct
from tradewind.planner.explain import bottlenecks
from tradewind.planner.goals import fastest
from tradewind.planner.network import FloatArray, FlowNetwork
from tradewind.planner.plan import Transfer
from tradewind.planner.points import Point
from tradewind.planner.solver import Solution

PLACES = ("source machine", "source link", "relay machine", "relay link", "destination machine")
SOURCE_LINK = PLACES.index("source link")
OVERLAY = "overlay"
BARS_TITLE = "Where transfers are bottlenecked"
SHARE = "share of transfers"
PAIRS_AT_A_TIME = 16
"""Number of pairs that a process gets at once. A pair takes 0.1 to 1 s."""
Pair = tuple[Region, Region]


@dataclass(frozen=True)
class Planned:
    """The direct plan of one pair, and its fastest plan (the cheapest of the fastest)."""

    src: Region
    dst: Region
    direct_gbps: float
    direct_usd: float
    gbps: float
    usd: float
    gap: float
    direct_bottlenecks: frozenset[str]
    bottlenecks: frozenset[str]
    solved: bool
    """``False`` if the direct path was proven best without the solver."""
    cpu_s: float

    @property
    def speedup(self) -> float:
        """Speed-up over the direct path."""
        return self.gbps / self.direct_gbps

    @property
    def overhead(self) -> float:
        """Cost as a multiple of the direct path's."""
        return self.usd / self.direct_usd


@dataclass(frozen=True)
class AllPairs:
    """The plans of all pairs, with the time that planning took."""

    planned: tuple[Planned, ...]
    of: int
    """Number of ordered pairs in the grid."""
    wall_s: float
    cpu_s: float
    processes: int
    load_before: float
    load_after: float

    def to_json(self) -> str:
        """Return everything as JSON, for a later page."""
        return json.dumps(asdict(self), default=sorted, indent=0) + "\n"

    @classmethod
    def from_json(cls, text: str) -> AllPairs:
        """Return the content of a document from `to_json`."""
        document = json.loads(text)
        for planned in document["planned"]:
            planned |= {end: Region(**planned[end]) for end in ("src", "dst")}
            planned |= {kind: frozenset(planned[kind]) for kind in ("direct_bottlenecks", "bottlenecks")}
        return cls(**document | {"planned": tuple(Planned(**planned) for planned in document["planned"])})


class PairPlanner:
    """Plans pairs of one grid. The network is built once."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.network = network_of(catalog, 1)
        self._rate_max, self._usd_per_gb_min = bounds(self.network)

    def plan(self, pair: Pair) -> Planned | None:
        """Plan a pair; return ``None`` if the grid has no direct link."""
        start_s = time.process_time()
        made = transfer(self.catalog, *pair, 1, network=self.network)
        straight = direct(made)
        if straight is None:
            return None
        along = straight_point(made, straight.throughput_gbps)
        proven = self._is_best(made, along)
        best = along if proven else fastest(made.formulation, made.demand, made.settings)
        assert best is not None
        spent_s = time.process_time() - start_s
        return Planned(
            *pair,
            along.rate_gbps,
            along.cost_usd,
            best.rate_gbps,
            best.cost_usd,
            best.gap,
            frozenset(bottlenecks(made.formulation, along)),
            frozenset(bottlenecks(made.formulation, best)),
            not proven,
            spent_s,
        )

    def _is_best(self, made: Transfer, along: Point) -> bool:
        """Return whether the direct plan `along` reaches both bounds: the rate that the ends allow, and the cost of the
        cheapest path with two machines.
        """
        source, sink = made.formulation.source, made.formulation.sink
        link = self.network.link_between(source, sink)
        assert link is not None
        cheapest_way = self.network.usd_per_gb[link] <= self._usd_per_gb_min[source, sink]
        return bool(cheapest_way and along.rate_gbps >= self._rate_max[source, sink])


def bounds(network: FlowNetwork) -> tuple[FloatArray, FloatArray]:
    """Return bounds for every pair: an upper bound on the rate with one machine at each end, and a lower bound on the
    price per GB of any path.
    """
    count = len(network.regions)
    link_gbps, price = np.zeros((count, count)), np.full((count, count), np.inf)
    link_gbps[network.tail, network.head] = network.link_gbps
    price[network.tail, network.head] = network.usd_per_gb
    for middle in range(count):
        price = np.minimum(price, price[:, middle : middle + 1] + price[middle : middle + 1, :])
    egress, ingress = np.zeros(count), np.zeros(count)
    for option in network.options:
        egress[option.pool], ingress[option.pool] = option.egress_gbps, option.ingress_gbps
    out = np.minimum(egress, link_gbps.max(axis=1))
    into = np.minimum(ingress, link_gbps.max(axis=0))
    return np.minimum(out[:, None], into[None, :]), price


def straight_point(made: Transfer, gbps: float) -> Point:
    """Return the direct plan as a point of the whole model, so that its bottlenecks are counted in the same way."""
    formulation, network = made.formulation, made.network
    flow = np.zeros(formulation.link_count)
    link = network.link_between(formulation.source, formulation.sink)
    flow[np.flatnonzero(formulation.links == link)] = gbps
    ends = (formulation.source, formulation.sink)
    machines = np.array([int(option.pool in ends) for option in network.options], dtype=np.int64)
    return Point.of(formulation, made.demand, Solution(flow, machines, gbps, gbps, optimal=True))


_planner: PairPlanner
"""The planner of a worker process."""


def _begin(folder: Path, catalog_name: str) -> None:
    global _planner
    _planner = PairPlanner(getattr(Grids(folder), catalog_name))


def _plan(pair: Pair) -> Planned | None:
    return _planner.plan(pair)


def plan_pairs(grids: Grids, catalog_name: str, pairs_max: int | None) -> AllPairs:
    """Plan every ordered pair of a grid, or `pairs_max` random ones, with one process per core."""
    regions = network_of(getattr(grids, catalog_name), 1).regions
    pairs = [(a, b) for a in regions for b in regions if a != b]
    of = len(pairs)
    if pairs_max is not None and pairs_max < of:
        pairs = random.Random(7).sample(pairs, pairs_max)
    processes = os.cpu_count() or 1
    load_before, start_s = os.getloadavg()[0], time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, _begin, (grids.folder, catalog_name)) as pool:
        found = [p for p in pool.imap_unordered(_plan, pairs, PAIRS_AT_A_TIME) if p is not None]
    wall_s = time.perf_counter() - start_s
    found.sort(key=lambda planned: (planned.src, planned.dst))
    cpu_s = sum(planned.cpu_s for planned in found)
    return AllPairs(tuple(found), of, wall_s, cpu_s, processes, load_before, os.getloadavg()[0])


def figure_7(grids: Mapping[str, AllPairs]) -> Section:
    """Return the section on speed-up and cost by pair of clouds, for each grid."""
    lines, pictures = [], {}
    header = ["clouds", "pairs", "direct, median", "overlay, median", "speed-up, geomean", "median", "90%", "most"]
    header += ["no faster plan", "cost, geomean"]
    for grid, every in grids.items():
        by_clouds: dict[str, list[Planned]] = defaultdict(list)
        for planned in every.planned:
            by_clouds[f"{planned.src.provider} → {planned.dst.provider}"].append(planned)
        names = sorted(by_clouds)
        rows = [_clouds_row(clouds, by_clouds[clouds]) for clouds in names]
        rows.append(_clouds_row("**all**", every.planned))
        rates = [
            {"direct": [p.direct_gbps for p in by_clouds[c]], OVERLAY: [p.gbps for p in by_clouds[c]]} for c in names
        ]
        name = f"figure-7-{grid.partition(' ')[0].lower()}.svg"
        title = f"Rate with one machine per region, {grid}, {len(every.planned):,} pairs"
        pictures[name] = distributions(title, Axis("Gbit/s", 0, 17), names, rates)
        chosen = "" if len(every.planned) == every.of else ", chosen at random"
        lines += [
            f"**{grid}**, {len(every.planned):,} of {every.of:,} ordered pairs{chosen}:",
            "",
            *table(header, rows),
        ]
        lines += [picture(name, f"rates by pair of clouds, direct and with overlay, {grid}"), ""]
    lines.append(
        "Rates in Gbit/s, cost as a multiple of the direct path's; whiskers 5 to 95%, boxes 25 to 75%. *Overlay* is "
        "the fastest plan and, among equally fast ones, the cheapest, proven except for the gap under *Speed*. "
        "The paper shows these distributions without figures, for 5,184 pairs, and does not say which ceiling on "
        "cost applies to them. Ours have no ceiling. So the last Gbit/s within one cloud, where the direct path "
        "costs 0.02 USD/GB, is expensive. The egress caps show as in the paper: AWS sends at most 5 Gbit/s, GCP at "
        "most 7."
    )
    return Section("Fig. 7: all pairs, one machine per region, 50 GB", tuple(lines), pictures)


def _clouds_row(clouds: str, planned: Sequence[Planned]) -> list[str]:
    gains = [p.speedup for p in planned]
    return [
        clouds,
        f"{len(planned):,}",
        f"{statistics.median(p.direct_gbps for p in planned):.2f}",
        f"{statistics.median(p.gbps for p in planned):.2f}",
        f"{geomean(gains):.2f}×",
        f"{statistics.median(gains):.2f}×",
        f"{quantile(gains, 0.9):.2f}×",
        f"{max(gains):.1f}×",
        f"{sum(gain < 1 + 1e-6 for gain in gains) / len(gains):.0%}",
        f"{geomean([p.overhead for p in planned]):.2f}×",
    ]


def figure_8(grids: Mapping[str, AllPairs]) -> Section:
    """Return the section on bottlenecks, for each grid."""
    shares: dict[str, list[float]] = {}
    fewer = []
    for grid, every in grids.items():
        month = grid.partition(" ")[0]
        for kind, found in (
            ("direct", [p.direct_bottlenecks for p in every.planned]),
            (OVERLAY, [p.bottlenecks for p in every.planned]),
        ):
            count = Counter(place for places in found for place in places)
            shares[f"{month}, {kind}"] = [count[place] / len(every.planned) for place in PLACES]
        gone = shares[f"{month}, direct"][SOURCE_LINK] - shares[f"{month}, {OVERLAY}"][SOURCE_LINK]
        fewer.append(f"{gone:.0%} ({grid})")
    rows = [[place, *(f"{share[n]:.0%}" for share in shares.values())] for n, place in enumerate(PLACES)]
    groups = [{name: share[n] for name, share in shares.items()} for n in range(len(PLACES))]
    name = "figure-8.svg"
    lines = [
        *table(["over 99% used", *shares], rows),
        picture(name, "bottlenecks, direct and with overlay"),
        "",
        f"The overlay removes the bottleneck at the source link in {' and '.join(fewer)} of the transfers; the paper "
        "states 32%. As in the paper, the direct path is mostly limited by its link, and the overlay shifts the "
        "bottleneck to the source's machine and to links that leave relays. *Link* means that all 64 connections of a "
        "machine are in use, *machine* that its cap on egress or ingress is reached. Received rates are below the "
        "caps (no link out of AWS reaches 5 Gbit/s). So connections run out first in November where the cap is "
        "reached first in January, as sent.",
    ]
    return Section("Fig. 8: bottlenecks", tuple(lines), {name: bars(BARS_TITLE, Axis(SHARE, 0, 1), PLACES, groups)})


def continents(every: AllPairs, places: Mapping[Region, RegionInfo]) -> dict[str, list[float]]:
    """Return the speed-ups within and between continents, for Fig. 10."""
    found: dict[str, list[float]] = {"within a continent": [], "between continents": []}
    for planned in every.planned:
        ends = [places[region].continent for region in (planned.src, planned.dst) if region in places]
        if len(ends) == 2:
            found["within a continent" if ends[0] == ends[1] else "between continents"].append(planned.speedup)
    return found


def effort(every: AllPairs) -> list[str]:
    """Return lines on the time that planning all pairs took."""
    solved = [p.cpu_s for p in every.planned if p.solved]
    proven = len(every.planned) - len(solved)
    return [
        f"- {len(every.planned):,} pairs in {every.wall_s:.0f} s of wall time and {every.cpu_s:.0f} CPU-s with "
        f"{every.processes} processes, at load {every.load_before:.1f} before and {every.load_after:.1f} after; on "
        f"{every.processes} cores of its own that is {every.cpu_s / every.processes:.0f} s. Aim: 300 s.",
        f"- One pair, the fastest plan and the cheapest of these: median {statistics.median(solved):.3f} CPU-s, 95th "
        f"percentile {quantile(solved, 0.95):.3f}, worst {max(solved):.2f}. Largest gap left: "
        f"{max(p.gap for p in every.planned):.0e}.",
        f"- {proven:,} pairs needed no solver: the direct path is as fast as its ends allow, and no plan is cheaper.",
    ]
