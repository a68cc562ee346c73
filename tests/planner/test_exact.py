"""Compare every goal with brute force on small random worlds. Every plan passes the independent check."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.planner.brute_force import World, cheapest_usd, fastest_gbps
from tests.planner.worlds import random_world
from tradewind.errors import InfeasibleGoal
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.overlay import UnicastOverlay
from tradewind.model.region import Region
from tradewind.planner.check import violations
from tradewind.planner.goals import SOONEST_TIE, SOONEST_TIE_S
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import Transfer, prepare, solve_overlay, trace_transfer

VOLUME_GB = 40.0
SOURCE, SINK = Region("p", "r0"), Region("q", "r1")


def world_of(seed: int, boot_s: float = 0.0, types: int = 1) -> tuple[World, Transfer]:
    machines_max = 1 + seed % 2
    catalog = random_world(seed, 4 if types * machines_max > 1 else 5, boot_s=boot_s, types=types)
    world = World(catalog, SOURCE, SINK, VOLUME_GB, machines_max, boot_s)
    return world, prepare(catalog, SOURCE, SINK, VOLUME_GB, PlanningLimits(machines_per_region=machines_max))


def planned(transfer: Transfer, goal: Goal) -> UnicastOverlay:
    plan = solve_overlay(transfer, goal)
    assert violations(plan, transfer.catalog, transfer.limits) == []
    return plan


@pytest.mark.parametrize(
    ("seed", "boot_s", "types"),
    [
        (0, 0.0, 1),
        (1, 0.0, 1),
        (2, 0.0, 1),
        (0, 45.0, 1),
        (0, 0.0, 3),
        (4, 0.0, 3),
        (0, 45.0, 2),
        *(pytest.param(seed, 0.0, 1, marks=pytest.mark.slow) for seed in range(3, 12)),
        *(pytest.param(seed, 45.0, 1, marks=pytest.mark.slow) for seed in range(1, 12)),
        *(
            pytest.param(seed, boot_s, 2, marks=pytest.mark.slow)
            for seed in (1, 3, 4, 5, 6, 7)
            for boot_s in (0.0, 45.0)
        ),
    ],
)
def test_each_goal_is_as_good_as_brute_force(seed: int, boot_s: float, types: int) -> None:
    world, transfer = world_of(seed, boot_s, types)
    tolerance = 1e-6
    top_gbps = fastest_gbps(world)
    assert planned(transfer, Fastest()).throughput_gbps == pytest.approx(top_gbps, rel=1e-6)
    top_s = boot_s + 8 * VOLUME_GB / top_gbps
    soonest, late_s = planned(transfer, Soonest()), top_s + max(SOONEST_TIE_S, SOONEST_TIE * top_s)
    assert soonest.time_s <= late_s * (1 + 1e-9)
    as_soon = 8 * VOLUME_GB / (late_s - boot_s)
    assert soonest.cost.total_usd == pytest.approx(cheapest_usd(world, as_soon), rel=1e-6), "the cheapest of the ties"
    for part in (0.3, 0.8):
        rate = part * top_gbps
        at_least = planned(transfer, MinThroughput(rate))
        assert at_least.cost.total_usd == pytest.approx(cheapest_usd(world, rate), rel=tolerance)
        exactly = planned(transfer, MinThroughput(rate, exactly=True))
        assert exactly.cost.total_usd == pytest.approx(cheapest_usd(world, rate, exactly=True), rel=1e-6)
        assert at_least.cost.total_usd <= exactly.cost.total_usd * (1 + 1e-9)
        deadline = planned(transfer, Deadline(boot_s + 8 * VOLUME_GB / rate))
        assert deadline.cost.total_usd == pytest.approx(at_least.cost.total_usd, rel=tolerance)
    least_usd = planned(transfer, Cheapest()).cost.total_usd
    assert least_usd == pytest.approx(cheapest_usd(world, top_gbps * 1e-3), rel=tolerance)
    for factor in (1.02, 1.3):
        ceiling = least_usd * factor
        plan = planned(transfer, MaxCost(ceiling))
        assert plan.cost.total_usd <= ceiling * (1 + 1e-9)
        assert plan.throughput_gbps == pytest.approx(fastest_gbps(world, ceiling), rel=tolerance)


@pytest.mark.parametrize(
    ("seed", "boot_s", "types"),
    [(0, 0.0, 1), (1, 45.0, 1), (4, 0.0, 2), *(pytest.param(s, 45.0, 2, marks=pytest.mark.slow) for s in (1, 3, 4, 5))],
)
def test_no_plan_is_faster_than_a_rate_limit_or_pays_for_more(seed: int, boot_s: float, types: int) -> None:
    world, free = world_of(seed, boot_s, types)
    top_gbps = planned(free, Fastest()).throughput_gbps
    for part in (0.25, 0.6):
        limited = replace(world, rate_max_gbps=part * top_gbps)
        limits = PlanningLimits(machines_per_region=world.machines_max, rate_max_gbps=part * top_gbps)
        transfer = prepare(world.catalog, SOURCE, SINK, VOLUME_GB, limits)
        at_limit = cheapest_usd(limited, part * top_gbps * (1 - 1e-9))
        fastest = planned(transfer, Fastest())
        assert fastest.throughput_gbps == pytest.approx(part * top_gbps, rel=1e-6)
        assert fastest.cost.total_usd == pytest.approx(at_limit, rel=1e-6)
        assert any(limit.startswith("the rate limit of ") for limit in fastest.binding)
        least_usd = planned(transfer, Cheapest()).cost.total_usd
        assert least_usd == pytest.approx(cheapest_usd(limited, top_gbps * 1e-3), rel=1e-6)
        for ceiling in (least_usd * 1.02, at_limit * 1.5):
            plan = planned(transfer, MaxCost(ceiling))
            assert plan.throughput_gbps == pytest.approx(fastest_gbps(limited, ceiling), rel=1e-6)
        slower = planned(transfer, MinThroughput(0.7 * part * top_gbps))
        assert slower.cost.total_usd == pytest.approx(cheapest_usd(limited, 0.7 * part * top_gbps), rel=1e-6)
        with pytest.raises(InfeasibleGoal, match="limited by the rate limit of ") as caught:
            solve_overlay(transfer, MinThroughput(1.1 * part * top_gbps))
        assert "or allow a higher --limit-rate" in str(caught.value.hint)


@pytest.mark.parametrize("seed", range(12))
def test_the_frontier_matches_brute_force_at_any_cost(seed: int) -> None:
    world, transfer = world_of(seed)
    frontier = trace_transfer(transfer)
    assert all(segment.proven for segment in frontier.segments)
    low_usd, high_usd = frontier.segments[0].cost_from_usd, frontier.segments[-1].cost_to_usd
    for step in range(6):
        cost = low_usd + (high_usd - low_usd) * (step + 0.37) / 6
        assert frontier.rate_gbps(cost) == pytest.approx(fastest_gbps(world, cost), rel=2e-5)
    rates = [rate for s in frontier.segments for rate in (s.rate_from_gbps, s.rate_to_gbps)]
    costs = [cost for s in frontier.segments for cost in (s.cost_from_usd, s.cost_to_usd)]
    assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(rates))
    assert all(a <= b * (1 + 1e-7) for a, b in itertools.pairwise(costs))


@pytest.mark.parametrize("seed", range(4))
def test_no_plan_beats_a_frontier_with_boot_time_by_more_than_its_gap(seed: int) -> None:
    world, transfer = world_of(seed, 45.0)
    for solves_max in (6, 400):
        frontier = trace_transfer(transfer, solves_max=solves_max)
        for segment in frontier.segments:
            assert segment.proven == (segment.gap <= 1e-6)
            for part in (0.05, 0.5, 0.95):
                rate = segment.rate_from_gbps + part * (segment.rate_to_gbps - segment.rate_from_gbps)
                least_usd = cheapest_usd(world, rate)
                if segment.gap < float("inf"):
                    assert least_usd >= frontier.cost_usd(rate) * (1 - segment.gap - 1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_several_machine_types_never_cost_more_than_the_best_one(seed: int) -> None:
    catalog = random_world(seed, 5, types=3)
    several = prepare(catalog, SOURCE, SINK, VOLUME_GB, PlanningLimits(machines_per_region=3))
    rate = 0.5 * planned(several, Fastest()).throughput_gbps
    best = planned(several, MinThroughput(rate))
    for name in {o.machine.name for offers in catalog.offers.values() for o in offers if o.machine.provider == "p"}:
        others = {o.machine.name for o in catalog.offers["q"]}
        one = prepare(
            catalog, SOURCE, SINK, VOLUME_GB, PlanningLimits(machines_per_region=3, machine_types={name, *others})
        )
        try:
            alone = planned(one, MinThroughput(rate))
        except InfeasibleGoal:
            continue
        assert best.cost.total_usd <= alone.cost.total_usd * (1 + 1e-7)


def test_infeasible_goals_state_the_reason_and_the_nearest_goal() -> None:
    _, transfer = world_of(0)
    fastest = planned(transfer, Fastest())
    with pytest.raises(InfeasibleGoal) as too_fast:
        solve_overlay(transfer, MinThroughput(fastest.throughput_gbps * 2))
    assert too_fast.value.nearest is not None
    assert too_fast.value.nearest.throughput_gbps == pytest.approx(fastest.throughput_gbps)
    assert "limited by" in too_fast.value.because
    cheapest = planned(transfer, Cheapest())
    with pytest.raises(InfeasibleGoal) as too_cheap:
        solve_overlay(transfer, MaxCost(cheapest.cost.total_usd * 0.9))
    assert too_cheap.value.nearest is not None
    assert too_cheap.value.nearest.cost.total_usd == pytest.approx(cheapest.cost.total_usd)
    with pytest.raises(InfeasibleGoal) as too_soon:
        solve_overlay(transfer, Deadline(fastest.time_s * 0.5))
    assert too_soon.value.nearest is not None
    assert too_soon.value.nearest.time_s == pytest.approx(fastest.time_s)
