"""Several destinations: every loop counts its work, and an answer at the limit is valid and states its gap."""

from __future__ import annotations

import random
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.planner.brute_force_trees import TreeWorld, cheapest_usd, fastest_gbps
from tests.planner.worlds import MADE, offer, random_world
from tradewind.catalog.load import load_catalog
from tradewind.catalog.problem import read_problem
from tradewind.errors import SolverLimitReached
from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.goal import Cheapest, Fastest, Goal, MaxCost, MinThroughput, Soonest
from tradewind.model.overlay import MulticastOverlay
from tradewind.model.price import EgressPrice, PriceBook, PriceTier
from tradewind.model.region import Region, parse_region
from tradewind.planner import best, linear, steiner, tree_columns
from tradewind.planner.budget import WORK_PER_CPU_S
from tradewind.planner.check import multicast_violations
from tradewind.planner.linear import SolverSettings, WorkBudget
from tradewind.planner.milp import end_children
from tradewind.planner.multicast import prepare_multicast, solve_multicast
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import Transfer

RUNAWAY = Path(__file__).parents[3] / "shared" / "grid" / "cloudcast" / "runaway.json"
PATIENT_S = 3600.0
"""A time limit so long that only the work limit ends a solve."""
TIERED = (
    "gcp:us-west2 gcp:asia-southeast2 aws:ap-southeast-4 azure:westus gcp:us-east4 azure:canadaeast "
    "aws:ap-northeast-3 aws:af-south-1 aws:eu-west-1"
)
"""Regions of three providers whose egress has price tiers. The first is the source."""
REACH = {"p": (5.0, 0.02, 0.09, 10, 20), "q": (7.0, 0.05, 0.12, 14, 32), "r": (16.0, 0.02, 0.0875, 32, 32)}
"""By provider: fastest link, price inside and outside, egress and ingress cap of a machine."""


def clouds(seed: int, count: int) -> tuple[Catalog, list[Region]]:
    """Return three providers with links between all regions, one machine type each, and many equal prices."""
    rng = random.Random(seed)
    regions = [Region("pqr"[i % 3], f"r{i}") for i in range(count)]
    links, prices = {}, {}
    for src in regions:
        top_gbps, inside, outside, *_ = REACH[src.provider]
        for dst in regions:
            if src != dst:
                links[src, dst] = Link(round(rng.uniform(0.1, 1.0) * top_gbps, 2), MADE)
                usd_per_gb = inside if src.provider == dst.provider else outside
                prices[src, dst] = EgressPrice((PriceTier(0.0, usd_per_gb),), MADE)
    offers = {p: (offer(p, egress, ingress, 1.08, 0.0),) for p, (*_, egress, ingress) in REACH.items()}
    return Catalog({}, PriceBook(prices), Grid(links), offers), regions


def cpu_s() -> float:
    """Return the CPU time of this process and of all children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class Work:
    """Counts the work of a problem independently of its meter: searches for trees, and simplex iterations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trees = 0
        self.trees_max = 5000
        self.meters: list[WorkBudget] = []
        search, with_new_budget = steiner.cheapest_tree, SolverSettings.with_new_budget

        def counted(*args: Any) -> Any:
            self.trees += 1
            assert self.trees <= self.trees_max, "the planner exceeded its limit"
            return search(*args)

        def noted(settings: SolverSettings, *part: float) -> SolverSettings:
            fresh = with_new_budget(settings, *part)
            self.meters.append(fresh.budget)
            return fresh

        monkeypatch.setattr(steiner, "cheapest_tree", counted)
        monkeypatch.setattr(tree_columns, "cheapest_tree", counted)
        monkeypatch.setattr(SolverSettings, "with_new_budget", noted)

    def done(self) -> float:
        return sum(budget.done for budget in self.meters)


def checked(transfer: Transfer, goal: Goal) -> MulticastOverlay:
    plan = solve_multicast(transfer, goal)
    assert multicast_violations(plan, transfer.catalog, transfer.limits) == []
    assert plan.gap >= 0.0
    assert not plan.optimal or plan.gap <= 2e-6
    return plan


