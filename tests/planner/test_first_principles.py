"""Recompute the cost of a plan from its routes, prices and bills; check that no plan beats a stated gap."""

from __future__ import annotations

import itertools
import math
import os
import random
from dataclasses import replace

import pytest

from tests.planner.worlds import MADE, random_world
from tradewind.errors import InfeasibleGoal
from tradewind.model.catalog import Catalog
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.machine import StoreLimits
from tradewind.model.overlay import UnicastOverlay
from tradewind.model.price import EgressPrice, PriceBook, PriceTier
from tradewind.model.region import Region
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import prepare, solve_overlay

SEEDS = range(int(os.environ.get("TRADEWIND_PLANNER_SEEDS", "12")))
SOURCE, SINK = Region("p", "r0"), Region("q", "r1")
ROUNDING = 1e-6


def billed_world(rng: random.Random, seed: int) -> Catalog:
    """Return random links and prices, some with tiers, and machines with a boot time and a minimum billed time."""
    catalog = random_world(seed, rng.choice([3, 4]), boot_s=0.0, types=rng.choice([1, 2]))
    book = {pair: EgressPrice(_tiers(rng, price), MADE) for pair, price in catalog.prices.pairs.items()}
    offers = {
        provider: tuple(
            replace(
                offer,
                machine=replace(
                    offer.machine, boot_s=rng.choice([0.0, 5.0, 40.0]), billed_s_min=rng.choice([0.0, 60.0, 300.0])
                ),
            )
            for offer in of
        )
        for provider, of in catalog.offers.items()
    }
    inf = math.inf
    stores = {name: StoreLimits(name, inf, inf, rng.choice([0.0, 0.4]), 5.0, MADE) for name in ("p", "q")}
    return replace(catalog, prices=PriceBook(book), offers=offers, stores=stores)


def _tiers(rng: random.Random, price: EgressPrice) -> tuple[PriceTier, ...]:
    first = price.usd_per_gb
    if rng.random() < 0.5:
        return (PriceTier(0.0, first),)
    return PriceTier(0.0, first), PriceTier(rng.choice([5.0, 20.0]), first / 2), PriceTier(60.0, first / 4)


def egress_usd(plan: UnicastOverlay, catalog: Catalog, limits: PlanningLimits) -> float:
    """Return the egress cost from the routes' shares alone: each billing account's volume, tier by tier."""
    sent_gb: dict[tuple[str, tuple[PriceTier, ...]], float] = {}
    for route in plan.routes:
        for src, dst in itertools.pairwise(route.regions):
            count = src.provider, catalog.prices.pairs[src, dst].tiers
            gb = plan.volume_gb * route.share * limits.compression_ratio
            sent_gb[count] = sent_gb.get(count, 0.0) + gb
    usd = 0.0
    for (_, tiers), volume_gb in sent_gb.items():
        begin_gb, end_gb = limits.monthly_egress_used_gb, limits.monthly_egress_used_gb + volume_gb
        for position, tier in enumerate(tiers):
            next_gb = tiers[position + 1].from_gb if position + 1 < len(tiers) else math.inf
            usd += tier.usd_per_gb * max(0.0, min(end_gb, next_gb) - max(begin_gb, tier.from_gb))
    return usd


def machines_usd(plan: UnicastOverlay) -> float:
    boot_s = max(m.offer.machine.boot_s for m in plan.machines)
    lasting_s = boot_s + plan.volume_gb * 8 / plan.throughput_gbps
    return sum(
        m.count * m.offer.usd_per_hour / 3600 * max(lasting_s, m.offer.machine.billed_s_min) for m in plan.machines
    )


