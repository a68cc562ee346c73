"""The engine's interface: its catalog, the requests that it refuses, and the proposals that need a confirmation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tradewind
from tests.sky.world import write_world
from tradewind.errors import SkyFileError, UsageError
from tradewind.model.goal import Deadline, Fastest, MinThroughput
from tradewind.model.sites import CONFIRM_ABOVE_USD


@pytest.fixture
def engine(tmp_path: Path) -> tradewind.Engine:
    return tradewind.Engine(state_dir=str(tmp_path / "state"), gateway="/no/gateway")


def test_plans_use_the_catalog_of_the_state_folder(engine: tradewind.Engine, tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("src,dst,gbps\naws:us-east-1,aws:us-east-2,0.25\n")
    engine.catalog.import_table(table)
    ends = "aws:us-east-1", "aws:us-east-2"
    plan = engine.plan(*ends, volume_gb=1.0, max_vms=1, vm_types=["m5.xlarge"], goal="cheapest")
    link = plan.transfer.catalog.grid.link(plan.overlay.source, plan.overlay.destination)
    assert link is not None and link.gbps == 0.25
    frontier = engine.frontier(*ends, volume_gb=1.0, max_vms=1, vm_types=["m5.xlarge"])
    assert frontier.transfer.catalog.grid.link(plan.overlay.source, plan.overlay.destination) == link


def test_an_import_is_dated_and_not_in_the_future(engine: tradewind.Engine, tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("src,dst,gbps\naws:us-east-1,aws:us-east-2,0.25\n")
    with pytest.raises(UsageError, match="is not a date"):
        engine.catalog.import_table(table, date="yesterday")
    with pytest.raises(UsageError, match="is in the future"):
        engine.catalog.import_table(table, date="2999-01-01")
    assert engine.catalog.table_names() == []


@pytest.mark.parametrize(
    ("figures", "because"),
    [
        ({"connections": 0}, "1 to 64 connections, not 0"),
        ({"connections": 65}, "1 to 64 connections, not 65"),
        ({"warm_up_s": 61.0}, "at most 60 s"),
        ({"measure_s": 0.0}, "at most 60 s"),
    ],
)
def test_a_probe_has_a_range(engine: tradewind.Engine, tmp_path: Path, figures: dict[str, float], because: str) -> None:
    with pytest.raises(UsageError, match=because):
        engine.measure(str(write_world(tmp_path)), **figures)  # type: ignore[arg-type]


def test_a_measurement_has_a_price_before_anything_starts(engine: tradewind.Engine, tmp_path: Path) -> None:
    measurement = engine.measure(str(write_world(tmp_path)))
    assert len(measurement.regions) == 3 and measurement.measured == []
    assert 0 < measurement.quote.usd < measurement.quote.usd_most
    assert measurement.needs_confirmation == (measurement.quote.usd_most > CONFIRM_ABOVE_USD)
    assert not engine.measure(str(write_world(tmp_path)), max_cost_usd=100.0).needs_confirmation
    with pytest.raises(UsageError, match="the sky has no aws:us-east-1"):
        engine.measure(str(write_world(tmp_path)), ["aws:us-east-1"])
    with pytest.raises(SkyFileError):
        engine.measure(str(tmp_path / "no-such-file.json"))


def topology(folder: Path, usd_per_gb: float) -> str:
    nodes = {"a": {"role": "source"}, "b": {"role": "sink"}}
    routes = [{"nodes": ["a", "b"], "share": 1, "usd_per_gb": usd_per_gb}]
    path = folder / "topology.json"
    path.write_text(json.dumps({"gateways": nodes, "routes": routes}))
    return str(path)


@pytest.mark.parametrize(
    ("usd_per_gb", "options", "ceiling_usd", "needed"),
    [
        (0.02, {}, None, True),
        (0.0, {}, None, False),
        (0.02, {}, 5.0, False),
        (0.02, {"dry_run": True}, None, False),
    ],
)
def test_a_proposal_that_spends_without_a_ceiling_needs_a_confirmation(
    engine: tradewind.Engine,
    tmp_path: Path,
    usd_per_gb: float,
    options: dict[str, bool],
    ceiling_usd: float | None,
    needed: bool,
) -> None:
    made = tradewind.Options(**options)  # type: ignore[arg-type]
    file = topology(tmp_path, usd_per_gb)
    request = tradewind.Request("/a", "/b", made, topology=file, ceiling_usd=ceiling_usd)
    assert engine.propose(request).needs_confirmation == needed
    assert not engine.propose(tradewind.Request("/a", "/b", made)).needs_confirmation


@pytest.mark.parametrize(
    ("settings", "because"),
    [
        ({"via": "local", "sky": "world.json"}, "--sky needs --via sky"),
        ({"replan": True}, "--replan needs --via fleet or sky"),
        ({"compression_ratio": 0.5}, "--compression-ratio needs --via fleet or sky"),
        ({"compression_ratio": 0.5, "sky": "world.json"}, "--compression-ratio needs --compress"),
        ({"compression_ratio": 1.5, "sky": "world.json"}, "at most 1"),
        (
            {
                "compression_ratio": 0.5,
                "sky": "world.json",
                "options": tradewind.Options(compress=True),
                "ceiling_usd": 1.0,
            },
            "--compression-ratio and --max-cost cannot be combined",
        ),
        ({"topology": "t.json", "goal": MinThroughput(1.0)}, "--min-throughput and --topology cannot be combined"),
        ({"topology": "t.json", "goal": Fastest()}, "a goal and --topology cannot be combined"),
        ({"topology": "t.json", "machines_per_region": 2}, "--max-vms and --topology cannot be combined"),
        ({"topology": "t.json", "tier": "best"}, "--tier and --topology cannot be combined"),
        ({"tier": "cheap"}, "premium, standard or best, not 'cheap'"),
        ({"sky": "world.json", "tier": "best"}, "--tier and --sky cannot be combined"),
        ({"destination": ("/b", "/c"), "goal": Deadline(60.0)}, "--deadline plans for one destination"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(settings: dict[str, Any], because: str) -> None:
    with pytest.raises(UsageError, match=because):
        tradewind.Request(**{"source": "/a", "destination": "/b", **settings})


def test_a_ceiling_can_be_combined_with_a_topology_and_several_destinations() -> None:
    tradewind.Request("/a", ["/b", "/c"], topology="t.json", ceiling_usd=1.0)
    assert tradewind.Request("/a", "/b", sky="world.json", replan=True, goal=Fastest()).moved_by == "sky"
