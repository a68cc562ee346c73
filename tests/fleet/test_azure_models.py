"""Several threads make the first objects of Microsoft's models at the same time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tradewind.fleet.azure.client import Clients
from tradewind.model.azure import AzureSettings

pytest.importorskip("azure.mgmt.compute")

MACHINE: dict[str, Any] = {
    "name": "one",
    "properties": {
        "networkProfile": {"networkInterfaces": [{"id": "/interfaces/one"}]},
        "instanceView": {"statuses": [{"code": "PowerState/running"}]},
    },
}
THREADS = 4
ROUNDS = 100


@pytest.fixture
def often_switching() -> Iterator[None]:
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


def read_machine() -> tuple[str, str]:
    from azure.mgmt.compute.models import VirtualMachine

    vm: Any = VirtualMachine(MACHINE)
    return vm.network_profile.network_interfaces[0].id, vm.instance_view.statuses[0].code


def forget_classes() -> None:
    """Let each class look as before its first object."""
    from azure.mgmt.compute import models

    for kind in vars(models).values():
        if isinstance(kind, type) and "_attr_to_rest_field" in vars(kind):
            del kind._attr_to_rest_field  # type: ignore[attr-defined]
            kind._calculated.clear()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("often_switching")
def test_no_thread_gets_a_dictionary_in_place_of_an_object() -> None:
    settings = AzureSettings("subscription", "group", regions=("eastus",))
    assert Clients(settings).compute is not None
    errors = list[Exception]()

    def read(begin: threading.Barrier) -> None:
        begin.wait()
        try:
            assert read_machine() == ("/interfaces/one", "PowerState/running")
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    for _ in range(ROUNDS):
        forget_classes()
        begin = threading.Barrier(THREADS)
        threads = [threading.Thread(target=read, args=(begin,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
