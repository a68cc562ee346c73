"""The living and the dead machines of a fleet: by the provider's listing, or by their leases if there is none."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tradewind.errors import TradewindError
from tradewind.fleet.boots import BootRecorder
from tradewind.fleet.calls import InFlight
from tradewind.fleet.leases import Leases
from tradewind.fleet.patience import Patience
from tradewind.fleet.provider import Machine, Provider
from tradewind.gateway.process import STOP_S

__all__ = ["Liveness"]


class Liveness:
    """Looks at the machines of one fleet. `boots` records when each was seen first."""

    def __init__(
        self, fleet_id: str, provider: Provider, in_flight: InFlight, leases: Leases, boots: BootRecorder
    ) -> None:
        self._fleet_id, self._provider, self._in_flight = fleet_id, provider, in_flight
        self._leases, self._boots = leases, boots
        #: Monotonic time at which each machine was launched.
        self._launched_s: dict[str, float] = {}

    def launched(self, name: str) -> None:
        """Note that a machine was launched just now."""
        self._launched_s[name] = time.monotonic()

    def listed(self, patience: Patience | None = None) -> tuple[Machine, ...]:
        """Return the fleet's machines as the provider lists them. Raises GatewayError."""
        from tradewind.fleet.ending import list_machines

        found = list_machines(self._provider, self._fleet_id, self._in_flight, patience)
        self._boots.listed(found)
        return found

    def dead(self, known: Mapping[str, Machine]) -> dict[str, Machine | None]:
        """Return those of the known machines that have ended; the value is the listing of the machine, or None."""
        if not known:
            return {}
        try:
            listed = {machine.id: machine for machine in self.listed()}
        except TradewindError:
            return {name: None for name in known if self._leases.expired_s(name) > STOP_S}
        now_s = time.monotonic()
        dead: dict[str, Machine | None] = {}
        for name, machine in known.items():
            found = listed.get(machine.id)
            if found is None:
                # The listing may not show a machine yet that was launched shortly before.
                if now_s - self._launched_s.get(name, 0.0) >= self._provider.settles_s:
                    dead[name] = None
            elif found.ended:
                dead[name] = found
        return dead
