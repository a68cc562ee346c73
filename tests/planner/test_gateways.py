"""A plan by gateway matches the plan by region."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import pytest

from tests.planner.worlds import random_world
from tradewind.model.goal import Fastest, MinThroughput
from tradewind.model.region import Region
from tradewind.planner.gateways import assign_gateways
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import prepare, solve_overlay


@pytest.mark.parametrize("seed", range(8))
def test_gateways_share_evenly_and_add_up(seed: int) -> None:
    catalog = random_world(seed, 5)
    transfer = prepare(catalog, Region("p", "r0"), Region("q", "r1"), 10.0, PlanningLimits(machines_per_region=4))
    overlay = solve_overlay(transfer, Fastest())
    plan = assign_gateways(overlay)
    assert plan.overlay is overlay
    assert math.fsum(route.share for route in plan.routes) == pytest.approx(1.0)
    region_of = {gateway.name: gateway.region for gateway in plan.gateways}
    flows: dict[tuple[str, str], float] = defaultdict(float)
    load: dict[str, float] = defaultdict(float)
    for route in plan.routes:
        for start, end in zip(route.nodes, route.nodes[1:], strict=False):
            flows[region_of[start], region_of[end]] += route.share * overlay.throughput_gbps
        for node in route.nodes:
            load[node] += route.share
    for edge in overlay.edges:
        assert flows[str(edge.src), str(edge.dst)] == pytest.approx(edge.gbps)
    for region, count in overlay.machine_counts.items():
        loads = [load[name] for name, where in region_of.items() if where == str(region)]
        assert len(loads) == count
        assert max(loads) == pytest.approx(min(loads))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("part", [0.5, 1.0])
def test_no_gateway_exceeds_its_machines_cap(seed: int, part: float) -> None:
    """With several types too, a region's traffic must fit each machine's NIC and connections."""
    catalog = random_world(seed, 5, types=3)
    transfer = prepare(catalog, Region("p", "r0"), Region("q", "r1"), 10.0, PlanningLimits(machines_per_region=4))
    top = solve_overlay(transfer, Fastest())
    overlay = solve_overlay(transfer, MinThroughput(part * top.throughput_gbps))
    machine = {machines.region: machines.offer.machine for machines in overlay.machines}
    assert len(machine) == len(overlay.machines), "one type in each region"
    link = {(str(edge.src), str(edge.dst)): edge.link_gbps for edge in overlay.edges}
    plan = assign_gateways(overlay)
    region_of = {gateway.name: gateway.region for gateway in plan.gateways}
    moved: dict[tuple[str, str], float] = defaultdict(float)
    used: dict[tuple[str, str], float] = defaultdict(float)
    for route in plan.routes:
        for start, end in itertools.pairwise(route.nodes):
            gbps = route.share * overlay.throughput_gbps
            for name, way in ((start, "out"), (end, "in")):
                moved[name, way] += gbps
                used[name, way] += gbps / link[region_of[start], region_of[end]]
    for (name, way), gbps in moved.items():
        here = machine[Region.parse(region_of[name])]
        assert gbps <= (here.egress_gbps if way == "out" else here.ingress_gbps) * (1 + 1e-9)
        assert used[name, way] <= 1 + 1e-9, "of its 64 connections"
