"""Routes with tiny shares are dropped if, and only if, the goal does not need them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.planner.worlds import MADE, offer, random_world
from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.price import EgressPrice, PriceBook, PriceTier
from tradewind.model.region import Region
from tradewind.planner.check import multicast_violations, violations
from tradewind.planner.multicast import prepare_multicast, solve_multicast
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import build_checked, prepare, solve_goal, solve_overlay
from tradewind.planner.small_flows import AS_GOOD, SLACK, SMALL_FLOW_SHARE

VOLUME_GB = 40.0
S, ONE, TWO, T = (Region("p", name) for name in ("s", "one", "two", "t"))
LIMITS = PlanningLimits(machines_per_region=1)


def world(between_usd: float) -> Catalog:
    """Return a catalog with two relays, both needed for 3 Gbit/s, and a tiny link between them.

    Some 8 Mbit/s use that link, because this is cheaper by `0.01 − between_usd` per GB.
    """
    links = {(S, ONE): (4.0, 0.02), (S, TWO): (2.0, 0.02), (ONE, T): (10.0, 0.05), (TWO, T): (10.0, 0.04)}
    links[ONE, TWO] = (0.01, between_usd)
    grid = Grid({pair: Link(gbps, MADE) for pair, (gbps, _) in links.items()})
    prices = {pair: EgressPrice((PriceTier(0.0, usd),), MADE) for pair, (_, usd) in links.items()}
    return Catalog({}, PriceBook(prices), grid, {"p": (offer("p", 10, 10, 0.01, 0.0),)})


@pytest.mark.parametrize("exactly", [False, True])
def test_a_useless_route_is_dropped(exactly: bool) -> None:
    transfer = prepare(world(0.00999), S, T, VOLUME_GB, LIMITS)
    goal = MinThroughput(3.0, exactly)
    point = solve_goal(transfer, goal)
    assert point is not None
    with_it, plan = build_checked(transfer, goal, point), solve_overlay(transfer, goal)
    assert min(route.share for route in with_it.routes) < SMALL_FLOW_SHARE, "the world must produce a tiny route"
    assert [route.regions for route in plan.routes] == [(S, ONE, T), (S, TWO, T)]
    assert violations(plan, transfer.catalog, LIMITS) == []
    assert plan.throughput_gbps == pytest.approx(3.0)
    assert plan.cost.total_usd <= with_it.cost.total_usd * (1 + AS_GOOD)
    assert plan.optimal


def test_a_useful_route_is_kept() -> None:
    transfer = prepare(world(0.005), S, T, VOLUME_GB, LIMITS)
    plan = solve_overlay(transfer, MinThroughput(3.0))
    assert (S, ONE, TWO, T) in [route.regions for route in plan.routes]


def test_a_loss_by_dropped_flows_is_stated_as_gap() -> None:
    transfer = prepare(world(0.009), S, T, VOLUME_GB, LIMITS)
    goal = Soonest()
    point = solve_goal(transfer, goal)
    assert point is not None
    with_it, plan = build_checked(transfer, goal, point), solve_overlay(transfer, goal)
    assert min(route.share for route in with_it.routes) < SMALL_FLOW_SHARE, "the world must produce a tiny route"
    assert len(plan.routes) == 2
    assert plan.throughput_gbps >= with_it.throughput_gbps * (1 - AS_GOOD)
    given_away = plan.cost.total_usd / with_it.cost.total_usd - 1
    assert AS_GOOD < given_away <= plan.gap <= SLACK
    assert not plan.optimal


def test_a_useless_tree_is_dropped() -> None:
    catalog = world(0.00999)
    near = Region("p", "near")
    links = {**catalog.grid.links, (T, near): Link(10.0, MADE)}
    prices = {**catalog.prices.pairs, (T, near): EgressPrice((PriceTier(0.0, 0.02),), MADE)}
    catalog = replace(catalog, grid=Grid(links), prices=PriceBook(prices))
    transfer = prepare_multicast(catalog, S, [T, near], VOLUME_GB, LIMITS)
    goal = MinThroughput(3.0)
    point = solve_goal(transfer, goal)
    assert point is not None
    trees = point.solution.trees
    assert min(gbps for _, gbps in trees) < SMALL_FLOW_SHARE * point.rate_gbps, "the world must produce a tiny tree"
    plan = solve_multicast(transfer, goal)
    assert [tree.hops for tree in plan.trees] == [
        ((S, ONE), (ONE, T), (T, near)),
        ((S, TWO), (TWO, T), (T, near)),
    ]
    assert multicast_violations(plan, catalog, LIMITS) == []
    assert plan.cost.total_usd <= point.cost_usd * (1 + AS_GOOD)


@pytest.mark.parametrize("seed", range(12))
def test_dropping_flows_misses_no_goal(seed: int) -> None:
    transfer = prepare(random_world(seed, 6), Region("p", "r0"), Region("q", "r1"), VOLUME_GB, LIMITS)
    fastest = solve_overlay(transfer, Fastest())
    rate = 0.7 * fastest.throughput_gbps
    usd = solve_overlay(transfer, MinThroughput(rate)).cost.total_usd
    goals: list[Goal] = [Fastest(), Cheapest(), Soonest(), MinThroughput(rate), MinThroughput(rate, exactly=True)]
    for goal in [*goals, Deadline(8 * VOLUME_GB / rate), MaxCost(usd * 1.02)]:
        point = solve_goal(transfer, goal)
        assert point is not None
        plan = solve_overlay(transfer, goal)
        assert violations(plan, transfer.catalog, transfer.limits) == []
        assert plan.cost.total_usd <= point.cost_usd * (1 + max(AS_GOOD, plan.gap))
        if not isinstance(goal, Cheapest | MinThroughput | Deadline):
            assert plan.throughput_gbps >= point.rate_gbps * (1 - AS_GOOD)