def requests_usd(catalog: Catalog, objects: int, volume_gb: float) -> float:
    """Return the cost of requests: a GET and a PUT per part of 16 MiB; uploads in parts are also opened, completed and
    checked by HEAD on both sides.
    """
    read, write = catalog.stores["p"].request_prices, catalog.stores["q"].request_prices
    parts = math.ceil(volume_gb * 1e9 / objects / 2**24)
    in_parts = parts > 1
    at_source = objects * (parts * read.get_usd_per_1000 + in_parts * read.head_usd_per_1000)
    at_sink = objects * ((parts + 2 * in_parts) * write.put_usd_per_1000 + in_parts * write.head_usd_per_1000)
    return (at_source + math.ceil(objects / 1000) * read.list_usd_per_1000 + at_sink) / 1000


def better(plan: UnicastOverlay, other: UnicastOverlay) -> float:
    """Return how much better another plan is by the first one's goal, if it meets that, measured like a gap."""
    goal, rate, usd = plan.goal, plan.throughput_gbps, plan.cost.total_usd
    if isinstance(goal, Fastest):
        return other.throughput_gbps / rate - 1
    if isinstance(goal, MaxCost):
        return other.throughput_gbps / rate - 1 if other.cost.total_usd <= goal.usd * (1 - ROUNDING) else 0.0
    if isinstance(goal, MinThroughput) and other.throughput_gbps < goal.gbps:
        return 0.0
    if isinstance(goal, Deadline) and other.time_s > goal.seconds:
        return 0.0
    return 0.0 if isinstance(goal, Soonest) else 1 - other.cost.total_usd / usd


@pytest.mark.parametrize("seed", [*SEEDS[:4], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[4:])])
def test_a_plans_cost_matches_its_flows_and_no_plan_beats_its_gap(seed: int) -> None:
    rng = random.Random(seed)
    catalog = billed_world(rng, seed)
    limits = PlanningLimits(
        machines_per_region=rng.choice([1, 2, 3]),
        compression_ratio=rng.choice([1.0, 0.5]),
        monthly_egress_used_gb=rng.choice([0.0, 4.0, 59.0]),
    )
    objects = rng.choice([1, 1000, 30_000])
    volume_gb = rng.choice([1.0, 8.0, 30.0, 200.0]) if objects > 1 else 0.01
    transfer = prepare(catalog, SOURCE, SINK, volume_gb, limits, objects=objects)

    def plan_for(goal: Goal) -> UnicastOverlay | None:
        try:
            return solve_overlay(transfer, goal)
        except InfeasibleGoal as error:
            if isinstance(goal, MaxCost) and error.nearest is not None:
                assert error.nearest.cost.total_usd > goal.usd, f"{goal}: the nearest plan meets the goal"
            return None

    cheapest = plan_for(Cheapest())
    if cheapest is None:
        pytest.skip("nothing leads there")
    fastest = plan_for(Fastest())
    assert fastest is not None
    rates = [fastest.throughput_gbps * part for part in (0.3, 0.8)]
    low, high = cheapest.cost.total_usd, fastest.cost.total_usd
    goals: list[Goal] = [*(MinThroughput(rate) for rate in rates), Deadline(cheapest.time_s * 0.7), Soonest()]
    goals += [MaxCost(usd) for usd in (low * 0.9, low * 1.01, (low + high) / 2, high * 1.001)]
    plans = [plan for plan in (cheapest, fastest, *map(plan_for, goals)) if plan is not None]
    for plan in plans:
        what = f"seed {seed}, {plan.goal}"
        parts = (egress_usd(plan, catalog, limits), machines_usd(plan), requests_usd(catalog, objects, volume_gb))
        said = plan.cost
        assert (said.egress_usd, said.machines_usd, said.requests_usd) == pytest.approx(parts, rel=ROUNDING), what
        if isinstance(plan.goal, MaxCost):
            assert sum(parts) <= plan.goal.usd * (1 + ROUNDING), f"{what}: above the ceiling"
        assert 0 <= plan.gap < math.inf, what
        for other in plans:
            assert better(plan, other) <= plan.gap + ROUNDING, f"{what}: beaten by the plan for {other.goal}"
