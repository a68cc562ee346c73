"""No plan has a machine that carries no bytes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tests.planner.worlds import random_world
from tradewind.model.goal import Fastest
from tradewind.model.overlay import RegionMachines
from tradewind.model.region import Region
from tradewind.planner.check import violations
from tradewind.planner.formulation import Subproblem
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import Transfer, build_checked, prepare, solve_overlay
from tradewind.planner.points import Point
from tradewind.planner.solver import SolverSettings, solve_flows

SOURCE, SINK = Region("p", "r0"), Region("q", "r1")


def three_regions() -> Transfer:
    catalog = random_world(0, 3)
    return prepare(catalog, SOURCE, SINK, 40.0, PlanningLimits(machines_per_region=1))


def test_idle_machines_are_neither_kept_nor_paid() -> None:
    transfer = three_regions()
    network = transfer.network
    machines = np.array([1 for _ in network.options], dtype=np.int64)
    solution = solve_flows(
        transfer.formulation, Subproblem(0.0, math.inf, maximise_rate=True), machines, SolverSettings()
    )
    assert solution is not None
    ends = [(network.tail[e], network.head[e]) for e in transfer.formulation.links]
    direct = [(network.regions[int(u)], network.regions[int(v)]) == (SOURCE, SINK) for u, v in ends]
    flow = np.where(direct, solution.flow_gbps, 0.0)
    point = Point.of(transfer.formulation, transfer.demand, replace(solution, flow_gbps=flow))
    plan = build_checked(transfer, Fastest(), point)
    assert {m.region for m in plan.machines} == {SOURCE, SINK}
    assert plan.cost.total_usd < point.cost_usd


def test_the_check_refuses_idle_machines() -> None:
    transfer = three_regions()
    plan = solve_overlay(transfer, Fastest())
    idle = Region("p", "r9")
    extra = RegionMachines(idle, plan.machines[0].offer, 1)
    wrong = violations(replace(plan, machines=(*plan.machines, extra)), transfer.catalog, transfer.limits)
    assert f"{idle}: 1 machine, and nothing passes it" in wrong
