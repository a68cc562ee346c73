"""Leases: renewed concurrently through the fleet's owner, with failures reported."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fleet.worlds import plan_between
from tradewind.errors import GatewayError
from tradewind.fleet.fleet import Fleet
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.providers.local import LocalProvider
from tradewind.fleet.settings import FleetSettings
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient
from tradewind.gateway.process import OWNER_NAME
from tradewind.model.plan import Plan, PlannedGateway, PlannedHop, PlannedRoute

LEASE_S = 6
"""Two of three renewals may come late: on a busy machine a process may stand still for seconds."""
LONGER_S = 1.2 * LEASE_S


@contextmanager
def fleet_of(tmp_path: Path, reports: queue.SimpleQueue[str] | None = None) -> Iterator[Fleet]:
    journal, binary = FleetJournal(tmp_path / "state"), find_gateway()
    reported = queue.SimpleQueue[str]() if reports is None else reports
    fleet = Fleet(
        LocalProvider(binary, journal.folder),
        journal,
        plan_between("site:here", "site:there"),
        binary,
        purpose="a test",
        settings=FleetSettings(lease_s=LEASE_S),
        report=reported.put,
    )
    try:
        yield fleet
    finally:
        fleet.close(grace_s=0.0)


def test_leases_are_renewed_through_the_owner(tmp_path: Path) -> None:
    reports: queue.SimpleQueue[str] = queue.SimpleQueue()
    with fleet_of(tmp_path, reports) as fleet:
        controls = {name: machine.control or "" for name, machine in fleet.machines.items()}
        assert all(control.startswith("127.0.0.1:") for control in controls.values()), "the owner dials them"
        addresses = fleet.deployment().addresses
        assert all(address.control.startswith("unix:") for address in addresses.values())
        time.sleep(LONGER_S)
        assert fleet.living() == {"lead", "source", "sink"}, "a lease expired"
    assert reports.empty()


def test_a_lead_has_no_lease(tmp_path: Path) -> None:
    with fleet_of(tmp_path) as fleet:
        deployment = fleet.deployment()
        GatewayClient.of(deployment, "sink").renew_lease(LEASE_S)
        with pytest.raises(GatewayError, match="has no lease"):
            GatewayClient.of(deployment, "lead").renew_lease(LEASE_S)


def test_a_renewal_that_fails_is_reported_once(tmp_path: Path) -> None:
    reports: queue.SimpleQueue[str] = queue.SimpleQueue()
    with fleet_of(tmp_path, reports) as fleet:
        fleet.crash("source")
        assert reports.get(timeout=60.0).startswith("the lease of machine source could not be renewed: ")
        # The others are still renewed, and the failure is not reported again in each round.
        time.sleep(LONGER_S)
        assert fleet.living() == {"lead", "sink"}
    assert reports.empty()


def test_a_gateway_cannot_have_the_name_of_the_owner(tmp_path: Path) -> None:
    journal, binary = FleetJournal(tmp_path / "state"), find_gateway()
    gateways = (
        PlannedGateway("lead", "site:a"),
        PlannedGateway("source", "site:a"),
        PlannedGateway(OWNER_NAME, "b:c"),
    )
    plan = Plan(gateways, (PlannedHop("source", OWNER_NAME, 2),), (PlannedRoute(("source", OWNER_NAME), 1.0),))
    with pytest.raises(GatewayError, match="a gateway cannot be called"):
        Fleet(LocalProvider(binary, journal.folder), journal, plan, binary, purpose="a test")
