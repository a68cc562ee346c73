"""Machines in a user's own network, with an image of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.clouds.azure import GROUP, SUBSCRIPTION, azure_api
from tests.fleet.azure_stage import Stage, order
from tradewind.fleet.azure.client import Clients
from tradewind.fleet.azure.names import MACHINES, NETWORKS
from tradewind.fleet.journal import FleetJournal
from tradewind.model.azure import azure_from_document

IMAGE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute/images/own"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with azure_api() as api:
        yield Stage(api, FleetJournal(tmp_path), monkeypatch)


def test_machines_start_in_the_subnet_of_the_user_which_stays(stage: Stage) -> None:
    clients = Clients(azure_from_document(stage.api.document()))
    body = {
        "location": "westeurope",
        "properties": {
            "addressSpace": {"addressPrefixes": ["10.9.0.0/16"]},
            "subnets": [{"name": "machines", "properties": {"addressPrefix": "10.9.0.0/24"}}],
        },
    }
    network = clients.network.virtual_networks.begin_create_or_update(GROUP, "own", body).result()
    subnet = f"{network.id}/subnets/machines"
    provider = stage.provider(subnets={"westeurope": subnet})
    machines = stage.launched(provider, order("one"), order("two"))
    interfaces = list(clients.network.network_interfaces.list(GROUP))
    assert [of.subnet.id for each in interfaces for of in each.ip_configurations] == [subnet] * 2
    assert stage.api.resources()[NETWORKS] == ["own"]
    assert not any("virtualNetworks" in left.id for left in provider.leftovers())
    provider.terminate([machine.id for machine in machines])
    provider.terminate([left.id for left in provider.leftovers()])
    assert {kind: names for kind, names in stage.api.resources().items() if names} == {NETWORKS: ["own"]}


def test_machines_have_the_image_of_the_user(stage: Stage) -> None:
    (machine,) = stage.launched(stage.provider(image=IMAGE))
    clients = Clients(azure_from_document(stage.api.document()))
    found = clients.compute.virtual_machines.get(GROUP, machine.id.rpartition("/")[2])
    assert found.storage_profile.image_reference.id == IMAGE and stage.count(MACHINES) == 1
