"""How machines start, phase by phase: recorded for each machine in the fleet's journal, and learned by provider, region
and type.

All times are of this machine's clock: those of providers may be wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.provider import Machine
from tradewind.model.document import parse_json
from tradewind.model.origin import Origin
from tradewind.model.records import dataclass, replace
from tradewind.model.units import format_count, format_duration
from tradewind.state.values import checked

__all__ = ["PHASES", "Boot", "BootBook", "BootKind", "BootRecorder", "UsualBoot"]

#: Number of the last machines of a type in a region from which their start is learned.
BOOTS_MAX = 20
#: The phases of a start, in order, with their words.
PHASES = {
    "accepted": "accepted after",
    "running": "running",
    "booted": "booted",
    "enrolled": "enrolled",
    "first_byte": "first byte",
}


@dataclass(frozen=True, slots=True)
class BootKind:
    """Machines that start alike: of one provider, region and type. Machines of a sky may have the region of a cloud."""

    provider: str
    region: str
    type: str | None = None

    def __str__(self) -> str:
        return " ".join(part for part in (self.provider, self.region, self.type) if part)


@dataclass(frozen=True, slots=True)
class UsualBoot:
    """The usual start of a kind of machines: the median of each phase over their last `count` starts [s after the
    order]. Phases that were never seen are missing.

    The first byte is as early as if no other machine of the fleet had answered later. `begins_s` is the least time from
    enrolment to the first byte: programs, credentials and connections. Longer ones were waits for the source's list.
    """

    count: int
    phases_s: Mapping[str, float]
    begins_s: float = 0.0

    @property
    def moves_s(self) -> float:
        """Time from the order until bytes can move."""
        return self.phases_s["enrolled"] + self.begins_s

    @property
    def origin(self) -> Origin:
        """Origin of `moves_s` in a catalog."""
        return Origin("learned", format_count(self.count, "earlier start"), "", str(self))

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"starts": self.count, "phases_s": dict(self.phases_s)}

    def __str__(self) -> str:
        return _in_words(self.phases_s)


@dataclass(frozen=True, slots=True)
class Boot:
    """The start of a machine [Unix s], by phase. Phases that were not seen are None.

    - `ordered_unix_s`: before the call that orders it
    - `accepted_unix_s`: the provider has accepted the order
    - `running_unix_s`: the first listing in which the provider says that it runs
    - `booted_unix_s`: it begins to run its boot script, by its own account in its first answer
    - `ready_unix_s`: the first answer of its gateway, which has enrolled by then
    - `first_byte_unix_s`: the first report of the lead that bytes move on one of its routes
    - `complete_unix_s`: the last answer of a machine of its fleet before that byte
    """

    name: str
    region: str
    ordered_unix_s: float
    ready_unix_s: float
    accepted_unix_s: float | None = None
    type: str | None = None
    running_unix_s: float | None = None
    first_byte_unix_s: float | None = None
    complete_unix_s: float | None = None
    booted_unix_s: float | None = None
    provider: str = ""

    @property
    def kind(self) -> BootKind:
        """Provider, region and type: machines with the same ones take about the same time to start."""
        return BootKind(self.provider, self.region, self.type)

    @property
    def took_s(self) -> float:
        """Time from its order until it answered."""
        return max(0.0, self.ready_unix_s - self.ordered_unix_s)

    @property
    def phases_s(self) -> dict[str, float]:
        """Time of each known phase after the order, in order."""
        began_s = self.accepted_unix_s, self.running_unix_s, self.booted_unix_s
        times_s = *began_s, self.ready_unix_s, self.first_byte_unix_s
        known = zip(PHASES, times_s, strict=True)
        return {name: max(0.0, at_s - self.ordered_unix_s) for name, at_s in known if at_s is not None}

    @property
    def own_phases_s(self) -> dict[str, float]:
        """The same without the time for which it waited for slower machines of its fleet."""
        found = self.phases_s
        if "first_byte" in found and self.complete_unix_s is not None:
            found["first_byte"] -= max(0.0, self.complete_unix_s - self.ready_unix_s)
        return found

    def __str__(self) -> str:
        return _in_words(self.phases_s)

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

    def usual(self) -> dict[BootKind, UsualBoot]:
        """Return the usual start of each kind of machines, from their last starts."""
        found: dict[BootKind, list[Boot]] = {}
        for boot in reversed(self._boots("1", ())):
            alike = found.setdefault(boot.kind, [])
            if len(alike) < BOOTS_MAX:
                alike.append(boot)
        return {kind: _usual(alike) for kind, alike in found.items()}

    def _boots(self, condition: str, values: Sequence[Any]) -> list[Boot]:
        rows = self._database.rows(
            "SELECT provider, machines.name, machines.region, launched_unix_s, ready_unix_s, attempts.unix_s,"
            " attempts.type, running_unix_s, first_byte_unix_s,"
            " (SELECT max(others.ready_unix_s) FROM machines AS others"
            "  WHERE others.fleet = machines.fleet AND others.ready_unix_s <= machines.first_byte_unix_s),"
            " booted_unix_s"
            " FROM machines JOIN fleets ON fleets.id = machines.fleet"
            " LEFT JOIN attempts ON attempts.fleet = machines.fleet AND attempts.name = machines.name"
            "  AND outcome = 'launched' AND attempts.unix_s BETWEEN launched_unix_s AND ready_unix_s"
            f" WHERE ready_unix_s IS NOT NULL AND {condition} ORDER BY machines.fleet, machines.number",
            values,
        )
        found = []
        for row in rows:
            with suppress(ValueError):  # A damaged row must not hide the others.
                text, *known = checked(row, "tttssSTSSSS")
                found.append(replace(Boot(*known), provider=_kind_in(text, known[1])))
        return found


def _usual(boots: Sequence[Boot]) -> UsualBoot:
    seen = [boot.own_phases_s for boot in boots]
    times_s = {name: sorted(each[name] for each in seen if name in each) for name in PHASES}
    begins_s = (max(0.0, each["first_byte"] - each["enrolled"]) for each in seen if "first_byte" in each)
    usual_s = {name: found[len(found) // 2] for name, found in times_s.items() if found}
    return UsualBoot(len(boots), usual_s, min(begins_s, default=0.0))


@functools.lru_cache(maxsize=64)
def _kind_in(text: str, region: str) -> str:
    """Return the kind of the provider that has machines in a region, from the record of a fleet's provider.

    Empty if the record is damaged.
    """
    try:
        provider = parse_json(text)
        members = (member for member in provider.get("members", ()) if region in member["regions"])
        return str(next(members, {"provider": provider})["provider"].get("kind", ""))
    except (ValueError, TypeError, KeyError, AttributeError):
        return ""


def _in_words(phases_s: Mapping[str, float]) -> str:
    """Return phases with their times: `accepted after 2 s, enrolled 2.4 s`."""
    return ", ".join(f"{PHASES[name]} {format_duration(took_s)}" for name, took_s in phases_s.items())


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
