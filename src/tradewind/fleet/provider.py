"""Interface of a provider of machines. A machine runs one gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tradewind.gateway.process import STOP_S
from tradewind.model.plan import GatewayAddress

__all__ = ["Capabilities", "Machine", "MachineOrder", "Provider"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capacity of a provider."""

    machines: Mapping[str, int] | None = None
    """Maximum machines of one fleet by region, and no other regions; None for no limit."""


@dataclass(frozen=True, slots=True)
class MachineOrder:
    """One machine that a fleet needs.

    The same fleet, name and `token` always mean the same machine: a repeated order returns the same machine.
    """

    fleet_id: str
    name: str
    """Name of its gateway: a DNS label, unique in the fleet."""
    region: str
    token: str
    lease_s: int
    """Duration of the lease [s]; the machine ends if the lease is not renewed within it."""
    ordinal: int = 0
    """Index of the machine in its region, from 0. The lead runs on the first: no bytes pass through it."""
    dialled: bool = False
    """True if other gateways connect to it."""
    listen: str | None = None
    """Address where it listens for them, `ip:port`; None lets the provider choose."""
    reaches_stores: bool = True
    """True if it lists, reads or writes a store, and so needs the credentials for one. A relay does not."""
    identity: str | None = None
    """Folder with its certificate and key; None if there are no hops, or plain ones."""
    controller: str | None = None
    """Name in the fleet's certificates of the peer that may control it over TCP; None if there are no certificates."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that was ordered, and runs or will soon. `id` is the provider's own name for it."""

    fleet_id: str
    name: str
    region: str
    id: str
    pid: int | None = None
    """Process id, if the machine is a process of this host."""


class Provider(Protocol):
    """Starts and ends machines. It keeps nothing in memory that it could not find again with a query."""

    kind: str
    """`local`, `sky`, …"""

    def capabilities(self) -> Capabilities:
        """Capacity that can be ordered."""
        ...

    def document(self) -> dict[str, Any]:
        """Facts that a later process needs to make this provider again. No secrets."""
        ...

    def machines(self, fleet_id: str) -> tuple[Machine, ...]:
        """The living machines of a fleet, whoever ordered them. Empty for a fleet that nobody knows."""
        ...

    def create(self, order: MachineOrder) -> Machine:
        """Begins to start a machine, or finds the one that was ordered with this token.

        Raises GatewayError if it cannot be started, or if the fleet has another machine of that name.
        """
        ...

    def wait_ready(self, machine: Machine, timeout_s: float) -> GatewayAddress:
        """Wait until its gateway answers. Raises GatewayError if it ends before, or does not answer in time."""
        ...

    def delete(
        self,
        machines: Sequence[Machine],
        *,
        grace_s: float = STOP_S,
        on_gone: Callable[[Machine], None] | None = None,
    ) -> None:
        """Ends machines and returns when they are gone; those that are gone already are no error.

        All gateways together have `grace_s` seconds to put down what they hold; with 0 they are killed at once.
        `on_gone` is called for each machine as soon as it is gone, because it is paid for until then.
        """
        ...

    def last_words(self, machine: Machine, timeout_s: float) -> str:
        """Describe how a machine ended that should be running, for an error message; waits for its end up to the
        timeout.
        """
        ...
