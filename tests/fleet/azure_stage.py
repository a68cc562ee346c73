"""Azure's stand-in for tests: orders, providers of several principals, and what is left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from testbed.clouds.azure import AzureApi
from tradewind.fleet.azure.names import MACHINES
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import LaunchOrder, Lease, Machine, Provider, Refusal
from tradewind.fleet.providers import make_provider
from tradewind.gateway.owner import Join, JoinToken

__all__ = ["REGION", "Stage", "order"]

REGION, OTHER = "azure:westeurope", "azure:eastus"


def order(name: str = "one", *, fleet: str = "fleet", key: str = "", lease_s: int = 600, **more: Any) -> LaunchOrder:
    join = Join(fleet, name, JoinToken.new(), "-----BEGIN CERTIFICATE-----", "192.0.2.9:1")
    region = more.pop("region", REGION)
    lease = Lease(lease_s, "a-owner")
    return LaunchOrder(fleet, name, region, key or f"{fleet}-{name}", 1, lease, peers=("lead",), join=join, **more)


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
        results = provider.launch(orders or [order()])
        assert [result.refusal for result in results] == [None] * len(results)
        return [result.machine for result in results if result.machine is not None]

    def refusal(self, provider: Provider, wanted: LaunchOrder | None = None) -> Refusal:
        (result,) = provider.launch([wanted or order()])
        assert result.machine is None and result.refusal is not None
        assert "\n" not in result.refusal.reason
        return result.refusal

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
