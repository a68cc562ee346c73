"""A stand-in for Compute Engine whose instances do not boot, and the provider for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from testbed.clouds.gcp.cloud import Cloud
from testbed.clouds.gcp.server import Answer, ComputeEngine, FailOperation, Fault, Lose, Run
from tests.fleet.orders import machine_of, order_in
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import LaunchOrder, Machine, Provider
from tradewind.fleet.providers import make_provider

__all__ = ["HOME", "REGION", "GcpStage", "launch", "order"]

REGION = "gcp:us-central1"
order = partial(order_in, REGION)
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


def launch(provider: Provider, *orders: LaunchOrder) -> list[Machine]:
    """Launch machines, all of which must start."""
    return [machine_of(result) for result in provider.launch(orders or [order()])]
