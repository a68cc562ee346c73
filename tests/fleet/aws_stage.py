"""An emulated account of AWS whose instances do not boot, and the provider for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.clouds.aws import AwsCloud
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import LaunchOrder, LaunchResult, Lease, Machine, Provider, Refusal
from tradewind.fleet.providers import make_provider
from tradewind.gateway.owner import Join, JoinToken

__all__ = ["FLEET", "OWNER", "REGION", "AwsStage", "launch", "machine_of", "order", "refusal_of"]

FLEET, OWNER, REGION = "fleet-1", "owner-1", "aws:us-east-1"


class AwsStage:
    def __init__(self, folder: Path, cloud: AwsCloud) -> None:
        self.folder, self.cloud = folder, cloud
        self.settings: dict[str, Any] = {"public_address": False}
        """Without public addresses a launch does not wait until instances run."""

    def document(self, **changes: Any) -> dict[str, Any]:
        return self.cloud.document(**{**self.settings, **changes})

    def provider(self, **changes: Any) -> Provider:
        return make_provider(self.document(**changes), "no-binary", FleetJournal(self.folder / "state"))

    def living(self) -> list[str]:
        return [one["id"] for one in self.cloud.instances() if one["state"] in ("pending", "running")]


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
