"""Explanations of what limits a plan and what would help."""

from __future__ import annotations

import pytest

from tests.planner.worlds import random_world
from tests.render.small_world import TOKYO, TORONTO, small_world
from tradewind.errors import InfeasibleGoal, TradewindError
from tradewind.model.goal import Cheapest, Deadline, Fastest, Goal, MaxCost, MinThroughput
from tradewind.model.overlay import UnicastOverlay
from tradewind.model.region import Region
from tradewind.model.units import format_usd
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import Transfer, prepare, solve_overlay
from tradewind.planner.whatif import find_improvements


def transfer_with(machines: int) -> Transfer:
    return prepare(small_world(), TORONTO, TOKYO, 50.0, PlanningLimits(machines_per_region=machines))


def planned(goal: Goal, machines: int = 1) -> tuple[Transfer, UnicastOverlay]:
    transfer = transfer_with(machines)
    return transfer, solve_overlay(transfer, goal)


def test_a_full_region_is_named_with_its_volume_and_limit() -> None:
    _, plan = planned(Fastest())
    said = " | ".join(plan.binding)
    assert "1 machine uses all its 64 connections, and no more than 1 is allowed there" in said
    _, plan = planned(Fastest(), machines=2)
    assert "2 machines use all their 128 connections, and no more than 2 are allowed there" in " | ".join(plan.binding)


def test_a_goal_that_binds_comes_first() -> None:
    transfer, cheapest = planned(Cheapest())
    ceiling_usd = cheapest.cost.total_usd * 1.05
    assert solve_overlay(transfer, MaxCost(ceiling_usd)).binding[0] == f"the cost ceiling of ${ceiling_usd:.2f}"
    assert solve_overlay(transfer, MinThroughput(6.0)).binding[0] == "the requested rate of 6 Gbit/s"


def test_a_deadline_binds_if_the_plan_needs_all_of_it() -> None:
    transfer, cheapest = planned(Cheapest())
    assert solve_overlay(transfer, Deadline(cheapest.time_s * 0.9)).binding[0].startswith("the deadline of ")
    early = solve_overlay(transfer, Deadline(cheapest.time_s * 10))
    assert not any("deadline" in phrase for phrase in early.binding)


def test_an_offer_is_correct_and_states_its_gain() -> None:
    transfer, plan = planned(Fastest())
    offers = {offer.change: offer for offer in find_improvements(transfer, plan)}
    everywhere = offers["one more machine in every region (--max-vms)"]
    better = solve_overlay(transfer_with(2), Fastest())
    assert everywhere.plan.throughput_gbps == pytest.approx(better.throughput_gbps)
    assert "(+100%)" in everywhere.gain
    assert "10% more money" not in offers  # the fastest plan ignores cost


def test_money_buys_rate_under_a_ceiling() -> None:
    transfer, cheapest = planned(Cheapest())
    plan = solve_overlay(transfer, MaxCost(cheapest.cost.total_usd * 1.05))
    offer = next(o for o in find_improvements(transfer, plan) if o.change == "10% more money")
    assert offer.plan.cost.total_usd <= plan.cost.total_usd * 1.1 * (1 + 1e-9)
    assert offer.plan.throughput_gbps > plan.throughput_gbps
    assert f"(+{format_usd(offer.plan.cost.total_usd - plan.cost.total_usd)})" in offer.gain


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("goal", [MinThroughput(1e4), MaxCost(1e-3), Deadline(41.0)], ids=str)
def test_the_goal_of_the_nearest_plan_is_feasible(goal: Goal, seed: int) -> None:
    transfer = prepare(random_world(seed, 5, boot_s=40.0), Region("p", "r0"), Region("q", "r1"), 40.0)
    with pytest.raises(InfeasibleGoal) as refused:
        solve_overlay(transfer, goal)
    assert refused.value.nearest is not None
    again = solve_overlay(transfer, refused.value.nearest.goal)
    assert again.throughput_gbps == pytest.approx(refused.value.nearest.throughput_gbps, rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_goal_in_the_message_is_feasible(seed: int) -> None:
    transfer = prepare(random_world(seed, 5, boot_s=40.0), Region("p", "r0"), Region("q", "r1"), 40.0)
    with pytest.raises(TradewindError) as fast:
        solve_overlay(transfer, MinThroughput(1e4))
    gbps = float(str(fast.value.hint).split("at most ")[1].split("Gbit/s")[0])
    assert solve_overlay(transfer, MinThroughput(gbps)).throughput_gbps >= gbps * (1 - 1e-9)
    with pytest.raises(TradewindError) as cheap:
        solve_overlay(transfer, MaxCost(1e-3))
    usd = float(str(cheap.value.hint).split("ceiling to ")[1].removesuffix("USD"))
    assert solve_overlay(transfer, MaxCost(usd)).cost.total_usd <= usd
    with pytest.raises(TradewindError) as soon:
        solve_overlay(transfer, Deadline(1.0))
    seconds = float(str(soon.value.hint).split("allow ")[1].split("s,")[0])
    assert solve_overlay(transfer, Deadline(seconds)).time_s <= seconds * (1 + 1e-9)
