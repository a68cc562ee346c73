"""Plans with a limited number of routes between gateways."""

from __future__ import annotations

import pytest

from tests.planner.test_boot_times import world as slow_to_start
from tests.planner.worlds import random_world
from tradewind.errors import InfeasibleGoal
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.region import Region
from tradewind.planner.baseline import direct
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import prepare, solve_overlay
from tradewind.planner.route_limit import TIE, route_count
from tradewind.planner.transfer import Transfer

SOURCE, SINK = Region("p", "r0"), Region("q", "r1")
SEEDS = range(6)


def transfer(seed: int, routes_max: int | None, machines: int = 3) -> Transfer:
    limits = PlanningLimits(machines_per_region=machines, routes_max=routes_max)
    return prepare(random_world(seed, 5), SOURCE, SINK, 10.0, limits)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rate_grows_with_the_routes_up_to_the_plan_without_a_limit(seed: int) -> None:
    """Every plan is checked against the constraints when it is made; its gap holds for the plan without a limit."""
    free = solve_overlay(transfer(seed, None), Fastest())
    rates: list[float] = []
    for routes_max in (1, 2, 3, 5, 32):
        plan = solve_overlay(transfer(seed, routes_max), Fastest())
        assert route_count(plan) <= routes_max
        assert plan.throughput_gbps * (1 + plan.gap) >= free.throughput_gbps * (1 - TIE)
        assert plan.throughput_gbps >= max(rates, default=0.0) * (1 - TIE)
        rates.append(plan.throughput_gbps)
    assert max(rates) <= free.throughput_gbps * (1 + 1e-9)
    assert rates[0] < free.throughput_gbps


def test_a_limit_that_does_not_bind_changes_nothing() -> None:
    free = solve_overlay(transfer(0, None), Fastest())
    limited = solve_overlay(transfer(0, route_count(free)), Fastest())
    assert (limited.routes, limited.machines, limited.gap) == (free.routes, free.machines, free.gap)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_route_is_at_least_as_fast_as_the_direct_one(seed: int) -> None:
    one = solve_overlay(transfer(seed, 1), Fastest())
    straight = direct(transfer(seed, None, machines=1))
    assert one.machine_counts == dict.fromkeys(one.routes[0].regions, 1)
    assert straight is None or one.throughput_gbps >= straight.throughput_gbps * (1 - 1e-9)


@pytest.mark.parametrize(
    "goal", [Cheapest(), Soonest(), MaxCost(100.0), MinThroughput(0.1), Deadline(100_000.0)], ids=str
)
def test_each_goal_is_met_within_the_limit(goal: Goal) -> None:
    plan = solve_overlay(transfer(1, 2), goal)
    assert route_count(plan) <= 2
    assert plan.goal == goal
    if isinstance(goal, MaxCost):
        assert plan.cost.total_usd <= goal.usd


def test_the_gap_of_the_soonest_plan_is_one_of_time_as_fast_machines_may_start_late() -> None:
    ends, catalog = (Region("p", "r0"), Region("p", "r2")), slow_to_start(14)
    free, one = (
        solve_overlay(prepare(catalog, *ends, 30.0, PlanningLimits(machines_per_region=2, routes_max=most)), Soonest())
        for most in (None, 1)
    )
    assert one.throughput_gbps > free.throughput_gbps and one.time_s > 1.5 * free.time_s
    assert one.gap == pytest.approx(one.time_s / free.time_s - 1, rel=1e-5)
    assert not one.optimal


@pytest.mark.parametrize("seed", SEEDS)
def test_a_goal_that_needs_more_routes_is_refused_with_the_nearest_one(seed: int) -> None:
    free = solve_overlay(transfer(seed, None), Fastest())
    few = transfer(seed, 1)
    for goal, because in (
        (MinThroughput(free.throughput_gbps * 0.999), "is out of reach with at most 1 route: the fastest plan moves"),
        (Deadline(free.time_s * 1.001), "is too short with at most 1 route: the earliest finish is"),
    ):
        with pytest.raises(InfeasibleGoal, match=because) as refused:
            solve_overlay(few, goal)
        assert refused.value.hint == "allow more routes"
        nearest = refused.value.nearest
        assert nearest is not None
        assert route_count(solve_overlay(few, nearest.goal)) == 1
