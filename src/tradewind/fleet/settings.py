"""The settings of a fleet, and the meter that it reports to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from tradewind.fleet.warm import Keeping, WarmMachine
from tradewind.gateway.process import READY_S
from tradewind.model.ledger import MachinePrice
from tradewind.model.plan import Plan, PlannedGateway
from tradewind.model.records import dataclass, field

__all__ = ["LEASE_S", "LEASE_S_MIN", "FleetSettings", "Meter"]

#: Default lease of a machine. Long enough for a client that is suspended (Ctrl-Z) for a while, short enough that a
#: client that hangs for good costs only minutes of machine time.
LEASE_S = 900
#: Minimum lease, even close to a cost ceiling: the machines of a busy client must not end.
LEASE_S_MIN = 15


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Settings of a fleet: data ports by gateway name, detours by hop, whether hops are plain TCP; times in seconds."""

    listen: Mapping[str, str] = field(default_factory=dict)
    detours: Mapping[tuple[str, str], str] = field(default_factory=dict)
    plain: bool = False
    lease_s: int = LEASE_S
    ready_s: float = READY_S
    """Timeout until all machines answer. If it expires, the fleet is ended."""
    led: bool = True
    """True if the plan's lead runs at home. Without a lead every gateway has a machine."""
    keeping: Keeping | None = None
    """How the machines are kept when the fleet is closed; None if they end then."""
    states_prices: bool = False
    """True if the meter gets the price of each new machine, because the planned one is that of machines which were
    paid for their minimum time before.
    """

    @property
    def kept_machines(self) -> Mapping[str, WarmMachine]:
        """The machines that are kept, by name."""
        return {} if self.keeping is None else self.keeping.machines

    def rented(self, plan: Plan) -> tuple[PlannedGateway, ...]:
        """Return the gateways of a plan that have a machine: all but a lead at home."""
        return plan.machines if self.led else plan.gateways


class Meter(Protocol):
    """Measures how long machines live. Its methods may be called from any thread, and return at once."""

    def launched(self, fleet: str, name: str, region: str) -> None:
        """Start charging a machine that is about to be ordered. No effect on a machine that is already charged."""
        ...

    def reported(self, fleet: str, name: str, began_unix_s: float | None, price: MachinePrice | None) -> None:
        """Record since when the provider bills a machine, and its price if it differs from the planned one."""
        ...

    def refused(self, fleet: str, names: Collection[str]) -> None:
        """Cancel the charges of machines that were ordered but not launched."""
        ...

    def ended(
        self,
        fleet: str,
        names: Collection[str] | None = None,
        ago_s: float = 0.0,
    ) -> None:
        """Stop charging machines of a fleet, which ended `ago_s` ago; all of them if `names` is None. No effect on
        those that ended before.
        """
        ...

    def can_pay(self, usd: float) -> bool:
        """Return whether the cost ceiling leaves this much besides all that is charged so far."""
        ...

    def left_s(self, most_s: float) -> float:
        """Return how long the living machines may keep running within the cost ceiling, up to `most_s`."""
        ...
