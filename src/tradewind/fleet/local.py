"""Gateways as processes on this machine, at its loopback address."""

from __future__ import annotations

from tradewind.fleet.processes import ProcessProvider
from tradewind.fleet.provider import MachineOrder

__all__ = ["LocalProvider"]


class LocalProvider(ProcessProvider):
    """Every region is this machine."""

    kind = "local"

    def _enter(self, order: MachineOrder) -> list[str]:
        return []

    def _listen(self, order: MachineOrder) -> str:
        return "127.0.0.1:0"
