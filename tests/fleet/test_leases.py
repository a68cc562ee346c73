"""Leases over TCP: renewed with the fleet's own identity, all at once, and a failure is reported."""

from __future__ import annotations

import queue
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fleet.worlds import plan_between
from tradewind.errors import GatewayError
from tradewind.fleet.fleet import Fleet, FleetSettings
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import LaunchOrder
from tradewind.fleet.providers.local import LocalProvider
from tradewind.fleet.sockets import ControlFolder
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import CLIENT_NAME, FleetIdentity, GatewayClient
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute

LEASE_S = 3


class TcpProvider(LocalProvider):
    """Processes of this host that are controlled as machines elsewhere would be: over TCP, with mutual TLS."""

    def _control_address(self, order: LaunchOrder, control: ControlFolder) -> str:
        with socket.create_server(("127.0.0.1", 0)) as free:
            return f"127.0.0.1:{free.getsockname()[1]}"


def provider_of(journal: FleetJournal, binary: str) -> TcpProvider:
    return TcpProvider(binary, journal.folder)


@contextmanager
def fleet_of(tmp_path: Path, reports: queue.SimpleQueue[str] | None = None) -> Iterator[Fleet]:
    journal, binary = FleetJournal(tmp_path / "state"), find_gateway()
    told = queue.SimpleQueue[str]() if reports is None else reports
    fleet = Fleet(
        provider_of(journal, binary),
        journal,
        plan_between("site:here", "site:there"),
        binary,
        purpose="a test",
        settings=FleetSettings(lease_s=LEASE_S),
        report=told.put,
    )
    try:
        yield fleet
    finally:
        fleet.close(grace_s=0.0)


def test_leases_are_renewed_over_tcp(tmp_path: Path) -> None:
    reports: queue.SimpleQueue[str] = queue.SimpleQueue()
    with fleet_of(tmp_path, reports) as fleet:
        addresses = fleet.deployment().addresses
        assert all(addresses[name].control.startswith("127.0.0.1:") for name in fleet.machines)
        assert addresses["lead"].control.startswith("unix:"), "the lead is beside the client"
        time.sleep(1.5 * LEASE_S)
        assert fleet.living() == {"lead", "source", "sink"}, "a lease expired"
    assert reports.empty()


def test_only_the_client_and_no_gateway_of_the_fleet_controls_it(tmp_path: Path) -> None:
    with fleet_of(tmp_path) as fleet:
        deployment = fleet.deployment()
        assert deployment.identities is not None
        client = GatewayClient.of(deployment, "sink")
        assert client.version()["contract"] == 1
        client.renew_lease(LEASE_S)
        with pytest.raises(GatewayError, match="has no lease"):
            GatewayClient.of(deployment, "lead").renew_lease(LEASE_S)
        for other in ("source", "lead"):
            identity = FleetIdentity(deployment.identities, other, "sink")
            with pytest.raises(GatewayError, match=f"{other} may not control"):
                GatewayClient(client.control, identity).renew_lease(LEASE_S)


def test_a_renewal_that_fails_is_reported_once(tmp_path: Path) -> None:
    reports: queue.SimpleQueue[str] = queue.SimpleQueue()
    with fleet_of(tmp_path, reports) as fleet:
        fleet.crash("source")
        assert reports.get(timeout=60.0).startswith("the lease of machine source could not be renewed: ")
        # The others are renewed as before, and the failure is not told again at each round.
        time.sleep(1.5 * LEASE_S)
        assert fleet.living() == {"lead", "sink"}
    assert reports.empty()


def test_a_gateway_cannot_have_the_name_of_the_client(tmp_path: Path) -> None:
    journal, binary = FleetJournal(tmp_path / "state"), find_gateway()
    gateways = (
        PlannedGateway("lead", "site:a"),
        PlannedGateway("source", "site:a"),
        PlannedGateway(CLIENT_NAME, "b:c"),
    )
    plan = Plan(gateways, (PlannedHop("source", CLIENT_NAME, 2),), (PlannedRoute(("source", CLIENT_NAME), 1.0),))
    with pytest.raises(GatewayError, match="a gateway cannot be called"):
        Fleet(provider_of(journal, binary), journal, plan, binary, purpose="a test")
