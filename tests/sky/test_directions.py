"""Machines without inbound connections: the emulator drops them, and the gateways call home."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.drive import Command
from tests.fleet.worlds import plan_between
from tests.sky.conftest import Make
from tests.sky.world import OPTIONS, SINK, SOURCE, WORLD, differences, write_files, write_world
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.providers import make_provider
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient
from tradewind.model.program import CONTRACT_VERSION
from tradewind.sky.folders import sky_folder
from tradewind.sky.running import Sky

LINK = {"between": ["site:a", "site:b"], "rtt_ms": 10, "rate": "100Mbit/s"}
CLOSED = {"site:a": {"name": "a", "machines": 2}, "site:b": {"name": "b", "machines": 2, "inbound": False}}

LISTEN = (
    "import socket; s = socket.create_server(('', 5000)); print('up', flush=True)\nwhile True: s.accept()[0].close()"
)
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 5000), 2.0).close()"


def connects(sky: Sky, src: str, dst: str) -> bool:
    """Return whether a TCP connection from one machine to another can be opened."""
    with sky.popen(dst, [sys.executable, "-c", LISTEN], stdout=subprocess.PIPE, text=True) as listening:
        try:
            assert listening.stdout is not None and listening.stdout.readline() == "up\n"
            address = sky.machines[dst].address
            done = sky.run(src, [sys.executable, "-c", CONNECT, address], stderr=subprocess.PIPE, text=True)
            assert done.returncode == 0 or "timed out" in done.stderr, done.stderr
            return done.returncode == 0
        finally:
            listening.kill()


def test_a_region_without_inbound_opens_connections_and_accepts_none_from_outside(make_sky: Make) -> None:
    sky = make_sky(CLOSED, [LINK])
    assert [machine.inbound for machine in sky.machines.values()] == [True, True, False, False]
    assert connects(sky, "b-1", "a-1")
    assert connects(sky, "b-1", "b-2")
    assert not connects(sky, "a-1", "b-1")


def test_a_fleet_enrols_machines_in_both_directions(make_sky: Make, tmp_path: Path) -> None:
    sky = make_sky(CLOSED, [LINK])
    journal, binary = FleetJournal(tmp_path / "state"), find_gateway()
    provider = make_provider({"kind": "sky", "sky": str(sky.folder)}, binary, journal)
    fleet = Fleet(provider, journal, plan_between("site:a", "site:b"), binary, purpose="a test")
    try:
        addresses = fleet.deployment().addresses
        assert {name: address.inbound for name, address in addresses.items() if name != "lead"} == {
            "source": True,
            "sink": False,
        }
        assert fleet.machines["source"].control is not None and fleet.machines["sink"].control is None
        for name in addresses:
            assert GatewayClient.of(fleet.deployment(), name).version()["contract"] == CONTRACT_VERSION
        assert all(state["enrolled"] and state["reachable"] for state in fleet.gateway_states().values())
    finally:
        fleet.close(grace_s=0.0)


@pytest.mark.parametrize("closed", [SOURCE, SINK], ids=["source", "sink"])
def test_a_transfer_with_machines_that_call_home(command: Command, tmp_path: Path, closed: str) -> None:
    regions = {**WORLD["regions"], closed: {**WORLD["regions"][closed], "inbound": False}}
    file = write_world(tmp_path, regions=regions)
    source = write_files(tmp_path / "source", 5_000_000)
    with Sky.up(file, folder=sky_folder(str(command.state), file)):
        command.run("cp", "-r", source, tmp_path / "copy", *OPTIONS, "--sky", file, "--max-cost", "1USD").expect(0)
    assert differences(source, tmp_path / "copy") == []
