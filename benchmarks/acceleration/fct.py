"""Fig. 15 of the CloudPilot paper in the emulated WAN: total completion time of all flows of a full mesh."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.acceleration import fct_flow
from benchmarks.acceleration.chains import Entry, serving
from benchmarks.acceleration.ground import GOODPUT_PER_WIRE, LINK_MBPS, Machine, network_of, set_windows
from benchmarks.acceleration.rates import places_rtt
from testbed.sky import valid
from tradewind.acceleration.proxies import first_line, stop
from tradewind.errors import SkyInvalid
from tradewind.model.records import replace
from tradewind.placement.paths import paths_of
from tradewind.placement.place import place
from tradewind.placement.plan import PlacementPlan
from tradewind.placement.problem import CLOUD_WINDOW_BYTES, EDGE_WINDOW_BYTES, Flow, PlacementProblem, ProxyRegion
from tradewind.placement.use_cases import BUDGET_CENTS_PER_FLOW, Places, UseCaseSettings
from tradewind.sky.running import Sky

SCALE = 0.02
SHORTER = 0.2
"""Flows are shorter than the paper's 2 GB by this, after the scale: 8 MB."""
PORT, FIRST_PROXY_PORT = 5000, 6000
FLOW_TIMEOUT_S = 600.0
USD_PER_CENT = 0.01


@dataclass(frozen=True)
class Experiment:
    """Servers that all send to each other (section 7.3)."""

    name: str
    regions: tuple[str, ...]


EXPERIMENTS = (
    Experiment("3 servers, 6 flows, $3", ("Finland", "Sao Paulo", "Tokyo")),
    Experiment("4 servers, 12 flows, $6", ("Finland", "London", "Sao Paulo", "Tokyo")),
)


@dataclass(frozen=True)
class Way:
    """A placement, and the program in the proxies' places."""

    algorithm: str = ""
    program: str = ""

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.algorithm}, {self.program}" if self.algorithm else "direct"


WAYS = (
    Way(),
    Way("2p", "Tradewind"),
    Way("2p", "HAProxy"),
    Way("2p", "nginx"),
    Way("f-fct", "Tradewind"),
    Way("f-cost", "Tradewind"),
    Way("1p", "Tradewind"),
)
Row = dict[str, Any]


def mesh_problem(experiment: Experiment, places: Places) -> PlacementProblem:
    """Return the placement problem of an experiment, not scaled. Servers are in regions of their own."""
    settings, rtt_ms = UseCaseSettings(), places_rtt(places)
    matrix = np.array([[rtt_ms(a, b) for b in places.names] for a in places.names])
    number = {name: at for at, name in enumerate(places.names)}
    pairs = [(a, b) for a in experiment.regions for b in experiment.regions if a != b]
    link_mbps = LINK_MBPS * GOODPUT_PER_WIRE
    flows = tuple(
        Flow(
            f"{a} → {b}",
            settings.size_bytes,
            rtt_ms(a, b),
            matrix[number[a]],
            matrix[:, number[b]],
            link_mbps,
            link_mbps,
            a,
            b,
        )
        for a, b in pairs
    )
    regions = tuple(
        ProxyRegion(name, link_mbps, settings.setup_cents, settings.egress_cents_per_gb, len(flows))
        for name in places.names
    )
    return PlacementProblem(regions, matrix, flows, BUDGET_CENTS_PER_FLOW * len(flows))


def _in_sky(problem: PlacementProblem, size_bytes: float) -> PlacementProblem:
    """Return the problem with the rates, windows and sizes of the sky."""
    regions = tuple(replace(region, capacity_mbps=region.capacity_mbps * SCALE) for region in problem.regions)
    flows = tuple(
        replace(
            flow,
            size_bytes=size_bytes,
            src_last_mile_mbps=flow.src_last_mile_mbps * SCALE,
            dst_last_mile_mbps=flow.dst_last_mile_mbps * SCALE,
        )
        for flow in problem.flows
    )
    return replace(
        problem,
        regions=regions,
        flows=flows,
        edge_window_bytes=EDGE_WINDOW_BYTES * SCALE,
        cloud_window_bytes=CLOUD_WINDOW_BYTES * SCALE,
    )


def _paths(problem: PlacementProblem, plan: PlacementPlan | None) -> list[tuple[tuple[str, int], ...]]:
    """Return the proxies of each flow as regions and instances."""
    if plan is None:
        return [() for _ in problem.flows]
    return [tuple((proxy.region, proxy.instance) for proxy in flow.path) for flow in plan.flows]


def _predicted_s(problem: PlacementProblem, paths: Sequence[tuple[tuple[str, int], ...]]) -> list[float]:
    names = [region.name for region in problem.regions]
    table = paths_of(problem)
    return [
        float(table.fct_s[number, table.regions.index(tuple(names.index(region) for region, _ in path))])
        for number, path in enumerate(paths)
    ]


