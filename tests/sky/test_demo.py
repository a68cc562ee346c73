"""The demo in a sky: two transfers side by side, a relay killed, both copies compared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.sky import unavailable
from tradewind.catalog.load import load_catalog
from tradewind.engine.demonstration import REGIONS, SCALE
from tradewind.fleet.sky_catalog import sky_catalog
from tradewind.fleet.sky_world import sky_world
from tradewind.model.region import Region
from tradewind.sky.file import network_from_document
from tradewind.sky.running import find_emulator


def test_the_demo_races_an_overlay_against_the_direct_path(tmp_path: Path) -> None:
    if reason := unavailable():
        pytest.skip(reason)
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(3):
        (tree / f"large-{number}").write_bytes(os.urandom(9_000_000))
    for number in range(200):
        (tree / f"small-{number}").write_bytes(os.urandom(20_000))
    command = Command(tmp_path / "home")
    command.environment["TRADEWIND_WAN"] = find_emulator()
    done = command.run("demo", "--tree", tree, "--size", "60MB").expect(0)
    assert [line[0] for line in done.stderr.splitlines() if line[:1].isdigit()] == ["1", "2", "3", "4", "5"]
    assert "all 203 files are identical in both copies" in done.stderr
    assert "overlay: route azure-canadacentral-1 → azure-japaneast-1 → gcp-asia-northeast1-1 is down" in done.stderr
    command.wait_until_alone()


def test_a_sky_of_a_catalog_has_its_figures_scaled(tmp_path: Path) -> None:
    catalog = load_catalog()
    there = sky_catalog(network_from_document(sky_world(catalog, list(REGIONS), SCALE), tmp_path), catalog)
    for src in REGIONS:
        for dst in REGIONS:
            if src == dst:
                continue
            known, seen = catalog.grid.link(src, dst), there.grid.link(src, dst)
            assert known is not None and seen is not None and known.rtt_ms is not None
            assert seen.gbps == pytest.approx(known.gbps * SCALE, rel=1e-5)
            assert seen.rtt_ms == pytest.approx(known.rtt_ms, abs=0.01)
    egress_gbps = {region: there.machine_offers(region)[0].machine.egress_gbps for region in REGIONS}
    assert egress_gbps[Region.parse("gcp:asia-northeast1")] == pytest.approx(7 * SCALE)
    assert egress_gbps[Region.parse("azure:westus2")] == pytest.approx(16 * SCALE)
