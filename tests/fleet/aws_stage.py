"""An emulated account of AWS whose instances do not boot, and the provider for it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from testbed.clouds.aws import AwsCloud
from tests.fleet.orders import machine_of, order_in
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import LaunchOrder, Machine, Provider
from tradewind.fleet.providers import make_provider

__all__ = ["REGION", "AwsStage", "launch", "order"]

REGION = "aws:us-east-1"
order = partial(order_in, REGION)


class AwsStage:
    def __init__(self, folder: Path, cloud: AwsCloud) -> None:
        self.folder, self.cloud = folder, cloud
        self.settings: dict[str, Any] = {"public_address": False}
        """Without public addresses a launch does not wait until instances run."""

    def document(self, **changes: Any) -> dict[str, Any]:
        return self.cloud.document(**{**self.settings, **changes})

    def provider(self, **changes: Any) -> Provider:
        return make_provider(self.document(**changes), "no-binary", FleetJournal(self.folder / "state"))

    def clear(self) -> None:
        """End all faults and machines, whoever made them: several tests share an account."""
        self.cloud.mend()
        self.cloud.set(vcpus=1_000_000, hidden_s=0, stale_s=0)
        for instance in self.living():
            self.cloud.end(instance)
        provider = self.provider()
        provider.terminate([left.id for left in provider.leftovers()])

    def living(self) -> list[str]:
        return [one["id"] for one in self.cloud.instances() if one["state"] in ("pending", "running")]


def launch(provider: Provider, *orders: LaunchOrder) -> list[Machine]:
    """Launch machines, all of which must start."""
    return [machine_of(result) for result in provider.launch(orders or [order()])]
