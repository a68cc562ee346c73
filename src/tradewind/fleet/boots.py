"""How machines start, phase by phase: recorded for each machine in the fleet's journal, and learned by region and type.

All times are of this machine's clock: those of providers may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Machine
from tradewind.model.records import dataclass

__all__ = ["Boot", "BootBook", "BootRecorder"]

#: Number of the last machines of a type in a region from which their start is learned.
BOOTS_MAX = 20


@dataclass(frozen=True, slots=True)
class Boot:
    """The start of a machine [Unix s], by phase. Phases that were not seen are None.

    - `ordered_unix_s`: before the call that orders it
    - `accepted_unix_s`: the provider has accepted the order
    - `running_unix_s`: the first listing in which the provider says that it runs
    - `ready_unix_s`: the first answer of its gateway, which has enrolled by then
    - `first_byte_unix_s`: the first report of the lead that bytes move on one of its routes
    """

    name: str
    region: str
    ordered_unix_s: float
    ready_unix_s: float
    accepted_unix_s: float | None = None
    type: str | None = None
    running_unix_s: float | None = None
    first_byte_unix_s: float | None = None

    @property
    def took_s(self) -> float:
        """Time from its order until it answered."""
        return max(0.0, self.ready_unix_s - self.ordered_unix_s)

    @property
    def phases_s(self) -> dict[str, float]:
        """Time of each known phase after the order, in order."""
        known = {
            "accepted": self.accepted_unix_s,
            "running": self.running_unix_s,
            "enrolled": self.ready_unix_s,
            "first_byte": self.first_byte_unix_s,
        }
        return {name: max(0.0, at_s - self.ordered_unix_s) for name, at_s in known.items() if at_s is not None}

    def document(self) -> dict[str, Any]:
        """Return the machine and its phases for JSON, in seconds after the order."""
        return {"name": self.name, "region": self.region, "type": self.type, "phases_s": self.phases_s}


class BootBook:
    """The starts of machines of one state folder. Its methods raise StateError."""

    def __init__(self, journal: FleetJournal) -> None:
        self._database = journal.database

    def of_fleet(self, fleet_id: str) -> list[Boot]:
        """Return the starts of a fleet's machines that answered, oldest first."""
        return self._boots("machines.fleet = ?", (fleet_id,))

    def of_purpose(self, purpose: str) -> list[Boot]:
        """Return the starts of all machines that answered, of the fleets with this purpose, oldest first."""
        return self._boots("machines.fleet IN (SELECT id FROM fleets WHERE purpose = ?)", (purpose,))

    def times_s(self) -> dict[tuple[str, str | None], float]:
        """Return the median time from the order to the first answer of the last machines, by region and type."""
        found: dict[tuple[str, str | None], list[float]] = {}
        for boot in reversed(self._boots("1", ())):
            times = found.setdefault((boot.region, boot.type), [])
            if len(times) < BOOTS_MAX:
                times.append(boot.took_s)
        return {key: sorted(times)[len(times) // 2] for key, times in found.items()}

    def _boots(self, condition: str, values: Sequence[Any]) -> list[Boot]:
        rows = self._database.rows(
            "SELECT machines.name, machines.region, launched_unix_s, ready_unix_s, attempts.unix_s, attempts.type,"
            " running_unix_s, first_byte_unix_s"
            " FROM machines LEFT JOIN attempts ON attempts.fleet = machines.fleet AND attempts.name = machines.name"
            "  AND outcome = 'launched' AND attempts.unix_s BETWEEN launched_unix_s AND ready_unix_s"
            f" WHERE ready_unix_s IS NOT NULL AND {condition} ORDER BY machines.fleet, machines.number",
            values,
        )
        return [Boot(*row) for row in rows]


class BootRecorder:
    """Notes the phases of the machines that one fleet orders. Its methods may be called from any thread."""

    def __init__(self, journal: FleetJournal, fleet_id: str) -> None:
        self._journal, self._fleet_id = journal, fleet_id
        #: Names of ordered machines that do not run yet, and of those on whose routes nothing has moved.
        self._starting = set[str]()
        self._waiting = set[str]()

    def ordered(self, name: str) -> None:
        """A machine has been ordered."""
        self._starting.add(name)
        self._waiting.add(name)

    def listed(self, machines: Iterable[Machine]) -> None:
        """The provider has described machines."""
        for machine in machines:
            if machine.running_unix_s is not None and not machine.ended and machine.name in self._starting:
                self._starting.discard(machine.name)
                self._journal.running(self._fleet_id, machine.name)

    def moved(self, names: Iterable[str]) -> None:
        """Bytes have moved on routes of these gateways."""
        for name in self._waiting.intersection(names):
            self._waiting.discard(name)
            self._journal.moved(self._fleet_id, name)
