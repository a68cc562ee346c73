"""Instances of AWS without public addresses, which really boot."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from testbed.clouds.aws import KEYS, aws_cloud
from testbed.clouds.lan import lan_unavailable
from tests.fleet.worlds import World
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.providers import make_provider
from tradewind.gateway.binary import find_gateway


def test_gateways_that_nobody_can_dial_enrol_by_calling_home(tmp_path: Path) -> None:
    if reason := lan_unavailable():
        pytest.skip(reason)
    journal, binary = FleetJournal(tmp_path / "state"), find_gateway()
    with aws_cloud(tmp_path / "cloud", binary) as cloud, mock.patch.dict(os.environ, KEYS):
        document = cloud.document(public_address=False, regions=["us-east-1", "us-west-2"])
        provider = make_provider(document, binary, journal)
        fleet = World(journal, provider, ("aws:us-east-1", "aws:us-west-2"), binary).fleet()
        try:
            assert fleet.living() == {"lead", "source", "sink"}
            assert all(state["enrolled"] for state in fleet.gateway_states().values())
            for machine in fleet.machines.values():
                assert (machine.control, machine.inbound, list(machine.addresses)) == (None, False, ["private"])
        finally:
            fleet.close()
        assert provider.leftovers() == ()
