"""Several destinations: compare every goal with brute force over trees. Every plan passes the independent check."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from tests.planner.brute_force_trees import TreeWorld, cheapest_usd, fastest_gbps
from tests.planner.worlds import MADE, offer, random_world
from tradewind.errors import InfeasibleGoal, SolverLimitReached, UsageError
from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.machine import StoreLimits
from tradewind.model.overlay import MulticastOverlay
from tradewind.model.price import EgressPrice, PriceBook, PriceTier
from tradewind.model.region import Region
from tradewind.planner import goals, solver
from tradewind.planner.check import multicast_violations
from tradewind.planner.multicast import compare_multicast, prepare_multicast, solve_multicast
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import Transfer, solve_goal, trace_transfer

VOLUME_GB = 40.0
SOURCE = Region("p", "r0")
SINKS = (Region("q", "r1"), Region("p", "r2"), Region("q", "r3"))
SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20))]


def world_of(seed: int) -> tuple[TreeWorld, Transfer]:
    """Return five regions with two or three destinations. Odd seeds have two machine types and fewer links."""
    catalog = random_world(seed, 5, types=1 + seed % 2)
    if seed % 2:
        rng = random.Random(seed)
        links = {pair: link for pair, link in catalog.grid.links.items() if rng.random() < 0.66}
        catalog = replace(catalog, grid=Grid(links))
    sinks = SINKS[: 2 + seed // 2 % 2]
    world = TreeWorld(catalog, SOURCE, sinks, VOLUME_GB, 1)
    return world, prepare_multicast(catalog, SOURCE, sinks, VOLUME_GB, PlanningLimits(machines_per_region=1))


def planned(transfer: Transfer, goal: Goal) -> MulticastOverlay:
    plan = solve_multicast(transfer, goal)
    assert multicast_violations(plan, transfer.catalog, transfer.limits) == []
    assert plan.optimal
    return plan


@pytest.mark.parametrize("seed", SEEDS)
def test_each_goal_is_as_good_as_brute_force(seed: int) -> None:
    world, transfer = world_of(seed)
    top_gbps = fastest_gbps(world)
    if top_gbps == 0.0:
        with pytest.raises(InfeasibleGoal, match="no links are known from"):
            solve_multicast(transfer, Fastest())
        return
    assert planned(transfer, Fastest()).throughput_gbps == pytest.approx(top_gbps, rel=1e-6)
    for part in (0.4, 0.85):
        rate = part * top_gbps
        at_least = planned(transfer, MinThroughput(rate))
        assert at_least.cost.total_usd == pytest.approx(cheapest_usd(world, rate), rel=1e-6)
        exactly = planned(transfer, MinThroughput(rate, exactly=True))
        assert exactly.cost.total_usd == pytest.approx(cheapest_usd(world, rate, exactly=True), rel=1e-6)
        deadline = planned(transfer, Deadline(8 * VOLUME_GB / rate))
        assert deadline.cost.total_usd == pytest.approx(at_least.cost.total_usd, rel=1e-6)
    least_usd = planned(transfer, Cheapest()).cost.total_usd
    assert least_usd == pytest.approx(cheapest_usd(world, top_gbps * 1e-3), rel=1e-6)
    ceiling = least_usd * 1.1
    fast = planned(transfer, MaxCost(ceiling))
    assert fast.throughput_gbps == pytest.approx(fastest_gbps(world, ceiling), rel=1e-6)
    with pytest.raises(InfeasibleGoal) as too_cheap:
        solve_multicast(transfer, MaxCost(least_usd * 0.9))
    assert too_cheap.value.nearest is not None
    assert too_cheap.value.nearest.cost.total_usd == pytest.approx(least_usd)


@pytest.mark.parametrize("seed", SEEDS)
def test_soonest_is_the_cheapest_plan_with_about_the_earliest_finish(seed: int) -> None:
    world, transfer = world_of(seed)
    top_gbps = fastest_gbps(world)
    if top_gbps == 0.0:
        return
    top_s = 8 * VOLUME_GB / top_gbps
    late_s = top_s + max(goals.SOONEST_TIE_S, goals.SOONEST_TIE * top_s)
    soonest = planned(transfer, Soonest())
    assert soonest.time_s <= late_s * (1 + 1e-9)
    assert soonest.cost.total_usd == pytest.approx(cheapest_usd(world, 8 * VOLUME_GB / late_s), rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_no_plan_is_faster_than_a_rate_limit(seed: int) -> None:
    world, free = world_of(seed)
    limit = 0.6 * solve_multicast(free, Fastest()).throughput_gbps
    transfer = replace(free, limits=replace(free.limits, rate_max_gbps=limit))
    transfer = replace(transfer, demand=replace(free.demand, rate_max_gbps=limit))
    plan = planned(transfer, Fastest())
    assert plan.throughput_gbps == pytest.approx(limit, rel=1e-6)
    assert plan.cost.total_usd == pytest.approx(cheapest_usd(world, limit, exactly=True), rel=1e-6)


def test_soonest_has_a_plan_even_if_a_cheaper_one_takes_too_long_to_find(monkeypatch: pytest.MonkeyPatch) -> None:
    _, transfer = world_of(2)
    best, top = solve_multicast(transfer, Soonest()), solve_multicast(transfer, Fastest())

    def weary(*_: Any, **__: Any) -> Any:
        raise SolverLimitReached("no plan found within 20 s")

    monkeypatch.setattr(goals, "solve_machines", weary)
    plan = solve_multicast(transfer, Soonest())
    assert plan.throughput_gbps == pytest.approx(top.throughput_gbps)
    assert not plan.optimal
    assert plan.cost.total_usd * (1 - plan.gap) <= best.cost.total_usd * (1 + 1e-6)


def test_the_fastest_plan_of_a_large_problem_is_solved_over_selected_regions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, transfer = world_of(2)
    for module in (solver, goals):
        monkeypatch.setattr(module, "WHOLE_COLUMNS_MAX", 0)
    monkeypatch.setattr(goals, "solve_flows", lambda *_: None)  # as if the time limit was reached
    plan = solve_multicast(transfer, Fastest())
    top_gbps = fastest_gbps(world)
    assert plan.throughput_gbps <= top_gbps * (1 + 1e-6) <= plan.throughput_gbps * (1 + plan.gap) * (1 + 2e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gap_of_a_large_problem_is_correct(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "WHOLE_COLUMNS_MAX", 0)
    monkeypatch.setattr(solver, "REGIONS_OF_INTEREST_MAX", 4)
    world, transfer = world_of(seed)
    top_gbps = fastest_gbps(world)
    if top_gbps == 0.0:
        return
    for goal, best_usd in (
        (MinThroughput(0.7 * top_gbps), cheapest_usd(world, 0.7 * top_gbps)),
        (Cheapest(), cheapest_usd(world, top_gbps * 1e-3)),
    ):
        plan = solve_multicast(transfer, goal)
        assert plan.cost.total_usd * (1 - plan.gap) <= best_usd * (1 + 1e-6)
        assert best_usd <= plan.cost.total_usd * (1 + 1e-6)
        assert plan.gap < 1.0
    fast = solve_multicast(transfer, Fastest())
    assert fast.throughput_gbps <= top_gbps * (1 + 1e-6) <= fast.throughput_gbps * (1 + fast.gap) * (1 + 2e-6)


def test_store_limits_apply_if_only_some_regions_are_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "WHOLE_COLUMNS_MAX", 0)
    monkeypatch.setattr(solver, "REGIONS_OF_INTEREST_MAX", 4)
    catalog = random_world(2, 6)
    stores = {provider: StoreLimits(provider, 1.0, 0.75, 0.0, 0.0, MADE) for provider in "pq"}
    catalog = replace(catalog, stores=stores)
    transfer = prepare_multicast(catalog, SOURCE, SINKS[:2], VOLUME_GB, PlanningLimits(machines_per_region=1))
    plan = solve_multicast(transfer, Fastest())
    assert plan.throughput_gbps == pytest.approx(0.75)
    assert plan.binding[0].startswith("the object-store write rate at")


def test_a_plan_is_kept_if_the_search_for_a_better_one_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = random_world(2, 5, boot_s=5.0)
    transfer = prepare_multicast(catalog, SOURCE, SINKS[:2], VOLUME_GB, PlanningLimits(machines_per_region=2))
    ceiling = 1.3 * solve_multicast(transfer, Cheapest()).cost.total_usd
    best = solve_multicast(transfer, MaxCost(ceiling))
    solves = count()

    def weary(*args: Any, **kwargs: Any) -> Any:
        if next(solves) > 0 and kwargs.get("start") is None:
            raise SolverLimitReached("no plan found within 5 s")
        return solver.solve_machines(*args, **kwargs)

    monkeypatch.setattr(goals, "solve_machines", weary)
    found = solve_goal(transfer, MaxCost(ceiling))
    assert found is not None
    assert next(solves) > 1, "the search was not complete"
    assert found.rate_gbps <= best.throughput_gbps * (1 + 1e-6) <= found.rate_gbps * (1 + found.gap) * (1 + 2e-6)


def test_a_ceiling_that_the_cheapest_plan_meets_has_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = random_world(2, 5, boot_s=5.0)
    transfer = prepare_multicast(catalog, SOURCE, SINKS[:2], VOLUME_GB, PlanningLimits(machines_per_region=2))
    cheapest = solve_multicast(transfer, Cheapest())
    solve = solver.solve_machines

    def weary(*args: Any, **kwargs: Any) -> Any:
        if args[1].ceiling_usd_per_gbit is not None and kwargs.get("start") is None:
            raise SolverLimitReached("no plan found within 5 s")
        return solve(*args, **kwargs)

    best = solve_multicast(transfer, MaxCost(1.3 * cheapest.cost.total_usd))
    monkeypatch.setattr(goals, "solve_machines", weary)
    plan = solve_multicast(transfer, MaxCost(1.3 * cheapest.cost.total_usd))
    assert plan.throughput_gbps <= best.throughput_gbps * (1 + 1e-6)
    assert best.throughput_gbps <= plan.throughput_gbps * (1 + plan.gap) * (1 + 2e-6)
    assert plan.gap < 2
    with pytest.raises(SolverLimitReached):
        solve_multicast(transfer, MaxCost(0.9 * cheapest.cost.total_usd))


@pytest.mark.parametrize("seed", [0, 2, 4, 6])
def test_the_frontier_is_as_good_as_brute_force_everywhere(seed: int) -> None:
    world, transfer = world_of(seed)
    frontier = trace_transfer(transfer)
    assert all(segment.proven for segment in frontier.segments)
    low, high = frontier.segments[0].rate_from_gbps, frontier.segments[-1].rate_to_gbps
    assert high == pytest.approx(fastest_gbps(world), rel=1e-6)
    for part in (0.0, 0.2, 0.5, 0.8, 0.99):
        rate = low + part * (high - low)
        assert frontier.cost_usd(rate) == pytest.approx(cheapest_usd(world, rate), rel=1e-6)


def graph(edges: list[tuple[str, str, float]], egress_gbps: float = 10.0) -> Catalog:
    """Return regions of one provider with links of these rates, all at the same price."""
    links = {(Region("p", u), Region("p", v)): Link(gbps, MADE) for u, v, gbps in edges}
    prices = {pair: EgressPrice((PriceTier(0.0, 0.02),), MADE) for pair in links}
    return Catalog({}, PriceBook(prices), Grid(links), {"p": (offer("p", egress_gbps, 10.0, 1.0, 0.0),)})


def test_a_relay_duplicates_what_it_receives_once() -> None:
    catalog = graph([("s", "hub", 4.0), ("hub", "a", 8.0), ("hub", "b", 8.0)])
    source, hub, sinks = Region("p", "s"), Region("p", "hub"), (Region("p", "a"), Region("p", "b"))
    transfer = prepare_multicast(catalog, source, sinks, 8.0, PlanningLimits(machines_per_region=1))
    plan = planned(transfer, MinThroughput(3.0))
    assert len(plan.trees) == 1
    assert plan.trees[0].hops[0] == (source, hub)
    assert set(plan.trees[0].hops[1:]) == {(hub, sink) for sink in sinks}
    assert plan.cost.egress_usd == pytest.approx(3 * 8.0 * 0.02), "each link is charged once"


def test_the_butterfly_gets_no_rate_that_needs_network_coding() -> None:
    """With network coding the links would carry 2 Gbit/s to both. Relays that only forward carry 1.5."""
    unit = [("s", "l"), ("s", "r"), ("l", "a"), ("r", "b"), ("l", "m"), ("r", "m"), ("m", "n"), ("n", "a"), ("n", "b")]
    # A region's links share its connections, so the links are fast and the machines' caps are the bottlenecks.
    catalog = graph([(u, v, 1000.0) for u, v in unit])
    caps = {"s": (2.0, 10.0), "l": (2.0, 1.0), "r": (2.0, 1.0), "m": (1.0, 10.0)}
    offers = {Region("p", name): (offer("p", egress, ingress, 1.0, 0.0),) for name, (egress, ingress) in caps.items()}
    catalog = replace(catalog, region_offers=offers)
    sinks = (Region("p", "a"), Region("p", "b"))
    transfer = prepare_multicast(catalog, Region("p", "s"), sinks, 8.0, PlanningLimits(machines_per_region=1))
    plan = planned(transfer, Fastest())
    assert transfer.formulation.shared is not None
    assert transfer.formulation.shared.rows() is not None, "the relaxation alone was too optimistic"
    world = TreeWorld(catalog, Region("p", "s"), sinks, 8.0, 1)
    assert plan.throughput_gbps == pytest.approx(fastest_gbps(world), rel=1e-6)
    assert plan.throughput_gbps < 1.99


@pytest.mark.parametrize("seed", range(3))
def test_the_shared_plan_never_costs_more_than_direct_copies(seed: int) -> None:
    _, transfer = world_of(seed * 2)
    plan = planned(transfer, MinThroughput(0.5 * planned(transfer, Fastest()).throughput_gbps))
    lines = {line.name: line for line in compare_multicast(transfer, plan)}
    direct = lines.get("direct to each, at once")
    if direct is not None and not direct.remark:
        assert plan.cost.total_usd <= direct.cost_usd * (1 + 1e-7)
    separate = next((line for name, line in lines.items() if name.endswith("one per destination")), None)
    assert separate is None or separate.throughput_gbps >= plan.throughput_gbps * (1 - 1e-6)


def test_destinations_are_checked() -> None:
    catalog = random_world(0, 5)
    with pytest.raises(UsageError, match="named twice"):
        prepare_multicast(catalog, SOURCE, (SINKS[0], SINKS[0]), 1.0)
    with pytest.raises(UsageError, match="unknown region"):
        prepare_multicast(catalog, SOURCE, (SINKS[0], Region("p", "nowhere")), 1.0)
    with pytest.raises(UsageError, match="source and destination are both"):
        prepare_multicast(catalog, SOURCE, (SINKS[0], SOURCE), 1.0)
    with pytest.raises(UsageError, match="1 to 8 destinations"):
        prepare_multicast(catalog, SOURCE, [Region("p", f"r{i}") for i in range(9)], 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_the_check_detects_wrong_plans(seed: int) -> None:
    _, transfer = world_of(seed * 2)
    plan = planned(transfer, Fastest())
    tree = plan.trees[0]
    wrong = [
        replace(plan, trees=(replace(tree, hops=tree.hops[:-1]), *plan.trees[1:])),
        replace(plan, trees=(replace(tree, gbps=tree.gbps * 1.01), *plan.trees[1:])),
        replace(plan, machines=plan.machines[1:]),
        replace(plan, cost=replace(plan.cost, egress_usd=plan.cost.egress_usd * 0.9)),
        replace(plan, edges=tuple(replace(e, gbps=e.gbps * 5) for e in plan.edges)),
        replace(plan, goal=MinThroughput(plan.throughput_gbps * 2)),
    ]
    for broken in wrong:
        assert multicast_violations(broken, transfer.catalog, transfer.limits)
