"""`cp --via sky`: planned, run by gateways in the machines of a sky, and compared with the plan."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.drive import Command
from testbed.sky import valid
from tests.sky.world import OPTIONS, RELAY, SINK, SOURCE, differences, write_files, write_world
from tradewind.catalog.load import load_catalog
from tradewind.engine.provisioning import pace_bytes_per_s, plan_gateways
from tradewind.engine.topology import topology_document, topology_from_document
from tradewind.fleet.sky_catalog import data_per_wire, sky_catalog
from tradewind.model.goal import MaxCost
from tradewind.model.origin import Origin
from tradewind.model.price import EgressPrice, EgressRule, PriceTier
from tradewind.model.region import Region
from tradewind.planner.network import PlanningLimits
from tradewind.sky.file import read_sky_file
from tradewind.sky.folders import sky_folder
from tradewind.sky.running import Sky

VOLUME_BYTES = 120_000_000


@pytest.fixture
def sky(command: Command, tmp_path: Path) -> Iterator[tuple[Sky, Path]]:
    """The sky that `command` finds for the file beside it."""
    file = write_world(tmp_path)
    with Sky.up(file, folder=sky_folder(str(command.state), file)) as running:
        yield running, file


def carried_bytes(events: list[dict[str, Any]]) -> dict[str, int]:
    """Return the bytes that each route carried, by its stations."""
    return {hop["name"]: hop["bytes"] for hop in events[-1]["progress"]["hops"]}


def test_a_sky_has_every_price_of_the_catalog(tmp_path: Path) -> None:
    here, origin = Region.parse(SOURCE), Origin("imported", "a test", "2026-01-01")
    dear = EgressRule(SOURCE, "internet", EgressPrice((PriceTier(0.0, 2.5),), origin))
    base = load_catalog()
    base = replace(base, prices=replace(base.prices, pairs={}, region_rules={here: (dear,)}))
    price = sky_catalog(read_sky_file(write_world(tmp_path)), base).egress(here, Region.parse(SINK))
    assert price is not None and price.usd_per_gb == 2.5


def test_a_plan_mixes_routes_to_its_ceiling_and_becomes_a_topology_and_back(tmp_path: Path) -> None:
    network = read_sky_file(write_world(tmp_path))
    catalog = sky_catalog(network, load_catalog())
    link = catalog.grid.link(Region.parse(SOURCE), Region.parse(SINK))
    assert link is not None and link.rtt_ms == 60
    assert link.gbps == pytest.approx(0.05 * data_per_wire(1500))
    plan = plan_gateways(catalog, Region.parse(SOURCE), Region.parse(SINK), 1.0, MaxCost(0.1), PlanningLimits())
    assert {route.nodes[1:-1] for route in plan.routes} == {(), ("azure-westus2-1",)}
    assert plan.prediction is not None and plan.prediction.cost_usd <= 0.1
    again = topology_from_document(json.loads(json.dumps(topology_document(plan)))).plan
    assert (again.gateways, again.hops, again.routes) == (plan.gateways, plan.hops, plan.routes)
    pace = pace_bytes_per_s(plan)
    assert pace is not None and pace * 8e-9 > plan.prediction.throughput_gbps


def test_a_plan_has_no_more_routes_than_asked(command: Command, sky: tuple[Sky, Path], tmp_path: Path) -> None:
    """The ceiling is too low for the relay alone: without a limit both routes are used, else the direct one."""
    source = tmp_path / "source"
    source.touch()
    os.truncate(source, VOLUME_BYTES)
    options = (*OPTIONS, "--sky", str(sky[1]), "--max-cost", "0.0115USD", "--dry-run")
    plans = [command.run("cp", source, tmp_path / "copy", *options, *limit) for limit in (("--routes", "1"), ())]
    (one, both) = [next(line for line in done.stderr.splitlines() if line.startswith("plan ")) for done in plans]
    assert f"{SOURCE} → {SINK} 100%" in one and RELAY not in one, one
    assert f"{SOURCE} → {RELAY} → {SINK}" in both and f"{SOURCE} → {SINK}" in both, both


@pytest.mark.alone
def test_a_transfer_meets_the_planned_shares_and_cost_and_leaves_nothing(
    command: Command, sky: tuple[Sky, Path], tmp_path: Path
) -> None:
    running, file = sky
    source = write_files(tmp_path / "source", VOLUME_BYTES)
    ceiling_usd = 0.0115
    options = ("-r", *OPTIONS, "--sky", str(file), "--max-cost", f"{ceiling_usd}USD", "--json")
    attempts = iter(range(10))

    def copy() -> Any:
        return command.run("cp", source, tmp_path / f"copy-{next(attempts)}", *options)

    done = valid(running, copy)
    assert done.code == 0, done.stderr
    assert differences(source, tmp_path / f"copy-{next(attempts) - 1}") == []
    summary = done.events[-1]
    plan = plan_gateways(
        sky_catalog(read_sky_file(file), load_catalog()),
        Region.parse(SOURCE),
        Region.parse(SINK),
        VOLUME_BYTES / 1e9,
        MaxCost(ceiling_usd),
        PlanningLimits(),
    )
    assert plan.overlay is not None
    assert summary["progress"]["cost_usd"] == pytest.approx(plan.overlay.cost.egress_usd, rel=0.02)
    assert summary["progress"]["cost_usd"] <= ceiling_usd
    limits = [event["limits"] for event in done.events if event["event"] == "progress" and "limits" in event]
    assert "network" in {each.get("slowest") for each in limits}, "the links limit this job, not the files"
    carried = carried_bytes(done.events)
    for route in plan.routes:
        share = carried[" → ".join(route.nodes)] / VOLUME_BYTES
        assert share == pytest.approx(route.share, abs=0.03)
    # Check the wire too: the relay's share went through the relay, and the rest did not.
    wire = {(path.src, path.dst): path.wire_bytes for path in running.stats().paths}
    assert wire["relay-1", "sink-1"] / (wire["relay-1", "sink-1"] + wire["source-1", "sink-1"]) == pytest.approx(
        next(route.share for route in plan.routes if len(route.nodes) == 3), abs=0.05
    )
    assert command.run("fleet", "list").stdout == ""


def test_a_sky_that_is_down_is_started_for_the_job(command: Command, tmp_path: Path) -> None:
    file = write_world(tmp_path)
    done = command.run("cp", "-r", "mem:?objects=40&size_bytes=100000", "mem:", *OPTIONS, "--sky", str(file))
    assert done.code == 0, done.stderr
    assert f"{SOURCE} → {RELAY} → {SINK} 100%" in done.stderr
    command.wait_until_alone()


def test_auto_uses_the_sky_if_it_has_both_regions(command: Command, tmp_path: Path) -> None:
    file = write_world(tmp_path)
    words = ("--via", "auto", *OPTIONS[2:], "--sky", str(file))
    done = command.run("cp", "-r", "mem:?objects=40&size_bytes=100000", "mem:", *words).expect(0)
    assert f"{SOURCE} → {RELAY} → {SINK} 100%" in done.stderr
    command.wait_until_alone()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--src-region", SOURCE, "--dst-region", SINK], "no sky is given (--sky)"),
        (["--sky", "world.json", "--src-region", SOURCE], "the regions of both sides are not set"),
        (["--sky", "world.json", "--src-region", SOURCE, "--dst-region", SOURCE], "both sides are in one region"),
        (
            ["--sky", "world.json", "--src-region", SOURCE, "--dst-region", "aws:us-east-1"],
            "the sky has no machine in aws:us-east-1",
        ),
    ],
)
def test_auto_uses_this_machine_if_the_sky_lacks_a_region(tmp_path: Path, words: list[str], reason: str) -> None:
    command = Command(tmp_path / "home")
    write_world(command.home)
    done = command.run("cp", "-r", "mem:?objects=1&size_bytes=1", "mem:", "--via", "auto", *words).expect(0)
    assert f"note: --via auto uses this machine: {reason}" in done.stderr
    assert "via     this machine, no gateways in between" in done.stderr


def test_auto_uses_this_machine_if_it_cannot_run_a_sky(tmp_path: Path) -> None:
    command = Command(tmp_path / "home")
    emulator = tmp_path / "emulator"
    emulator.write_text("#!/bin/sh\necho 'error: /dev/net/tun: Permission denied' >&2\nexit 11\n")
    emulator.chmod(0o755)
    command.environment["TRADEWIND_WAN"] = str(emulator)
    words = ("cp", "-r", "mem:?objects=1&size_bytes=1", "mem:", *OPTIONS[2:], "--sky", write_world(tmp_path))
    done = command.run(*words, "--via", "auto").expect(0)
    assert "note: --via auto uses this machine: /dev/net/tun: Permission denied\n" in done.stderr
    assert command.run(*words, "--via", "sky").code == 11


def test_a_dry_run_shows_the_plan_and_starts_no_relay(command: Command, tmp_path: Path) -> None:
    file = write_world(tmp_path)
    source = write_files(tmp_path / "source", 3_000_000)
    done = command.run("cp", "-r", source, tmp_path / "copy", *OPTIONS, "--sky", str(file), "--dry-run")
    assert done.code == 0, done.stderr
    assert "plan    3.00 MB at " in done.stderr and not (tmp_path / "copy").exists()
    assert "via     this machine" not in done.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--via", "sky"], "--via sky needs --sky FILE"),
        (["--via", "local", "--sky", "world.json"], "--sky needs --via sky"),
        (["--via", "sky", "--sky", "world.json"], "a plan needs the region of both sides: --src-region"),
        (
            ["--via", "sky", "--sky", "x", "--topology", "y"],
            "--topology and --via cannot be combined: both choose the gateways",
        ),
    ],
)
def test_invalid_options_are_refused_before_anything_starts(tmp_path: Path, words: list[str], error: str) -> None:
    command = Command(tmp_path / "home")
    done = command.run("cp", "-r", "mem:?objects=1&size_bytes=1", "mem:", *words)
    assert done.code == 2
    assert f"error: {error}" in done.stderr


def test_a_region_that_the_sky_lacks_is_reported_with_those_that_it_has(tmp_path: Path) -> None:
    command = Command(tmp_path / "home")
    words = ("--via", "sky", "--sky", write_world(tmp_path), "--src-region", "aws:us-east-1", "--dst-region", SINK)
    done = command.run("cp", "-r", "mem:?objects=1&size_bytes=1", "mem:", *words)
    assert done.code == 2
    assert "error: the sky has no machine in aws:us-east-1\n" in done.stderr
    assert f"hint: it has some in {SOURCE}, {RELAY}, {SINK}\n" in done.stderr


def test_an_infeasible_goal_moves_nothing(command: Command, sky: tuple[Sky, Path], tmp_path: Path) -> None:
    source = write_files(tmp_path / "source", 2_000_000)
    goal = ("--min-throughput", "1Gbit/s")
    done = command.run("cp", "-r", source, tmp_path / "copy", *OPTIONS, "--sky", str(sky[1]), *goal)
    assert done.code == 1 and "1 Gbit/s is out of reach" in done.stderr
    assert not (tmp_path / "copy").exists()
    assert os.listdir(command.state / "fleets") == []
