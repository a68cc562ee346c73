"""`tradewind measure` over a sky finds what its file says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.drive import Command
from testbed.sky import valid
from tests.sky.world import SINK, SOURCE, WORLD, write_world
from tradewind.catalog.links import read_links
from tradewind.fleet.sky_catalog import data_per_wire
from tradewind.sky.folders import sky_folder
from tradewind.sky.running import Sky

TOLERANCE = 0.05
BUSY_MS = 5.0
"""So much later a gateway may see the end of a handshake on a machine that is busy with other tests."""


def test_the_file_is_found_again(command: Command, tmp_path: Path) -> None:
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


def test_a_budget_is_not_passed(command: Command, tmp_path: Path) -> None:
    file = write_world(tmp_path)
    options = ("--sky", str(file), "--for", "1s", "--warm-up", "1s", "--connections", "8", "--max-cost", "0.0000001USD")
    done = command.run("measure", *options)
    assert done.code == 8 and "0 of 6 links measured" in done.stderr
    one = command.run("measure", "--sky", str(file), f"{SOURCE},{SINK}", "--for", "1s", "--warm-up", "1s")
    assert one.code == 0 and one.stdout.startswith(f"{SOURCE} → {SINK}  ")
