"""A plan by gateway carries what the plan by region says."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest

from tests.planner.worlds import random_world
from tradewind.model.goal import Fastest
from tradewind.model.region import Region
from tradewind.planner.gateways import gateway_plan
from tradewind.planner.network import Limits
from tradewind.planner.plan import answer_goal, prepare


@pytest.mark.parametrize("seed", range(8))
def test_gateways_share_evenly_and_add_up(seed: int) -> None:
    catalog = random_world(seed, 5)
    transfer = prepare(catalog, Region("p", "r0"), Region("q", "r1"), 10.0, Limits(machines_per_region=4))
    overlay = answer_goal(transfer, Fastest())
    plan = gateway_plan(overlay)
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
