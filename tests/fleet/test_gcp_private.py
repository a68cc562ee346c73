"""Machines of Compute Engine without public addresses, which really boot."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.clouds.gcp import gcp_cloud
from testbed.clouds.lan import lan_unavailable
from tests.fleet.worlds import World
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.providers import make_provider
from tradewind.gateway.binary import find_gateway


def test_a_fleet_in_the_network_of_home(tmp_path: Path) -> None:
    if reason := lan_unavailable():
        pytest.skip(reason)
    journal, binary = FleetJournal(tmp_path / "state"), find_gateway()
    with gcp_cloud(tmp_path / "cloud", binary) as cloud:
        provider = make_provider(cloud.document(public_address=False), binary, journal)
        world = World(journal, provider, ("gcp:us-central1", "gcp:europe-west4"), binary)
        fleet = world.fleet()
        try:
            assert fleet.living() == {"lead", "source", "sink"}
            assert all(state["enrolled"] for state in fleet.gateway_states().values())
            for instance in cloud.engine.instances.values():
                assert instance.addresses[1] is None
        finally:
            fleet.close()
        assert cloud.engine.billed() == []
