"""`tradewind plan --tier`, and the same in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tradewind
from tests.planner.test_network_tiers import SINK, SOURCE, tiered_world
from tradewind.cli.main import main
from tradewind.errors import UsageError

ENDS = ("gcp:europe-west4", "azure:eastus")


def test_the_standard_tier_of_the_packaged_catalog_is_cheaper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    usd = {}
    for tier in ("premium", "standard"):
        words = ["--volume", "10GB", "--cheapest", "--max-vms", "1", "--tier", tier, "--json"]
        assert main(["plan", *ENDS, *words]) == 0
        plan = json.loads(capsys.readouterr().out)
        usd[tier] = plan["cost_usd"]["egress"]
        assert {machines["network_tier"] for machines in plan["machines"]} == {tier}
    assert 0 < usd["standard"] < usd["premium"]


def test_the_explanation_has_tier_price_and_rate_with_their_origins() -> None:
    catalog = tiered_world(0)
    plan = tradewind.plan(str(SOURCE), str(SINK), volume_gb=40, goal="cheapest", tier="standard", catalog=catalog)
    lines = plan.explain().splitlines()
    told = lines[lines.index("  network tiers") + 1 :]
    edge = next(edge for edge in plan.edges if edge.src.provider != edge.dst.provider)
    at = told.index(f"    {edge.src} → {edge.dst}: standard (standard)")
    known = catalog.with_standard_tier(plan.overlay.standard_at)
    price = known.egress(edge.src, edge.dst)
    assert price is not None
    assert told[at + 1] == f"      price {edge.usd_per_gb:.3g} USD/GB: {price.origin}"
    assert told[at + 2].endswith(f"per machine pair: {known.grid.links[edge.src, edge.dst].origin}")
    assert any(line.endswith("each, standard network tier") for line in repr(plan).splitlines())


def test_premium_alone_is_not_explained() -> None:
    plan = tradewind.plan(str(SOURCE), str(SINK), volume_gb=40, goal="cheapest", catalog=tiered_world(0))
    assert "network tier" not in plan.explain() + repr(plan)


def test_the_best_tier_costs_no_more_than_either() -> None:
    catalog = tiered_world(3)
    best, premium, standard = (
        tradewind.plan(str(SOURCE), str(SINK), volume_gb=40, goal="cheapest", max_vms=1, tier=tier, catalog=catalog)
        for tier in ("best", "premium", "standard")
    )
    assert best.cost.total_usd <= min(premium.cost.total_usd, standard.cost.total_usd) * (1 + 1e-6)


def test_an_unknown_tier_is_refused() -> None:
    with pytest.raises(UsageError, match="premium, standard or best, not 'cheap'"):
        tradewind.plan(str(SOURCE), str(SINK), volume_gb=40, tier="cheap", catalog=tiered_world(0))  # type: ignore[call-overload]
