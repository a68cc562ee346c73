"""Quotas, stores, compression and price tiers: each limit affects the plan, and the check verifies it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.planner.worlds import MADE, offer
from tradewind.cli.main import main
from tradewind.engine.launch_spec import plan_prices
from tradewind.engine.topology import read_topology
from tradewind.errors import InfeasibleGoal
from tradewind.model.catalog import Catalog, Grid, Link
from tradewind.model.goal import Cheapest, Fastest, MinThroughput
from tradewind.model.machine import StoreLimits
from tradewind.model.price import EgressPrice, PriceBook, PriceTier
from tradewind.model.region import Region
from tradewind.planner.gateways import assign_gateways
from tradewind.planner.network import PlanningLimits
from tradewind.planner.plan import prepare, solve_overlay

SOURCE, SINK = Region("p", "source"), Region("q", "sink")
TIERS = (PriceTier(0.0, 0.09), PriceTier(10_000.0, 0.05))


def world() -> Catalog:
    """Return a link of 8 Gbit/s with two price tiers, large machines, and small ones with the same caps at a third of
    the price.
    """
    large, small = offer("p", 10.0, 10.0, 1.5, 0.0), offer("p", 10.0, 10.0, 0.5, 0.0)
    small = replace(small, machine=replace(small.machine, name="p-small"))
    price = EgressPrice(TIERS, MADE)
    offers = {"p": (large, small), "q": (offer("q", 10.0, 10.0, 1.0, 0.0),)}
    return Catalog({}, PriceBook({(SOURCE, SINK): price}), Grid({(SOURCE, SINK): Link(8.0, MADE)}), offers)


def test_the_cheaper_machine_of_equal_caps_is_chosen() -> None:
    plan = solve_overlay(prepare(world(), SOURCE, SINK, 100.0), Cheapest())
    assert {m.offer.machine.name for m in plan.machines if m.region == SOURCE} == {"p-small"}
    alone = prepare(world(), SOURCE, SINK, 100.0, PlanningLimits(machine_types={"p-10", "q-10"}))
    assert solve_overlay(alone, Cheapest()).cost.machines_usd > plan.cost.machines_usd


def test_a_quota_of_the_account_limits_machines() -> None:
    free = solve_overlay(prepare(world(), SOURCE, SINK, 100.0), Fastest())
    held = solve_overlay(prepare(replace(world(), quotas={SINK: 3}), SOURCE, SINK, 100.0), Fastest())
    assert free.machine_counts[SINK] == 8
    assert held.machine_counts[SINK] == 3
    assert held.throughput_gbps == pytest.approx(24.0)
    assert any("q:sink: 3 machines" in words and "the account's quota there is 3" in words for words in held.binding)
    assert not any("quota" in words for words in free.binding)


def test_object_stores_limit_rates_and_bill_requests() -> None:
    stores = {
        "p": StoreLimits("p", 2.0, 9.0, 0.0004, 0.005, MADE),
        "q": StoreLimits("q", 9.0, 1.5, 0.0004, 0.005, MADE),
    }
    transfer = prepare(replace(world(), stores=stores), SOURCE, SINK, 160.0, PlanningLimits(machines_per_region=2))
    plan = solve_overlay(transfer, Fastest())
    assert plan.throughput_gbps == pytest.approx(3.0)
    assert any("object-store write rate at q:sink" in phrase for phrase in plan.binding)
    assert plan.cost.requests_usd == pytest.approx((9_537 * (0.0004 + 0.005) + 10 * 0.005) / 1000), "16 MiB each"
    with pytest.raises(InfeasibleGoal, match="object-store write rate"):
        solve_overlay(transfer, MinThroughput(4.0))
    without = prepare(
        replace(world(), stores=stores), SOURCE, SINK, 160.0, PlanningLimits(machines_per_region=2, store_limits=False)
    )
    assert solve_overlay(without, Fastest()).throughput_gbps == pytest.approx(16.0)


def test_egress_is_billed_on_sent_bytes() -> None:
    plain = solve_overlay(prepare(world(), SOURCE, SINK, 100.0), Fastest())
    packed = solve_overlay(prepare(world(), SOURCE, SINK, 100.0, PlanningLimits(compression_ratio=0.5)), Fastest())
    assert packed.cost.egress_usd == pytest.approx(plain.cost.egress_usd / 2)
    assert packed.throughput_gbps == pytest.approx(2 * plain.throughput_gbps), (
        "links carry sent bytes, rates count data"
    )
    prices = [plan_prices(assign_gateways(plan), None).routes for plan in (plain, packed)]
    assert prices[0] == prices[1], "a transfer pays for each GB sent, whatever the plan expects"
    dearest = [max(route.usd_per_gb for route in assign_gateways(plan).routes) for plan in (plain, packed)]
    assert dearest[0] == pytest.approx(dearest[1])


@pytest.mark.parametrize(("used_gb", "usd"), [(0.0, 9.0), (9_950.0, 50 * 0.09 + 50 * 0.05), (20_000.0, 5.0)])
def test_tiers_start_from_the_volume_sent_this_month(used_gb: float, usd: float) -> None:
    plan = solve_overlay(
        prepare(world(), SOURCE, SINK, 100.0, PlanningLimits(monthly_egress_used_gb=used_gb)), Fastest()
    )
    assert plan.cost.egress_usd == pytest.approx(usd)


def plan_json(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, dict[str, float]]:
    regions = ["aws:us-east-1", "gcp:europe-west4"]
    assert main(["plan", *regions, "--volume", "100GB", "--max-vms", "1", "--cheapest", *options, "--json"]) == 0
    document: dict[str, dict[str, float]] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.slow
def test_the_command_accepts_compression_and_egress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    plain = plan_json(capsys)["cost_usd"]["egress"]
    assert plan_json(capsys, "--compression-ratio", "0.5")["cost_usd"]["egress"] == pytest.approx(plain / 2)
    assert plan_json(capsys, "--egress-used", "200TB")["cost_usd"]["egress"] < 0.7 * plain
    for options, words in (
        (["--compression-ratio", "1.5"], "at most 1"),
        (["--egress-used", "12"], "a number and a unit"),
    ):
        assert main(["plan", "aws:us-east-1", "gcp:europe-west4", *options]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.slow
def test_a_plan_is_written_as_a_topology(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "topology.json"
    document = plan_json(capsys, "--topology", str(path))
    plan = read_topology(str(path)).plan
    machines = [gateway for gateway in plan.gateways if gateway.name != plan.lead]
    assert len(machines) == sum(document["vms"].values())
    assert {gateway.region for gateway in machines} == set(document["vms"])
    assert main(["plan", "aws:us-east-1", "gcp:europe-west4", "--topology", str(tmp_path / "no" / "file")]) == 2
    assert "No such file" in capsys.readouterr().err


def relayed_world() -> Catalog:
    """Return a slow direct link, and a faster one over a relay."""
    relay = Region("r", "relay")
    links = {(SOURCE, SINK): 1.0, (SOURCE, relay): 8.0, (relay, SINK): 8.0}
    price = EgressPrice(TIERS, MADE)
    offers = {provider: (offer(provider, 10.0, 10.0, 1.0, 0.0),) for provider in "pqr"}
    grid = Grid({ends: Link(gbps, MADE) for ends, gbps in links.items()})
    return Catalog({}, PriceBook(dict.fromkeys(links, price)), grid, offers)


def test_no_plan_uses_what_is_closed() -> None:
    relay = Region("r", "relay")

    def rate_gbps(**closed: object) -> float:
        limits = PlanningLimits(machines_per_region=1, **closed)  # type: ignore[arg-type]
        return solve_overlay(prepare(relayed_world(), SOURCE, SINK, 100.0, limits), Fastest()).throughput_gbps

    assert rate_gbps() == pytest.approx(8.0)
    assert rate_gbps(closed_regions=[relay]) == pytest.approx(1.0)
    assert rate_gbps(closed_links=[(relay, SINK)]) == pytest.approx(1.0)
    assert rate_gbps(closed_links=[(SOURCE, SINK)]) == pytest.approx(8.0)
    with pytest.raises(InfeasibleGoal):
        rate_gbps(closed_regions=[relay], closed_links=[(SOURCE, SINK)])
