"""Volume tiers count exactly the volume that a plan sends over a billing account, never a mean of the whole volume."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.planner import brute_force_tiers
from tests.planner.brute_force import World
from tests.planner.brute_force_trees import TreeWorld
from tests.planner.worlds import MADE, offer, random_world
from tradewind.errors import InfeasibleGoal
from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.overlay import MulticastOverlay, UnicastOverlay
from tradewind.model.price import EgressPrice, PriceBook, PriceTier
from tradewind.model.region import Region
from tradewind.planner.check import multicast_violations, violations
from tradewind.planner.multicast import prepare_multicast, solve_multicast, trace_multicast
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import prepare, solve_overlay, trace_transfer

SOURCE, SINK = Region("p", "r0"), Region("q", "r1")


def price(*tiers: tuple[float, float]) -> EgressPrice:
    return EgressPrice(tuple(PriceTier(start, usd) for start, usd in tiers), MADE)


def planned(catalog: Catalog, volume_gb: float, goal: Goal, limits: PlanningLimits) -> UnicastOverlay:
    plan = solve_overlay(prepare(catalog, SOURCE, SINK, volume_gb, limits), goal)
    assert violations(plan, catalog, limits) == []
    return plan


def split_world() -> Catalog:
    """Return two routes of 5 Gbit/s, direct and over a relay of the same provider. The first 100 GB cost more."""
    relay = Region("p", "r2")
    links = {(SOURCE, SINK): Link(5.0, MADE), (SOURCE, relay): Link(5.0, MADE), (relay, SINK): Link(5.0, MADE)}
    out, inner = price((0.0, 0.10), (100.0, 0.02)), price((0.0, 0.01))
    prices = {(SOURCE, SINK): out, (relay, SINK): out, (SOURCE, relay): inner}
    offers = {name: (offer(name, 10.0, 10.0, 1.0, 0.0),) for name in ("p", "q")}
    return Catalog({}, PriceBook(prices), Grid(links), offers)


def test_two_routes_of_one_account_fill_its_tiers_together() -> None:
    catalog = split_world()
    limits = PlanningLimits(machines_per_region=2)
    plan = planned(catalog, 150.0, MinThroughput(10.0), limits)
    by_relay = sum(e.gbps for e in plan.edges if e.src == SOURCE and e.dst != SINK) / plan.throughput_gbps
    egress = 100 * 0.10 + 50 * 0.02 + 150 * by_relay * 0.01
    assert plan.cost.egress_usd == pytest.approx(egress), "150 GB leave the account over any route"
    used = replace(limits, monthly_egress_used_gb=80.0)
    after = planned(catalog, 150.0, MinThroughput(10.0), used)
    assert after.cost.egress_usd == pytest.approx(egress - 80 * 0.08)


def test_a_plan_for_the_rest_of_a_transfer_continues_in_the_reached_tier() -> None:
    catalog, limits = split_world(), PlanningLimits(machines_per_region=2)
    relay = Region("p", "r2")
    sent = replace(limits, egress_sent_gb={(SOURCE, SINK): 30.0, (relay, SINK): 50.0, (SOURCE, relay): 50.0})
    plan = planned(catalog, 150.0, Cheapest(), sent)
    assert plan.cost.egress_usd == pytest.approx(20 * 0.10 + 130 * 0.02), "80 of the first 100 GB were sent before"
    used = replace(sent, monthly_egress_used_gb=15.0)
    assert planned(catalog, 150.0, Cheapest(), used).cost.egress_usd == pytest.approx(5 * 0.10 + 145 * 0.02)


def test_half_of_the_volume_does_not_reach_a_tier_of_all() -> None:
    """With two relays of two accounts, each account sends 75 of the 150 GB, below its second tier."""
    relay, other = Region("p", "r2"), Region("s", "r3")
    links = {(a, b): Link(5.0, MADE) for a, b in ((SOURCE, relay), (relay, SINK), (SOURCE, other), (other, SINK))}
    inner, out = price((0.0, 0.01)), price((0.0, 0.10), (100.0, 0.02))
    prices = {(SOURCE, relay): inner, (relay, SINK): out, (SOURCE, other): inner, (other, SINK): out}
    offers = {name: (offer(name, 10.0, 10.0, 1.0, 0.0),) for name in ("p", "q", "s")}
    catalog = Catalog({}, PriceBook(prices), Grid(links), offers)
    limits = PlanningLimits(machines_per_region=2, per_region={relay: 1, other: 1})
    plan = planned(catalog, 150.0, MinThroughput(10.0), limits)
    assert plan.cost.egress_usd == pytest.approx(150 * 0.11), "the mean price of 150 GB would be 0.0733"
    cheapest = planned(catalog, 150.0, Cheapest(), limits)
    assert cheapest.cost.egress_usd == pytest.approx(100 * 0.10 + 50 * 0.02 + 1.5), "one route reaches the second tier"


def tiered_world(seed: int, *, rising: bool) -> Catalog:
    """Return a random catalog in which most prices have tiers at a few tens of GB."""
    rng = random.Random(seed)
    catalog = random_world(seed, 4)
    lists = []
    for _ in range(3):
        usd = sorted((rng.choice([0.0, 0.01, 0.03, 0.05, 0.09, 0.12]) for _ in range(3)), reverse=not rising)
        starts = sorted(rng.sample(range(4, 60, 4), 2))
        lists.append(price(*zip((0.0, *map(float, starts)), usd, strict=True)))
    flat = price((0.0, 0.02))
    pairs = {pair: rng.choice([*lists, flat]) for pair in catalog.grid.links}
    return replace(catalog, prices=PriceBook(pairs))


@pytest.mark.parametrize(
    ("seed", "boot_s", "rising"),
    [
        (1, 0.0, True),
        (1, 45.0, False),
        *(pytest.param(seed, 0.0, False, marks=pytest.mark.slow) for seed in (0, 1, *range(3, 23))),
        *(pytest.param(seed, 0.0, True, marks=pytest.mark.slow) for seed in (0, *range(3, 20))),
        *(pytest.param(seed, 45.0, False, marks=pytest.mark.slow) for seed in range(3, 8)),
    ],
)
def test_each_goal_is_as_good_as_brute_force(seed: int, boot_s: float, rising: bool) -> None:
    catalog, volume_gb, limits = tiered_world(seed, rising=rising), 40.0, PlanningLimits(machines_per_region=1)
    if boot_s:
        offers = {
            name: tuple(replace(o, machine=replace(o.machine, boot_s=boot_s)) for o in of)
            for name, of in catalog.offers.items()
        }
        catalog = replace(catalog, offers=offers)
    world = World(catalog, SOURCE, SINK, volume_gb, 1, boot_s)
    top = planned(catalog, volume_gb, Fastest(), limits)
    assert top.cost.total_usd == pytest.approx(
        brute_force_tiers.cheapest_usd(world, top.throughput_gbps * (1 - 1e-8)), rel=2e-6
    )
    for part in (0.3, 0.8):
        rate = part * top.throughput_gbps
        least_usd = brute_force_tiers.cheapest_usd(world, rate)
        for goal in (MinThroughput(rate), Deadline(boot_s + 8 * volume_gb / rate)):
            plan = planned(catalog, volume_gb, goal, limits)
            assert plan.cost.total_usd == pytest.approx(least_usd, rel=2e-6)
            assert plan.cost.total_usd * (1 - plan.gap) <= least_usd * (1 + 1e-6)
    cheapest = planned(catalog, volume_gb, Cheapest(), limits)
    assert cheapest.cost.total_usd == pytest.approx(
        brute_force_tiers.cheapest_usd(world, top.throughput_gbps * 1e-3), rel=2e-6
    )
    for factor in (1.02, 1.3):
        ceiling_usd = cheapest.cost.total_usd * factor
        plan = planned(catalog, volume_gb, MaxCost(ceiling_usd), limits)
        assert plan.cost.total_usd <= ceiling_usd * (1 + 1e-9)
        assert plan.throughput_gbps == pytest.approx(brute_force_tiers.fastest_gbps(world, ceiling_usd), rel=2e-6)
    with pytest.raises(InfeasibleGoal):
        planned(catalog, volume_gb, MaxCost(cheapest.cost.total_usd * 0.99), limits)
    soonest = planned(catalog, volume_gb, Soonest(), limits)
    assert soonest.cost.total_usd <= top.cost.total_usd * (1 + 1e-6)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, *range(3, 16)))])
def test_the_frontier_has_tiers_too(seed: int) -> None:
    catalog, limits = tiered_world(seed, rising=seed % 2 == 1), PlanningLimits(machines_per_region=1)
    world = World(catalog, SOURCE, SINK, 40.0, 1, 0.0)
    transfer = prepare(catalog, SOURCE, SINK, 40.0, limits)
    frontier = trace_transfer(transfer)
    low_usd, high_usd = frontier.segments[0].cost_from_usd, frontier.segments[-1].cost_to_usd
    assert low_usd == pytest.approx(solve_overlay(transfer, Cheapest()).cost.total_usd, rel=1e-5)
    for step in range(4):
        usd = low_usd + (high_usd - low_usd) * (step + 0.37) / 4
        best_gbps = brute_force_tiers.fastest_gbps(world, usd)
        assert frontier.rate_gbps(usd) <= best_gbps * (1 + 2e-5)
        if all(segment.proven for segment in frontier.segments):
            assert frontier.rate_gbps(usd) == pytest.approx(best_gbps, rel=2e-5)


SINKS = (Region("q", "r1"), Region("p", "r2"))


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, *range(4, 16)))])
def test_several_destinations_fill_tiers_together(seed: int) -> None:
    catalog, limits = tiered_world(seed, rising=False), PlanningLimits(machines_per_region=1)
    world = TreeWorld(catalog, SOURCE, SINKS, 40.0, 1)
    transfer = prepare_multicast(catalog, SOURCE, SINKS, 40.0, limits)

    def made(goal: Goal) -> MulticastOverlay:
        plan = solve_multicast(transfer, goal)
        assert multicast_violations(plan, catalog, limits) == []
        return plan

    try:
        top = made(Fastest())
    except InfeasibleGoal:
        return
    rate = 0.6 * top.throughput_gbps
    least_usd = brute_force_tiers.cheapest_usd(world, rate)
    assert made(MinThroughput(rate)).cost.total_usd == pytest.approx(least_usd, rel=1e-5)
    cheapest = made(Cheapest())
    ceiling_usd = cheapest.cost.total_usd * 1.2
    best_gbps = brute_force_tiers.fastest_gbps(world, ceiling_usd)
    plan = made(MaxCost(ceiling_usd))
    assert plan.cost.total_usd <= ceiling_usd * (1 + 1e-9)
    assert plan.throughput_gbps == pytest.approx(best_gbps, rel=1e-5)
    frontier = trace_multicast(transfer)
    assert frontier.rate_gbps(ceiling_usd) <= best_gbps * (1 + 1e-4)
