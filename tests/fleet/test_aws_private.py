"""Instances of AWS without public addresses, which really boot."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from testbed.clouds.aws import KEYS, aws_cloud
from testbed.clouds.filters import filter_unavailable, only_to
from testbed.clouds.lan import lan_unavailable
from testbed.clouds.proxy import forward_proxy
from testbed.servers import InstallError
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


@pytest.mark.slow
def test_gateways_that_reach_nothing_but_a_proxy_enrol_by_calling_home_through_it(tmp_path: Path) -> None:
    if reason := lan_unavailable():
        pytest.skip(reason)
    journal, binary = FleetJournal(tmp_path / "state"), find_gateway()
    regions = ("aws:us-east-1", "aws:us-west-2")
    try:
        if reason := filter_unavailable():
            pytest.skip(reason)
        with (
            aws_cloud(tmp_path / "cloud", binary) as cloud,
            forward_proxy(cloud.boots.address if cloud.boots else "", tmp_path / "proxy") as proxy,
            mock.patch.dict(os.environ, KEYS),
        ):
            assert cloud.boots is not None
            cloud.boots.booter.filters |= dict.fromkeys(regions, only_to(f"{proxy.address} . {proxy.port}"))
            document = cloud.document(public_address=False, proxy=proxy.url, regions=["us-east-1", "us-west-2"])
            provider = make_provider(document, binary, journal)
            fleet = World(journal, provider, regions, binary).fleet()
            try:
                assert fleet.living() == {"lead", "source", "sink"}
                assert all(state["enrolled"] for state in fleet.gateway_states().values())
            finally:
                fleet.close()
            assert provider.leftovers() == ()
            assert any(f" {cloud.boots.address}:" in line for line in proxy.requests("CONNECT"))
    except InstallError as error:
        pytest.skip(str(error))
