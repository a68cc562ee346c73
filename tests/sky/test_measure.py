"""`tradewind measure` over a sky measures the figures of its file."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import tradewind
from testbed.drive import Command
from testbed.sky import valid
from tests.sky.world import SINK, SOURCE, WORLD, write_world
from tradewind.catalog.tables import read_links
from tradewind.fleet.sky_catalog import data_per_wire
from tradewind.sky.folders import sky_folder
from tradewind.sky.running import Sky

TOLERANCE = 0.05
BUSY_MS = 5.0
"""Tolerance of a handshake's time on a machine that is busy with other tests."""


@pytest.mark.alone
def test_measuring_recovers_the_figures_of_the_sky_file(command: Command, tmp_path: Path) -> None:
    file, table = write_world(tmp_path), tmp_path / "links.csv"
    with Sky.up(file, folder=sky_folder(str(command.state), file)) as sky:
        done = valid(sky, lambda: command.run("measure", "--sky", str(file), "--out", str(table), "--json"))
    assert done.code == 0, done.stderr
    found = dict(read_links(table))
    assert len(found) == 6
    for link in WORLD["links"]:
        for ends in (link["between"], link["between"][::-1]):
            figure = next(f for (src, dst), f in found.items() if [str(src), str(dst)] == ends)
            start, end = (WORLD["regions"][region] for region in ends)
            limits = (link["rate"], start["egress"], end["ingress"])
            wire_gbps = min(float(rate.removesuffix("Gbit/s")) for rate in limits) * WORLD["scale"]
            assert figure.gbps == pytest.approx(wire_gbps * data_per_wire(1500), rel=TOLERANCE)
            assert figure.rtt_ms == pytest.approx(link["rtt_ms"], rel=TOLERANCE, abs=BUSY_MS)
            assert figure.origin.kind == "measured" and "64 connections" in figure.origin.method
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == 6


def test_a_budget_is_not_exceeded(command: Command, tmp_path: Path) -> None:
    file = write_world(tmp_path)
    options = ("--sky", str(file), "--for", "1s", "--warm-up", "1s", "--connections", "8", "--max-cost", "0.0000001USD")
    table = tmp_path / "links.csv"
    table.write_text("from before")
    done = command.run("measure", *options, "--out", str(table))
    assert done.code == 8 and "0 of 6 links measured" in done.stderr
    assert table.read_text() == "from before"
    one = command.run("measure", "--sky", str(file), f"{SOURCE},{SINK}", "--for", "1s", "--warm-up", "1s")
    assert one.code == 0 and one.stdout.startswith(f"{SOURCE} → {SINK}  ")


def test_links_are_measured_from_python(command: Command, tmp_path: Path) -> None:
    file, table = str(write_world(tmp_path)), tmp_path / "links.csv"
    with tradewind.Engine(state_dir=str(command.state)) as engine:
        measurement = engine.measure(file, [f"{SOURCE},{SINK}"], connections=8, warm_up_s=1.0, measure_s=1.0)
        (link,) = measurement.run()
        assert (str(link.src), str(link.dst)) == (str(SOURCE), str(SINK)) and link.result.gbps > 0
        assert measurement.egress_usd == link.usd > 0 and measurement.machines_usd > 0
        assert measurement.egress_usd + measurement.machines_usd <= measurement.quote.usd_most
        measurement.write(str(table))
    assert [(str(src), str(dst)) for (src, dst), _ in read_links(table)] == [(str(SOURCE), str(SINK))]


def test_links_measured_before_a_signal_are_kept(command: Command, tmp_path: Path) -> None:
    file, table = write_world(tmp_path), tmp_path / "links.csv"
    options = ("--for", "1s", "--warm-up", "1s", "--connections", "8", "--out", str(table), "--json")
    running = command.start("measure", "--sky", file, *options)
    first = running.wait_for(lambda line: "gbps" in line)
    running.signal(signal.SIGINT)
    assert running.finish(60).code == 130
    found = [(str(src), str(dst)) for (src, dst), _ in read_links(table)]
    assert (first["src"], first["dst"]) in found and len(found) < 6


def test_fleet_down_removes_everything_that_a_killed_command_left(command: Command, tmp_path: Path) -> None:
    file, left = write_world(tmp_path), tmp_path / "tmp"
    left.mkdir()
    command.environment["TMPDIR"] = str(left)
    running = command.start("measure", "--sky", file, "--for", "1s", "--warm-up", "1s", "--json")
    running.wait_for(lambda line: "gbps" in line)
    running.signal(signal.SIGKILL)
    running.finish(60)
    command.wait_until_alone()
    assert "0 machines ended" in command.run("fleet", "down").expect(0).stdout
    assert (list(left.iterdir()), command.run("fleet", "list").stdout) == ([], "")
