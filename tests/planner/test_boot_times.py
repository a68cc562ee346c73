"""A plan waits for, and pays, the start of the slowest machine that it uses, independent of other offers."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.planner.worlds import random_world
from tradewind.catalog.load import load_catalog
from tradewind.errors import InfeasibleGoal
from tradewind.model.catalog import Catalog
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.overlay import UnicastOverlay
from tradewind.model.region import Region, parse_region
from tradewind.planner.check import violations
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import prepare, solve_overlay, trace_transfer

SOURCE, SINK = Region("p", "r0"), Region("p", "r2")
VOLUME_GB = 4.0


def world(seed: int) -> Catalog:
    """Return a catalog of five regions of two providers, with two machine types each and different boot times."""
    rng = random.Random(seed)
    catalog = random_world(seed, 5, types=2)
    slow = {
        provider: tuple(
            replace(o, machine=replace(o.machine, name=f"{o.machine.name}-{n}", boot_s=rng.choice([5.0, 20.0, 90.0])))
            for n, o in enumerate(offers)
        )
        for provider, offers in catalog.offers.items()
    }
    return replace(catalog, offers=slow)


def planned(catalog: Catalog, goal: Goal) -> UnicastOverlay:
    limits = PlanningLimits(machines_per_region=2)
    plan = solve_overlay(prepare(catalog, SOURCE, SINK, VOLUME_GB, limits), goal)
    assert violations(plan, catalog, limits) == []
    assert plan.boot_s == max(m.offer.machine.boot_s for m in plan.machines)
    return plan


def restricted(catalog: Catalog, boot_s: float) -> Catalog:
    """Return the catalog with only the machines that start within ``boot_s``, with ``boot_s`` as their boot time."""
    kept = {
        provider: tuple(
            replace(o, machine=replace(o.machine, boot_s=boot_s)) for o in offers if o.machine.boot_s <= boot_s
        )
        for provider, offers in catalog.offers.items()
    }
    return replace(catalog, offers=kept)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_no_choice_of_boot_time_is_better(seed: int) -> None:
    catalog = world(seed)
    goals: list[Goal] = [Cheapest(), MinThroughput(1.0), Deadline(120.0), Soonest()]
    for goal in goals:
        others = []
        for boot_s in (5.0, 20.0, 90.0):
            if all(any(o.machine.boot_s <= boot_s for o in catalog.machine_offers(end)) for end in (SOURCE, SINK)):
                try:
                    others.append(planned(restricted(catalog, boot_s), goal))
                except InfeasibleGoal:
                    continue
        if not others:
            continue
        plan = planned(catalog, goal)
        if isinstance(goal, Soonest):
            assert plan.time_s <= min(o.time_s for o in others) * 1.02 + 2.0
        else:
            least = min(other.cost.total_usd for other in others)
            assert plan.cost.total_usd <= least * (1 + 1e-6)
            assert plan.cost.total_usd * (1 - plan.gap) <= least * (1 + 1e-6)
    cheapest = planned(catalog, Cheapest())
    ceiling = planned(catalog, MaxCost(cheapest.cost.total_usd * 1.5))
    assert ceiling.cost.total_usd <= cheapest.cost.total_usd * 1.5 * (1 + 1e-9)
    assert ceiling.throughput_gbps <= planned(catalog, Fastest()).throughput_gbps * (1 + 1e-6)


def test_a_plan_without_azure_does_not_wait_for_azure() -> None:
    ends = parse_region("aws:us-east-1"), parse_region("aws:us-west-2")
    plan = solve_overlay(prepare(load_catalog(), *ends, 10.0), Cheapest())
    assert {m.region.provider for m in plan.machines} == {"aws"}
    assert plan.boot_s == 50.0, "the machines of the catalog's slowest provider take 70 s"
    usd_per_s = sum(m.count * m.offer.usd_per_s for m in plan.machines)
    assert plan.cost.machines_usd == pytest.approx(usd_per_s * (50.0 + plan.transfer_s))


@pytest.mark.slow
def test_the_check_refuses_another_boot_time() -> None:
    ends = parse_region("aws:us-east-1"), parse_region("aws:us-west-2")
    catalog = load_catalog()
    plan = solve_overlay(prepare(catalog, *ends, 10.0), Cheapest())
    usd_per_s = sum(m.count * m.offer.usd_per_s for m in plan.machines)
    cost = replace(plan.cost, machines_usd=usd_per_s * (20.0 + plan.transfer_s))
    wrong = violations(replace(plan, boot_s=20.0, cost=cost), catalog, PlanningLimits())
    assert wrong == ["waits 20.0 s for machines to start, the slowest takes 50.0 s"]
    given = solve_overlay(prepare(catalog, *ends, 10.0, boot_s=20.0), Cheapest())
    assert given.boot_s == 20.0
    assert violations(given, catalog, PlanningLimits(), boot_s=20.0) == []


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 2, 3))])
def test_the_frontier_charges_each_set_of_machines_its_own_start(seed: int) -> None:
    catalog = world(seed)
    frontier = trace_transfer(prepare(catalog, SOURCE, SINK, VOLUME_GB, PlanningLimits(machines_per_region=2)))
    ends = frontier.segments[0].rate_from_gbps, frontier.segments[-1].rate_to_gbps
    for part in (0.02, 0.4, 0.8):
        rate = ends[0] + part * (ends[1] - ends[0])
        least_usd = planned(catalog, MinThroughput(rate)).cost.total_usd
        assert frontier.cost_usd(rate) >= least_usd * (1 - 1e-6), "no plan costs that little"
        gap = next(s.gap for s in frontier.segments if rate <= s.rate_to_gbps)
        assert frontier.cost_usd(rate) * (1 - gap) <= least_usd * (1 + 1e-6), "a plan beats a proven piece"
