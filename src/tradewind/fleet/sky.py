"""Gateways as processes in the machines of a sky: an emulated WAN between network namespaces of this host."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tradewind.errors import GatewayError, SkyError
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.processes import ProcessProvider
from tradewind.fleet.provider import Capabilities, MachineOrder
from tradewind.sky.running import Sky

__all__ = ["SkyProvider"]


class SkyProvider(ProcessProvider):
    """Each machine of a fleet is one of the sky's. Two fleets may share one of the sky's, as two tenants would."""

    kind = "sky"

    def __init__(self, sky: Sky, binary: str, journal: FleetJournal, *, logs: Path | None = None) -> None:
        super().__init__(binary, journal, logs=logs)
        self._sky = sky

    def capabilities(self) -> Capabilities:
        """The machines that the sky file lists."""
        return Capabilities(Counter(str(machine.region) for machine in self._sky.machines.values()))

    def document(self) -> dict[str, Any]:
        """With the folder by which the sky is found."""
        return {"kind": self.kind, "sky": str(self._sky.folder)}

    def _enter(self, order: MachineOrder) -> list[str]:
        name = self._place(order)[0]
        try:
            self._sky.check_running(name)
        except SkyError as error:
            raise GatewayError(f"no machine starts in {order.region}: {error}", hint=error.hint) from error
        return self._sky.command(name, [])

    def _listen(self, order: MachineOrder) -> str:
        return f"{self._place(order)[1]}:0"

    def _place(self, order: MachineOrder) -> tuple[str, str]:
        """Name and address of the sky's machine that an order is for."""
        there = self._sky.machines_in(order.region)
        if order.ordinal >= len(there):
            raise GatewayError(f"the sky has {len(there)} machines in {order.region}, not {order.ordinal + 1}")
        return there[order.ordinal].name, there[order.ordinal].address
