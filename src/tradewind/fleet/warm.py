"""Warm fleets: which there are, until when, and which job used them for how long.

A warm fleet belongs to no process. Its machines end `idle_s` after their last use, and at `ends_unix_s` at the latest.
The lock of its folder is the claim of the job that uses it: see `FleetJournal.take`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Mapping

from tradewind.fleet.fleet_records import FleetRecord
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.owner import here
from tradewind.model.document import parse_json
from tradewind.model.network_tier import NetworkTier
from tradewind.model.records import dataclass, field, fields
from tradewind.state.digest import with_digest, without_digest
from tradewind.state.values import checked, damaged

__all__ = ["MARGIN_S", "WARM_PURPOSE", "Keeping", "WarmBook", "WarmMachine", "WarmUse"]

#: Purpose of a warm fleet, as `fleet list` shows it.
WARM_PURPOSE = "warm"
#: Machines that end earlier are not claimed: the job must have renewed their leases by then.
MARGIN_S = 30.0


@dataclass(frozen=True, slots=True)
class WarmMachine:
    """The rented type of a machine of a warm fleet, and its price."""

    region: str
    type: str | None = None
    spot: bool = False
    usd_per_s: float = 0.0
    price_source: str = ""
    egress_gbps: float = 0.0
    """Cap on the rate at which it sends; this and the next are 0 if unknown."""
    ingress_gbps: float = 0.0
    network_tier: NetworkTier | None = None
    """None in a cloud without a choice."""
    billed_s_min: float = 0.0
    """Minimum billed time."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long the machines of a fleet are kept, and which they are, by name."""

    idle_s: int
    ends_unix_s: float
    machines: Mapping[str, WarmMachine] = field(default_factory=dict)

    def lease_s(self, wanted_s: float) -> int:
        """Return a lease of this length that does not go beyond the end, at least a second."""
        return max(1, math.floor(min(wanted_s, self.ends_unix_s - time.time())))

    @property
    def owner_label(self) -> str:
        """Value of the owner tag of its machines. It names no process, as the machines outlive that of `fleet up`."""
        host, boot, namespace, *_ = here().label.split("-")
        return f"{host}-{boot}-{namespace}-warm-{math.ceil(self.ends_unix_s)}"


@dataclass(frozen=True, slots=True)
class WarmUse:
    """One use of a machine by a job [Unix s]; the end is None while it lasts, or if its client was killed."""

    job: str
    machine: str
    began_unix_s: float
    ended_unix_s: float | None = None


class WarmBook:
    """The warm fleets of one state folder."""

    def __init__(self, journal: FleetJournal) -> None:
        self._journal, self._database = journal, journal.database

    def keep(self, fleet_id: str, keeping: Keeping) -> None:
        """Record that a fleet is to be kept. Raises StateError."""
        machines = {name: [getattr(one, each.name) for each in fields(one)] for name, one in keeping.machines.items()}
        document = with_digest(machines, [fleet_id, keeping.idle_s, float(keeping.ends_unix_s)])
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO warm_fleets VALUES (?, ?, ?, ?)",
                (fleet_id, keeping.idle_s, keeping.ends_unix_s, json.dumps(document)),
            )

    def keeping(self, fleet_id: str) -> Keeping | None:
        """Return how a fleet is kept; None if it is not. Raises StateError, also for a damaged record."""
        row = self._database.row("SELECT idle_s, ends_unix_s, machines FROM warm_fleets WHERE fleet = ?", (fleet_id,))
        if row is None:
            return None
        with damaged(f"the record of warm fleet {fleet_id}"):
            idle_s, ends_unix_s, machines = checked(row, "pst")
            found = without_digest(parse_json(machines), [fleet_id, idle_s, float(ends_unix_s)])
            read = {name: WarmMachine(*checked(values, "tTpptppTp")) for name, values in found.items()}
            return Keeping(int(idle_s), float(ends_unix_s), read)

    def free(self) -> list[FleetRecord]:
        """Return the warm fleets that no process uses and whose machines do not end within MARGIN_S, oldest first."""
        soon_s = time.time() + MARGIN_S
        return [
            record
            for record in self._journal.records()
            if record.ownership == "abandoned" and (record.warm_until_unix_s or 0.0) > soon_s
        ]

    def used(self, fleet_id: str, job: str, machines: Collection[str]) -> None:
        """Record that a job begins to use machines. Raises StateError."""
        with self._database.transaction(durable=False) as connection:
            for machine in machines:
                connection.execute(
                    "INSERT INTO warm_uses SELECT ?1, 1 + coalesce(max(number), 0), ?2, ?3, ?4, NULL"
                    " FROM warm_uses WHERE fleet = ?1",
                    (fleet_id, job, machine, time.time()),
                )

    def returned(self, fleet_id: str) -> None:
        """Record that all uses of a fleet have ended. Raises StateError."""
        with self._database.transaction(durable=False) as connection:
            connection.execute(
                "UPDATE warm_uses SET ended_unix_s = ? WHERE fleet = ? AND ended_unix_s IS NULL",
                (time.time(), fleet_id),
            )

    def uses(self, fleet_id: str) -> list[WarmUse]:
        """Return the uses of a fleet, oldest first. Raises StateError."""
        rows = self._database.rows(
            "SELECT job, machine, began_unix_s, ended_unix_s FROM warm_uses WHERE fleet = ? ORDER BY number",
            (fleet_id,),
        )
        with damaged(f"the record of warm fleet {fleet_id}"):
            return [WarmUse(*checked(row, "ttsS")) for row in rows]
