"""Azure's stand-in for tests: orders, providers of several principals, and what is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from testbed.clouds.azure import AzureApi
from tests.fleet.orders import FLEET, machine_of, order_in, refusal_of
from tradewind.fleet.azure.names import MACHINES
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import LaunchOrder, Machine, Provider, Refusal
from tradewind.fleet.providers import make_provider
from tradewind.gateway.owner import JoinToken
from tradewind.model.records import replace

__all__ = ["REGION", "Stage", "order"]

REGION, OTHER = "azure:westeurope", "azure:eastus"


def order(name: str = "one", fleet: str = FLEET, **changes: Any) -> LaunchOrder:
    """Return an order with a join token of its own: the custom data of a repeated one differs."""
    made = order_in(REGION, name, fleet, **changes)
    assert made.join is not None
    return replace(made, join=replace(made.join, token=JoinToken.new()))


class Stage:
    """The stand-in, and providers for it."""

    def __init__(self, api: AzureApi, journal: FleetJournal, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api, self._journal, self._monkeypatch = api, journal, monkeypatch
        self.sign_in("owner")

    def sign_in(self, principal: str) -> None:
        """Let new providers be of this principal."""
        for name, value in self.api.environment(principal).items():
            self._monkeypatch.setenv(name, value)

    def provider(self, **changes: Any) -> Provider:
        return make_provider(self.api.document(**changes), "unused", self._journal)

    def launched(self, provider: Provider, *orders: LaunchOrder) -> list[Machine]:
        return [machine_of(result) for result in provider.launch(orders or [order()])]

    def refusal(self, provider: Provider, wanted: LaunchOrder | None = None) -> Refusal:
        (result,) = provider.launch([wanted or order()])
        return refusal_of(result)

    def power(self, what: str, machine: Machine) -> None:
        self.api.ask(f"{what}?name={machine.id.rpartition('/')[2]}", "")

    def count(self, kind: str = MACHINES) -> int:
        return len(self.api.resources().get(kind, ()))

    @contextmanager
    def fault(self, **fault: Any) -> Iterator[None]:
        """Let something happen to the calls within the context."""
        self.api.fault(fault)
        try:
            yield
        finally:
            self.api.fault()