def measure_experiments(
    experiments: Sequence[Experiment], ways: Sequence[Way], places: Places, done: set[str], round_: int, size: float
) -> Iterator[Row]:
    """Yield a row for each experiment and way whose key is not in `done`. `size` is a share of the full size."""
    problems = {experiment.name: mesh_problem(experiment, places) for experiment in experiments}
    plans: dict[tuple[str, str], PlacementPlan | None] = {}
    for way, experiment in ((way, experiment) for way in ways for experiment in experiments):
        key = f"fig15/{experiment.name}/{way.name}/{round_}"
        if key in done:
            continue
        problem, which = problems[experiment.name], (experiment.name, way.algorithm)
        if which not in plans:
            plans[which] = place(problem, way.algorithm) if way.algorithm else None
        plan, size_bytes = plans[which], problem.flows[0].size_bytes * SCALE * SHORTER * size
        paths, small = _paths(problem, plan), _in_sky(problem, size_bytes)
        measured = _measure(experiment, places, problem, way, paths, round(size_bytes))
        yield {
            "key": key,
            "figure": "fig15",
            "experiment": experiment.name,
            "way": way.name,
            "round": round_,
            "size_bytes": round(size_bytes),
            "cost_usd": (plan.cost_cents if plan else 0.0) * USD_PER_CENT,
            "instances": len(plan.instances) if plan else 0,
            "proxies_per_flow": [len(path) for path in paths],
            "direct_predicted_s": sum(_predicted_s(small, _paths(problem, None))),
            "predicted_s": _predicted_s(small, paths),
            "predicted_slow_start_s": _predicted_s(replace(small, slow_start=True), paths),
            **measured,
        }


def _chain(
    machines: dict[str, Machine], regions: dict[str, str], flow: Flow, path: tuple[tuple[str, int], ...]
) -> list[str]:
    """Return the names of the machines of a flow's path, and add its proxies to `machines`.

    An instance that is the second proxy of one flow and not of another is two machines: windows are a machine's.
    """
    assert flow.src_region is not None and flow.dst_region is not None
    names = [regions[flow.src_region]]
    for position, (region, instance) in enumerate(path):
        cloud = position == 1
        name = f"{'q' if cloud else 'p'}{instance}-{_plain(region)}"
        machines[name] = Machine(name, region, cloud)
        names.append(name)
    return [*names, regions[flow.dst_region]]


def _plain(region: str) -> str:
    return region.lower().replace(" ", "-")


def _measure(
    experiment: Experiment,
    places: Places,
    problem: PlacementProblem,
    way: Way,
    paths: Sequence[tuple[tuple[str, int], ...]],
    size_bytes: int,
) -> Mapping[str, Any]:
    """Run all flows at the same time, and return the completion time of each [s]."""
    ends = {region: f"end-{_plain(region)}" for region in experiment.regions}
    machines = {name: Machine(name, region) for region, name in ends.items()}
    chains = [_chain(machines, ends, flow, path) for flow, path in zip(problem.flows, paths, strict=True)]
    pairs = sorted({pair for chain in chains for pair in pairwise(chain)})
    every = list(machines.values())
    with Sky.up(network_of(every, pairs, places_rtt(places), SCALE)) as sky, ExitStack() as stack:
        set_windows(sky, every, SCALE)
        for name in ends.values():
            _receive(sky, machines[name].in_sky, stack)
        entries: dict[str, list[Entry]] = {}
        sends = []
        for number, chain in enumerate(chains):
            to, port = sky.machines[machines[chain[-1]].in_sky].address, PORT
            for name in reversed(chain[1:-1]):
                in_sky = machines[name].in_sky
                entries.setdefault(in_sky, []).append(Entry(FIRST_PROXY_PORT + number, f"{to}:{port}"))
                to, port = sky.machines[in_sky].address, FIRST_PROXY_PORT + number
            sends.append((machines[chain[0]].in_sky, [*SCRIPT, "send", to, str(port), str(size_bytes)]))
        if way.program:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="tradewind-chains-")))
            stack.enter_context(serving(sky, way.program, entries, folder))
        try:
            return {"measured_s": valid(sky, partial(_send_all, sky, sends))}
        except SkyInvalid as error:
            return {"invalid": str(error)}


SCRIPT = (sys.executable, "-I", "-S", str(Path(fct_flow.__file__)))


def _receive(sky: Sky, machine: str, stack: ExitStack) -> None:
    words = [*SCRIPT, "receive", sky.machines[machine].address, str(PORT)]
    process = sky.popen(machine, words, stdout=subprocess.PIPE, text=True)
    stack.callback(stop, process)
    first_line(process, f"the receiver in {machine}")


def _send_all(sky: Sky, sends: Sequence[tuple[str, list[str]]]) -> list[float]:
    def one(flow: tuple[str, list[str]]) -> float:
        done = sky.run(*flow, check=True, capture_output=True, text=True, timeout=FLOW_TIMEOUT_S)
        return float(done.stdout)

    with ThreadPoolExecutor(len(sends)) as threads:
        return list(threads.map(one, sends))
