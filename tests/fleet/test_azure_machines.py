"""How machines in Azure end: by themselves, with and without an identity, and when they are evicted."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from testbed.clouds.azure import IDENTITY, AzureCloud, azure_cloud
from testbed.clouds.lan import lan_unavailable
from tests.fleet.worlds import Enrolment, wait_until
from tradewind.errors import GatewayError
from tradewind.fleet.azure.names import ADDRESSES, DISKS, INTERFACES, MACHINES
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import FLEET_TAG, LaunchOrder, Lease, Machine, Provider
from tradewind.fleet.providers import make_provider
from tradewind.gateway.binary import find_gateway
from tradewind.gateway.client import GatewayClient

REGION = "azure:westeurope"
PARTS = (MACHINES, INTERFACES, ADDRESSES, DISKS)


class Stage:
    """A cloud whose machines boot, and an owner that enrols their gateways."""

    def __init__(self, cloud: AzureCloud, folder: Path) -> None:
        self.cloud, self._folder = cloud, folder
        self.enrolment = Enrolment(find_gateway(), folder / "enrolment")

    def provider(self, **changes: Any) -> Provider:
        return make_provider(self.cloud.document(**changes), "unused", FleetJournal(self._folder / "state"))

    def launched(self, provider: Provider, lease_s: int = 600, spot: bool = False) -> Machine:
        join, lease = self.enrolment.join("one", "key"), Lease(lease_s, "a-owner")
        order = LaunchOrder("test", "one", REGION, "key", 1, lease, peers=("lead",), join=join, spot=spot)
        (result,) = provider.launch([order])
        assert result.machine is not None, result.refusal
        return result.machine

    def answers(self, machine: Machine) -> bool:
        address = self.enrolment.reach(machine)
        try:
            return address is not None and bool(GatewayClient(address).version(5.0))
        except GatewayError:
            return False

    def parts(self) -> list[int]:
        resources = self.cloud.api.resources()
        return [len(resources.get(kind, ())) for kind in PARTS]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    if reason := lan_unavailable():
        pytest.skip(reason)
    with TemporaryDirectory(prefix="tw-azure-") as folder, azure_cloud(Path(folder, "cloud"), find_gateway()) as cloud:
        for name, value in cloud.api.environment().items():
            monkeypatch.setenv(name, value)
        made = Stage(cloud, Path(folder))
        try:
            yield made
        finally:
            made.enrolment.close()


def test_a_machine_whose_gateway_dies_deletes_itself_with_all_its_parts(stage: Stage) -> None:
    provider = stage.provider(identity=IDENTITY)
    machine = stage.launched(provider)
    wait_until(lambda: stage.answers(machine))
    assert stage.parts() == [1, 1, 1, 1]
    (gateway,) = stage.cloud.machine("one").pids("serve --join")
    os.kill(gateway, signal.SIGKILL)
    wait_until(lambda: stage.parts() == [0, 0, 0, 0])
    assert provider.machines({FLEET_TAG: "test"}) == ()
    assert {left.kind for left in provider.leftovers()} == {"network", "security group", "schedule"}, (
        "they cost nothing"
    )
    provider.terminate([left.id for left in provider.leftovers()])
    assert stage.cloud.api.resources() == {}


def test_a_machine_without_an_identity_stops_and_is_left_until_it_is_swept(stage: Stage) -> None:
    provider = stage.provider()
    machine = stage.launched(provider, lease_s=1)
    wait_until(stage.cloud.machine("one").ended.is_set)
    wait_until(lambda: provider.machines({FLEET_TAG: "test"})[0].ended)
    assert "stopped machine, which is still billed" in {left.kind for left in provider.leftovers()}
    assert provider.terminate([machine.id])[0].refusal is None
    assert stage.cloud.api.resources() == {}


def test_a_machine_that_may_not_delete_itself_says_so_and_stops(stage: Stage) -> None:
    """The identity has no role in the resource group."""
    stage.cloud.api.allow(f"guest {IDENTITY.lower()}", [])
    provider = stage.provider(identity=IDENTITY, boot_diagnostics=True)
    machine = stage.launched(provider, lease_s=1)
    wait_until(stage.cloud.machine("one").ended.is_set)
    host = provider.host(machine)
    assert host is not None
    assert "it cannot delete itself: curl: (22)" in host.log_tail(1000)
    assert host.ending(30.0) == "its machine has ended"
    with pytest.raises(GatewayError, match="admits no login"):
        host.run(["true"], 1.0)
    assert stage.parts() == [1, 1, 1, 1]


@pytest.mark.slow
def test_the_gateway_of_a_spot_machine_ends_shortly_before_the_eviction(stage: Stage) -> None:
    """Azure gives notice 30 s before."""
    provider = stage.provider(spot=True, identity=IDENTITY)
    machine = stage.launched(provider, spot=True)
    wait_until(lambda: stage.answers(machine))
    stage.cloud.api.ask(f"evict?name={machine.id.rpartition('/')[2]}", "")
    wait_until(stage.cloud.machine("one").ended.is_set)
    console = stage.cloud.machine("one").console
    assert "the cloud takes the machine back" in console and "the gateway ended with 0" in console
    wait_until(lambda: stage.parts() == [0, 0, 0, 0])


def test_nothing_on_a_machine_shows_its_tokens(stage: Stage) -> None:
    """Neither the lists of processes nor the console have the join token or that of the identity."""
    provider = stage.provider(spot=True, identity=IDENTITY)
    machine = stage.launched(provider, spot=True)
    booted = stage.cloud.machine("one")
    wait_until(lambda: stage.answers(machine))
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in booted.pids()]
    assert lines and not any(b"token_hex" in line or b"Bearer" in line for line in lines)
    assert "token_hex" not in booted.console and "Bearer" not in booted.console


def test_a_machine_without_a_public_address_is_dialled_in_its_network(stage: Stage) -> None:
    home = stage.cloud.api.endpoint.partition("//")[2].partition(":")[0]
    provider = stage.provider(identity=IDENTITY, public_address=False, home_cidr=f"{home}/32")
    machine = stage.launched(provider)
    wait_until(lambda: stage.answers(machine))
    assert stage.parts() == [1, 1, 0, 1]
    provider.terminate([left.id for left in provider.leftovers()])
    assert stage.cloud.api.resources() == {}
