"""The values that the journal of fleets returns: records, intents, attempts, and the lives of machines."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from tradewind.fleet.owner import Owner, Ownership
from tradewind.model.records import dataclass

__all__ = [
    "KILLED_BEFORE",
    "NEVER_LAUNCHED",
    "Attempt",
    "FleetRecord",
    "Intent",
    "Legible",
    "MachineLife",
    "UnreadableFleet",
]


@dataclass(frozen=True, slots=True)
class Intent:
    """The wanted machines of a fleet, region by name; none if it has ended. Each change increments `generation`."""

    generation: int
    machines: Mapping[str, str]


#: Outcome of an attempt that a killed client did not make any more, and why.
NEVER_LAUNCHED, KILLED_BEFORE = "never launched", "its client was killed before the provider had the order"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to launch a machine, and its outcome: `launched`, NEVER_LAUNCHED, or the kind of the refusal."""

    unix_s: float
    name: str
    region: str
    outcome: str
    reason: str = ""
    type: str | None = None
    zone: str | None = None
    action: str | None = None
    """The permission that is missing."""


@dataclass(frozen=True, slots=True)
class MachineLife:
    """One machine of a fleet from its order to its end [Unix s]; None for one that runs."""

    fleet: str
    name: str
    region: str
    began_unix_s: float
    ended_unix_s: float | None


@dataclass(frozen=True, slots=True)
class FleetRecord:
    """One fleet that is not closed. `machines` is the region of each wanted machine, by name."""

    id: str
    purpose: str
    provider: Mapping[str, Any]
    machines: Mapping[str, str]
    created_unix_ms: int
    owner: Owner
    ownership: Ownership
    heartbeat_unix_s: float
    warm_until_unix_s: float | None = None
    """For a warm fleet, the time at which its last machine ends unless it is used; None for others."""

    @property
    def is_warm(self) -> bool:
        """True if its machines are kept for later jobs, and have not ended."""
        return self.warm_until_unix_s is not None and self.warm_until_unix_s > time.time()

    @property
    def abandoned(self) -> bool:
        """True if its owner is gone, and nobody wants its machines."""
        return self.ownership == "abandoned" and not self.is_warm


@dataclass(frozen=True, slots=True)
class UnreadableFleet:
    """A fleet whose record cannot be read or trusted, or a folder without one. Its machines may still run."""

    id: str
    because: str
    has_record: bool = True


@dataclass(frozen=True, slots=True)
class Legible:
    """The legible part of a damaged record of a fleet; None for the rest.

    `kind` is that of its provider. `regions` are those of machines that were wanted or whose end was not noted.
    """

    kind: str | None
    regions: Collection[str]
    owner: Owner | None