def test_six_destinations_at_full_speed_need_a_bounded_number_of_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, regions = clouds(2, 16)
    transfer = prepare_multicast(catalog, regions[0], regions[1:7], 300.0, PlanningLimits(machines_per_region=1))
    settings = SolverSettings(time_limit_s=PATIENT_S, windows_max=6, work_max=linear.WORK_MAX)
    work = Work(monkeypatch)
    work.trees_max = 700
    plan = checked(replace(transfer, settings=settings), Fastest())
    assert plan.throughput_gbps > 0.0
    assert work.trees > 0
    assert work.done() <= 1.5 * linear.WORK_MAX


@pytest.mark.skipif(not RUNAWAY.is_file(), reason="needs the measured grid in ../shared/grid")
def test_a_formerly_endless_problem_is_answered_within_its_work_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = read_problem(RUNAWAY)
    limits = PlanningLimits(machines_per_region=problem.machines_per_region)
    transfer = prepare_multicast(problem.catalog, problem.source, problem.destinations, problem.volume_gb, limits)
    settings = replace(transfer.settings, time_limit_s=PATIENT_S)
    work = Work(monkeypatch)
    work.trees_max = 1500
    checked(replace(transfer, settings=settings), problem.goal)
    assert work.done() <= 1.2 * settings.work_max


@pytest.mark.slow
def test_eight_destinations_over_price_tiers_need_bounded_cpu_time() -> None:
    """Each price tier is solved separately, and searches used to be counted as a tenth of their work."""
    source, *sinks = map(parse_region, TIERED.split())
    transfer = prepare_multicast(load_catalog(), source, sinks, 20_000.0, PlanningLimits())
    settings = replace(transfer.settings, work_max=60_000.0, time_limit_s=4.0)
    end_children()
    before = cpu_s()
    checked(replace(transfer, settings=settings), Cheapest())
    end_children()
    expected_s = (1 + best.TIER_WORK_SEVERAL) * settings.work_max / WORK_PER_CPU_S
    assert cpu_s() - before <= 5 * expected_s


@pytest.mark.parametrize("seed", range(12))
def test_no_problem_exceeds_its_work_limit(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds up to one solve, whose work is only known at its end."""
    rng = random.Random(seed)
    catalog, regions = clouds(seed, rng.randint(6, 10))
    sinks = regions[1 : 1 + rng.randint(2, 5)]
    transfer = prepare_multicast(
        catalog, regions[0], sinks, 50.0, PlanningLimits(machines_per_region=rng.randint(1, 3))
    )
    work_max = rng.choice([500.0, 2000.0, 8000.0])
    transfer = replace(transfer, settings=SolverSettings(PATIENT_S, windows_max=6, work_max=work_max))
    goals: list[Goal] = [Fastest(), Cheapest(), Soonest(), MinThroughput(1.0), MaxCost(50.0)]
    goal = rng.choice(goals)
    work = Work(monkeypatch)
    try:
        checked(transfer, goal)
    except SolverLimitReached as error:
        assert "units of work" in str(error), "no time limit ended it"
    assert work.meters
    for budget in work.meters:
        assert budget.done <= budget.work_max + 20_000, "more than one solve beyond the limit"
    assert work.trees <= 2 * work_max


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("work_max", [300.0, 1000.0, 3000.0])
def test_an_answer_at_the_work_limit_states_its_gap(seed: int, work_max: float) -> None:
    source, sinks = Region("p", "r0"), (Region("q", "r1"), Region("p", "r2"))
    catalog = random_world(2 * seed, 5)
    world = TreeWorld(catalog, source, sinks, 40.0, 1)
    transfer = prepare_multicast(catalog, source, sinks, 40.0, PlanningLimits(machines_per_region=1))
    transfer = replace(transfer, settings=SolverSettings(PATIENT_S, windows_max=6, work_max=work_max))
    top_gbps = fastest_gbps(world)
    fast = checked(transfer, Fastest())
    assert fast.throughput_gbps <= top_gbps * (1 + 1e-6)
    assert top_gbps <= fast.throughput_gbps * (1 + fast.gap) * (1 + 2e-6)
    try:
        cheap = checked(transfer, MinThroughput(0.7 * top_gbps))
    except SolverLimitReached:
        return
    best_usd = cheapest_usd(world, 0.7 * top_gbps)
    assert best_usd <= cheap.cost.total_usd * (1 + 1e-6)
    assert cheap.cost.total_usd * (1 - cheap.gap) <= best_usd * (1 + 1e-6)
