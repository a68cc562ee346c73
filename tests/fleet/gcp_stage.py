"""A stand-in for Compute Engine whose instances do not boot, and the provider for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.clouds.gcp.cloud import Cloud
from testbed.clouds.gcp.server import Answer, ComputeEngine, FailOperation, Fault, Lose, Run
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import LaunchOrder, LaunchResult, Lease, Machine, Provider, Refusal
from tradewind.fleet.providers import make_provider
from tradewind.gateway.owner import Join, JoinToken

__all__ = ["FLEET", "HOME", "OWNER", "REGION", "GcpStage"]

FLEET, OWNER, REGION = "fleet-1", "owner-1", "gcp:us-central1"
HOME = "198.51.100.7"
PROGRAMS = [{"processor": "x86_64", "url": "http://198.51.100.9/gateway", "sha256": "0" * 64}]


@dataclass
class GcpStage:
    folder: Path
    api: ComputeEngine
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def cloud(self) -> Cloud:
        return self.api.cloud

    def document(self, **changes: Any) -> dict[str, Any]:
        common = {"kind": "gcp", "project": self.cloud.project, "programs": PROGRAMS, "home_cidr": f"{HOME}/32"}
        return {**common, "endpoint": self.api.endpoint, **self.settings, **changes}

    def provider(self, **changes: Any) -> Provider:
        return make_provider(self.document(**changes), "no-binary", FleetJournal(self.folder / "state"))

    def fault(self, method: str, action: Answer | FailOperation | Lose | Run, times: int = 1) -> None:
        self.api.faults.append(Fault(method, action, times))

    def methods(self) -> list[str]:
        return [call.method for call in self.api.calls]


def order(name: str = "one", fleet: str = FLEET, **changes: Any) -> LaunchOrder:
    join = Join(fleet, name, JoinToken("ab" * 32, 2_000_000_000), "-----BEGIN CERTIFICATE-----", "192.0.2.1:7444")
    given: dict[str, Any] = {"region": REGION, "key": f"key-{fleet}-{name}", "generation": 1, **changes}
    return LaunchOrder(fleet, name, lease=Lease(900, OWNER), peers=("lead",), join=join, **given)


def launch(provider: Provider, *orders: LaunchOrder) -> list[Machine]:
    """Launch machines, all of which must start."""
    return [machine_of(result) for result in provider.launch(orders or [order()])]


def machine_of(result: LaunchResult) -> Machine:
    assert result.machine is not None, result.refusal
    return result.machine


def refusal_of(result: LaunchResult) -> Refusal:
    assert result.machine is None and result.refusal is not None
    assert "\n" not in result.refusal.reason
    return result.refusal
