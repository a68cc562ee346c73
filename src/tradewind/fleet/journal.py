"""The record of each fleet in the state folder's database, and its folder in `fleets` until it is closed.

A record holds the owner, the purpose, the provider, the wanted machines, each attempt to launch one, and when each
machine was launched, answered and ended. The wanted machines are the intent: it is written before machines are ordered
and before they are ended. The fleet's folder holds control sockets and logs. The client locks `owner.lock` there, and
writes a heartbeat. When the client of a fleet is gone, any process can close it: `tradewind fleet down`. Folders are
private (mode 0700); a folder of another user is refused.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tradewind.errors import ConfigError, FleetNotFound, FleetTaken, GatewayError, StateError, UsageError
from tradewind.fleet.fleet_records import (
    KILLED_BEFORE,
    NEVER_LAUNCHED,
    Attempt,
    FleetRecord,
    Intent,
    Legible,
    MachineLife,
    UnreadableFleet,
)
from tradewind.fleet.owner import Owner, here, ownership
from tradewind.model.clock import host_unix_s
from tradewind.model.document import parse_json
from tradewind.model.files import private_folder, remove_folder, require_own, state_folder
from tradewind.model.locks import FileLock, is_locked
from tradewind.model.records import fields, replace
from tradewind.state.database import open_database
from tradewind.state.digest import with_digest, without_digest
from tradewind.state.values import checked, damaged

__all__ = [
    "TAKEN_HINT",
    "FleetJournal",
    "new_fleet_id",
]

LOCK = "owner.lock"
#: Maximum time for which a folder has no record while it is made or removed.
MADE_S = 10.0
#: Maximum number of records of closed fleets, with the times of their machines. The oldest are removed first.
CLOSED_FLEETS_MAX = 1000
#: Timeout of writing a heartbeat or the time of a machine while another process writes.
BUSY_S = 2.0
TAKEN_HINT = "nothing was started; plan the transfer again"

#: Condition of a fleet whose record is not closed. No fleet was closed in 1970: if one bit of the type of this value
#: flips, SQLite reads 0 in place of NULL, and nobody would look for the machines any more.
_OPEN = "coalesce(closed_unix_s, 0) = 0"
_COLUMNS = "id, purpose, provider, wanted, created_unix_ms, owner, lock_inode, heartbeat_unix_s"
#: The end of the last lease of a warm fleet, at most the end that `fleet up` has set.
_WARM_UNTIL = (
    "(SELECT min(ends_unix_s, (SELECT max(lapses_unix_s) FROM leases WHERE leases.fleet = fleets.id))"
    " FROM warm_fleets WHERE warm_fleets.fleet = fleets.id)"
)


class FleetJournal:
    """The fleets of one state folder.

    `unix_s` returns the Unix time that dates the lives of machines and the attempts to launch them [s]. Owners,
    heartbeats and leases are dated by the clock of this machine.
    """

    def __init__(self, state_dir: str | os.PathLike[str], unix_s: Callable[[], float] = host_unix_s) -> None:
        self.folder, self.unix_s = Path(state_dir) / "fleets", unix_s
        self.database = open_database(state_dir)
        #: Locks of the fleets that this process opened.
        self._locks: dict[str, FileLock] = {}

    def path(self, fleet_id: str) -> Path:
        """Return the folder of a fleet, whether or not it exists. Raises UsageError for an invalid id."""
        if not fleet_id or not all(c.isascii() and (c.isalnum() or c == "-") for c in fleet_id):
            raise UsageError(f"{fleet_id!r} is not the id of a fleet", hint="`tradewind fleet list` shows the ids")
        return self.folder / fleet_id

    def open(self, fleet_id: str, purpose: str, provider: Mapping[str, Any], machines: Mapping[str, str]) -> Path:
        """Acquire the lock of a fleet, record it and the machines that it wants, and return its folder.

        Call it before any machine is ordered. Raises ConfigError if the folder is another user's, GatewayError if
        another process has the fleet, StateError if it cannot be recorded.
        """
        state_folder(self.folder.parent)
        private_folder(self.folder)
        folder = private_folder(self.path(fleet_id))
        self._lock(fleet_id, folder)
        try:
            self._record(fleet_id, purpose, provider, machines)
        except BaseException:
            self.give_back(fleet_id)  # `remove_remains` removes the folder.
            raise
        return folder

    def _record(self, fleet_id: str, purpose: str, provider: Mapping[str, Any], machines: Mapping[str, str]) -> None:
        now_s = time.time()
        # Without machines all of the fleet are processes beside the client, which no power loss leaves behind.
        with self.database.transaction(durable=bool(machines)) as connection:
            connection.execute(
                f"INSERT INTO fleets ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    fleet_id,
                    purpose,
                    json.dumps(with_digest(provider, fleet_id)),
                    json.dumps(dict(machines)),
                    int(now_s * 1000),
                    json.dumps(here().document()),
                    str(os.stat(self.path(fleet_id) / LOCK).st_ino),
                    now_s,
                ),
            )

    def take(self, fleet_id: str, machines: Mapping[str, str]) -> Path:
        """Claim a warm fleet for this process, record the machines that it wants in addition, and return its folder.

        Raises FleetTaken if another process uses the fleet or it has ended, StateError.
        """
        folder = self.path(fleet_id)
        try:
            self._lock(fleet_id, folder)
        except (GatewayError, OSError) as error:
            raise FleetTaken(f"warm fleet {fleet_id} is in use or has ended", hint=TAKEN_HINT) from error
        try:
            found = self.load(fleet_id)
            self.intend(fleet_id, {**found.machines, **machines})
            with self.database.transaction() as connection:
                connection.execute(
                    "UPDATE fleets SET owner = ? WHERE id = ?", (json.dumps(here().document()), fleet_id)
                )
        except (GatewayError, UsageError) as error:
            self.give_back(fleet_id)
            raise FleetTaken(f"warm fleet {fleet_id} has ended", hint=TAKEN_HINT) from error
        except BaseException:
            self.give_back(fleet_id)
            raise
        return folder

    def has_lock(self, fleet_id: str) -> bool:
        """Return whether the lock of a fleet is there, so that it tells whether a process holds it."""
        return (self.path(fleet_id) / LOCK).exists()

    def claim(self, fleet_id: str) -> bool:
        """Keep other processes from using a fleet, to end it. Return False if one of them uses it."""
        try:
            self._lock(fleet_id, self.path(fleet_id))
        except GatewayError:
            return False
        except FileNotFoundError:
            pass  # Its folder was removed by hand, so nobody can have it.
        return True

    def is_open(self, fleet_id: str) -> bool:
        """Return whether a fleet has a record that is not closed. Raises StateError."""
        return bool(self.database.rows(f"SELECT 1 FROM fleets WHERE id = ? AND {_OPEN}", (fleet_id,)))

    def give_back(self, fleet_id: str) -> None:
        """Release the claim on a fleet without closing its record."""
        lock = self._locks.pop(fleet_id, None)
        if lock is not None:
            lock.release()

    def intend(self, fleet_id: str, machines: Mapping[str, str]) -> int:
        """Record the machines that a fleet wants from now on; return the generation of this intent.

        Raises GatewayError if another process has ended the fleet, StateError if it cannot be recorded.
        """
        with self.database.transaction() as connection:
            changed = connection.execute(
                "UPDATE fleets SET wanted = ?, generation = generation + 1, heartbeat_unix_s = ?"
                f" WHERE id = ? AND NOT dismissed AND {_OPEN}",
                (json.dumps(dict(machines)), time.time(), fleet_id),
            ).rowcount
            found = connection.execute("SELECT generation FROM fleets WHERE id = ?", (fleet_id,)).fetchall()
        if not changed:
            raise GatewayError(f"fleet {fleet_id} was ended by another process")
        return int(found[0][0])

    def dismiss(self, fleet_id: str) -> None:
        """Record that no machine of a fleet is wanted any more. The owner, in whatever process, then orders no more.

        Raises StateError if it cannot be recorded.
        """
        with self.database.transaction(durable=False) as connection:
            connection.execute(
                "UPDATE fleets SET dismissed = 1, generation = generation + 1 WHERE id = ? AND NOT dismissed",
                (fleet_id,),
            )

    def intent(self, fleet_id: str) -> Intent:
        """Return the wanted machines. A process that launched an unwanted one must terminate it. Raises StateError."""
        rows = self.database.rows(
            f"SELECT generation, CASE WHEN {_OPEN} AND NOT dismissed THEN wanted ELSE '{{}}' END"
            " FROM fleets WHERE id = ?",
            (fleet_id,),
        )
        return Intent(int(rows[0][0]), dict(parse_json(rows[0][1]))) if rows else Intent(0, {})

    def record_attempt(self, fleet_id: str, attempt: Attempt) -> None:
        """Add an attempt to launch a machine."""
        self.note(
            "INSERT INTO attempts SELECT ?1, 1 + coalesce(max(number), 0), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9"
            " FROM attempts WHERE fleet = ?1",
            (fleet_id, *(getattr(attempt, each.name) for each in fields(attempt))),
        )

    def attempts(self, fleet_id: str) -> list[Attempt]:
        """Return the attempts to launch machines of a fleet, oldest first, even after the fleet was closed.

        Raises FleetNotFound, StateError.
        """
        self.path(fleet_id)
        if not self.database.rows("SELECT 1 FROM fleets WHERE id = ?", (fleet_id,)):
            raise FleetNotFound(f"no fleet {fleet_id} in this state folder", hint="`tradewind fleet list` shows them")
        rows = self.database.rows(
            "SELECT unix_s, name, region, outcome, reason, type, zone, action FROM attempts WHERE fleet = ?"
            " ORDER BY number",
            (fleet_id,),
        )
        with damaged(f"the record of fleet {fleet_id}"):
            return [Attempt(*checked(row, "sttttTTT")) for row in rows]

    def beat(self, fleet_id: str) -> None:
        """Write the owner's heartbeat, on which hosts rely that share the folder but no locks. A failure is ignored."""
        self.note("UPDATE fleets SET heartbeat_unix_s = ? WHERE id = ?", (time.time(), fleet_id))

    def launched(self, fleet_id: str, name: str, region: str, lease_s: int | None = None) -> None:
        """Note that a machine is about to be ordered, with its first lease."""
        self.note(
            "INSERT INTO machines (fleet, number, name, region, launched_unix_s, lease_s)"
            " SELECT ?1, 1 + coalesce(max(number), 0), ?2, ?3, ?4, ?5 FROM machines WHERE fleet = ?1",
            (fleet_id, name, region, self.unix_s(), lease_s),
        )

    def ready(self, fleet_id: str, name: str, lease_s: float, booted_ago_s: float | None = None) -> None:
        """Note that a machine answers, and that its lease expires in `lease_s` unless it is renewed.

        `booted_ago_s` is the time since it began to run its boot script.
        """
        now_s = self.unix_s()
        self.note(
            "UPDATE machines SET ready_unix_s = ?, booted_unix_s = ? WHERE fleet = ? AND name = ?"
            " AND ready_unix_s IS NULL AND ended_unix_s IS NULL",
            (now_s, None if booted_ago_s is None else now_s - booted_ago_s, fleet_id, name),
        )
        self.leased(fleet_id, name, lease_s)

    def running(self, fleet_id: str, name: str) -> None:
        """Note that the provider says that a machine runs."""
        self.note(
            "UPDATE machines SET running_unix_s = ? WHERE fleet = ? AND name = ? AND running_unix_s IS NULL"
            " AND ended_unix_s IS NULL",
            (self.unix_s(), fleet_id, name),
        )

    def listed(self, fleet_id: str, names: Collection[str]) -> None:
        """Note that the provider has these machines, for those that have not answered."""
        for name in names:
            self.note(
                "UPDATE machines SET running_unix_s = ? WHERE fleet = ? AND name = ? AND running_unix_s IS NULL"
                " AND ready_unix_s IS NULL AND ended_unix_s IS NULL",
                (self.unix_s(), fleet_id, name),
            )

    def moved(self, fleet_id: str, name: str) -> None:
        """Note that bytes move on a route of a machine's gateway."""
        self.note(
            "UPDATE machines SET first_byte_unix_s = ? WHERE fleet = ? AND name = ? AND first_byte_unix_s IS NULL"
            " AND ended_unix_s IS NULL",
            (self.unix_s(), fleet_id, name),
        )

    def leased(self, fleet_id: str, name: str, lease_s: float) -> None:
        """Note that the lease of a machine was renewed for `lease_s` from now."""
        self.note("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", (fleet_id, name, time.time() + lease_s))

    def lease_ends(self, fleet_id: str) -> dict[str, float]:
        """Return when the lease of each running machine expires unless it is renewed [Unix s]. Raises StateError.

        The machine has ended by then, whether or not it can be reached. A damaged lease is left out.
        """
        rows = self.database.rows(
            "SELECT machine, lapses_unix_s FROM leases WHERE fleet = ? AND machine IN"
            " (SELECT name FROM machines WHERE machines.fleet = leases.fleet AND ended_unix_s IS NULL)",
            (fleet_id,),
        )
        found: dict[str, float] = {}
        for row in rows:
            with suppress(ValueError):
                name, ends_unix_s = checked(row, "ts")
                found[name] = ends_unix_s
        return found

    def lives(self, fleet_id: str) -> list[tuple[str, float, float | None]]:
        """Return name, launch and end of each machine of a fleet [Unix s], oldest first; None for one that runs.

        Raises StateError.
        """
        rows = self.database.rows(
            "SELECT name, launched_unix_s, ended_unix_s FROM machines WHERE fleet = ? ORDER BY number", (fleet_id,)
        )
        with damaged(f"the record of fleet {fleet_id}"):
            return [(name, began_s, ended_s) for name, began_s, ended_s in (checked(row, "tsS") for row in rows)]

    def lives_of(self, purpose: str) -> list[MachineLife]:
        """Return the machines of all fleets of a purpose, also of closed ones, oldest first. Raises StateError.

        An order that was repeated, because the answer was lost, has a row of its own, but the machine is the same.
        """
        rows = self.database.rows(
            "SELECT fleet, name, machines.region, launched_unix_s, ended_unix_s FROM machines"
            " JOIN fleets ON fleets.id = machines.fleet WHERE fleets.purpose = ? ORDER BY fleet, number",
            (purpose,),
        )
        found: list[MachineLife] = []
        latest: dict[tuple[str, str], MachineLife] = {}
        for row in rows:
            with damaged(f"the record of fleet {row[0]}"):
                life = MachineLife(*checked(row, "tttsS"))
            before = latest.get((life.fleet, life.name))
            if before is None or (before.ended_unix_s is not None and before.ended_unix_s <= life.began_unix_s):
                found.append(life)
                latest[life.fleet, life.name] = life
        return found

    def open_of(self, purpose: str) -> list[str]:
        """Return the fleets of a purpose that are not closed, oldest first, also unreadable ones. Raises StateError."""
        rows = self.database.rows(
            f"SELECT id FROM fleets WHERE purpose = ? AND {_OPEN} ORDER BY created_unix_ms, id", (purpose,)
        )
        return [fleet_id for (fleet_id,) in rows]

    def open_regions(self, fleet_id: str) -> set[str]:
        """Return the regions of the machines whose end was not noted, wanted or not. Raises StateError."""
        rows = self.database.rows(
            "SELECT DISTINCT region FROM machines WHERE fleet = ? AND ended_unix_s IS NULL", (fleet_id,)
        )
        return {region for (region,) in rows}

    def legible(self, fleet_id: str) -> Legible:
        """Return what a damaged record still says. Raises StateError."""
        found = Legible(None, {str(region) for region in self.open_regions(fleet_id)}, None)
        rows = self.database.rows("SELECT provider, wanted, owner FROM fleets WHERE id = ?", (fleet_id,))
        for provider, wanted, owner in rows:
            with suppress(ValueError, TypeError):
                found = replace(found, kind=dict(parse_json(provider)).get("kind"))
            with suppress(ValueError, TypeError):
                found = replace(found, regions={*found.regions, *_regions(wanted).values()})
            with suppress(ValueError, TypeError, KeyError):
                found = replace(found, owner=Owner.from_document(parse_json(owner)))
        return found

    def refused(self, fleet_id: str, names: Collection[str]) -> None:
        """Note that machines were ordered but not launched."""
        for name in names:
            self.note("DELETE FROM machines WHERE fleet = ? AND name = ? AND ended_unix_s IS NULL", (fleet_id, name))

    def never_launched(self, fleet_id: str, names: Collection[str]) -> None:
        """Note that a killed client was about to order machines, and that the provider never had them."""
        for name in names:
            rows = self.database.rows("SELECT region FROM machines WHERE fleet = ? AND name = ?", (fleet_id, name))
            for (region,) in rows[-1:]:
                self.record_attempt(fleet_id, Attempt(self.unix_s(), name, region, NEVER_LAUNCHED, KILLED_BEFORE))
        self.refused(fleet_id, names)

    def unlaunched_of(self, purpose: str) -> dict[str, set[str]]:
        """Return the machines of `never_launched` of a purpose, by fleet, whichever process has ended that."""
        rows = self.database.rows(
            "SELECT attempts.fleet, attempts.name FROM attempts JOIN fleets ON fleets.id = attempts.fleet"
            " WHERE fleets.purpose = ? AND attempts.outcome = ?",
            (purpose, NEVER_LAUNCHED),
        )
        found: dict[str, set[str]] = {}
        for fleet_id, name in rows:
            found.setdefault(fleet_id, set()).add(name)
        return found

    def unanswered(self, fleet_id: str, lease_s_min: int) -> set[str]:
        """Return the machines of which nothing was heard, and whose first leases cannot have expired.

        The answers to their orders may be lost. A lease that was not noted lasts `lease_s_min`. If the clock was set
        back behind an order, nobody knows how old that is, so its lease may have expired.
        """
        return self._unheard(fleet_id, "launched_unix_s + coalesce(lease_s, ?3) > ?2", lease_s_min)

    def just_ordered(self, fleet_id: str, younger_s: float) -> set[str]:
        """Return the machines of which nothing was heard, and which were ordered in the last `younger_s`."""
        return self._unheard(fleet_id, "launched_unix_s > ?2 - ?3", younger_s)

    def _unheard(self, fleet_id: str, condition: str, value: float) -> set[str]:
        rows = self.database.rows(
            "SELECT name FROM machines WHERE fleet = ?1 AND ended_unix_s IS NULL AND ready_unix_s IS NULL"
            f" AND running_unix_s IS NULL AND launched_unix_s <= ?2 AND {condition}"
            " AND name NOT IN (SELECT name FROM attempts WHERE fleet = ?1 AND outcome = 'launched')",
            (fleet_id, self.unix_s(), value),
        )
        return {name for (name,) in rows}

    def may_be_unlisted(self, fleet_id: str, younger_s: float) -> dict[str, int]:
        """Return the machines that were launched in the last `younger_s`, and whose leases last, each with the number
        of machines that had its name so far. Raises StateError.

        The provider has acknowledged them, or they have answered. So they run, although a list may omit them. If the
        clock was set back behind a launch, nobody knows how long ago that was.
        """
        rows = self.database.rows(
            "SELECT name, launched_unix_s + coalesce(lease_s, 0.0) > ?2 OR name IN"
            " (SELECT machine FROM leases WHERE fleet = ?1 AND lapses_unix_s > ?4)"
            " FROM machines WHERE fleet = ?1 AND ended_unix_s IS NULL AND launched_unix_s >= ?2 - ?3"
            " AND (ready_unix_s IS NOT NULL OR name IN"
            " (SELECT name FROM attempts WHERE fleet = ?1 AND outcome = 'launched'))",
            (fleet_id, self.unix_s(), younger_s, time.time()),
        )
        ordered = self.ordered(fleet_id)
        return {name: ordered[name] for name, is_leased in rows if is_leased}

    def ordered(self, fleet_id: str) -> Counter[str]:
        """Return how many machines of each name a fleet has had. Raises StateError."""
        return Counter(name for (name,) in self.database.rows("SELECT name FROM machines WHERE fleet = ?", (fleet_id,)))

    def ended(self, fleet_id: str, names: Collection[str], ago_s: float = 0.0) -> None:
        """Note that machines ended `ago_s` ago. An end that was noted before is kept."""
        end_s = self.unix_s() - ago_s
        for name in names:
            self.note(
                "UPDATE machines SET ended_unix_s = max(launched_unix_s, ?) WHERE fleet = ? AND name = ?"
                " AND ended_unix_s IS NULL",
                (end_s, fleet_id, name),
            )

    def close(self, fleet_id: str) -> None:
        """Close the record of a fleet without machines, and remove its folder. A missing record is not an error."""
        remove_folder(self.path(fleet_id))
        try:
            with self.database.transaction(durable=False) as connection:
                self._close(connection, fleet_id)
        finally:
            self.give_back(fleet_id)

    def _close(self, connection: sqlite3.Connection, fleet_id: str) -> None:
        now_s = self.unix_s()
        connection.execute("UPDATE fleets SET closed_unix_s = ? WHERE id = ?", (now_s, fleet_id))
        connection.execute("DELETE FROM leases WHERE fleet = ?", (fleet_id,))
        connection.execute(
            "UPDATE machines SET ended_unix_s = ? WHERE fleet = ? AND ended_unix_s IS NULL", (now_s, fleet_id)
        )
        removed = connection.execute(
            f"DELETE FROM fleets WHERE id IN (SELECT id FROM fleets WHERE NOT {_OPEN}"
            " ORDER BY id DESC LIMIT -1 OFFSET ?)",
            (CLOSED_FLEETS_MAX,),
        )
        if removed.rowcount > 0:
            connection.execute("DELETE FROM machines WHERE fleet NOT IN (SELECT id FROM fleets)")
            for table in ("attempts", "warm_fleets", "warm_uses"):
                connection.execute(f"DELETE FROM {table} WHERE fleet NOT IN (SELECT id FROM fleets)")

    def load(self, fleet_id: str) -> FleetRecord:
        """Return one fleet. Raises FleetNotFound, and UsageError if its record cannot be read."""
        self.path(fleet_id)
        found = next((found for found in self._all() if found.id == fleet_id), None)
        if found is None:
            raise FleetNotFound(f"no fleet {fleet_id} in this state folder", hint="`tradewind fleet list` shows them")
        if isinstance(found, UnreadableFleet):
            raise UsageError(f"fleet {fleet_id} cannot be used: {found.because}")
        return found

    def records(self) -> Iterator[FleetRecord]:
        """Yield all readable fleets that are not closed, oldest first. Raises ConfigError."""
        yield from sorted(
            (found for found in self._all() if isinstance(found, FleetRecord)),
            key=lambda record: record.created_unix_ms,
        )

    def unreadable(self) -> list[UnreadableFleet]:
        """Return the unreadable fleets. Raises ConfigError."""
        return [found for found in self._all() if isinstance(found, UnreadableFleet)]

    def remove_remains(self) -> list[str]:
        """Remove folders that have neither a record nor an owner; return their names.

        Such a folder remains if a client is killed before its fleet's first machine or after the last. Raises
        ConfigError.
        """
        removed = []
        for found in self.unreadable():
            folder = self.folder / found.id
            with suppress(ConfigError, OSError):
                require_own(folder)
                if not found.has_record and _left_alone(folder):
                    import shutil

                    shutil.rmtree(folder)
                    removed.append(found.id)
        return removed

    def _all(self) -> Iterator[FleetRecord | UnreadableFleet]:
        """Yield all fleets that are not closed, and all folders without a record. Raises ConfigError, StateError."""
        rows = self.database.rows(f"SELECT {_COLUMNS}, {_WARM_UNTIL} FROM fleets WHERE {_OPEN} ORDER BY id")
        yield from map(self._read, rows)
        known = {row[0] for row in rows}
        noted = dict(self.database.rows("SELECT id, reason FROM imports WHERE kind = 'fleets'"))
        try:
            require_own(self.folder)
            names = sorted(entry.name for entry in self.folder.iterdir() if entry.is_dir())
        except FileNotFoundError:
            return
        for name in names:
            if name in noted:
                yield UnreadableFleet(name, f"fleet.json cannot be read ({noted[name]})")
            elif name not in known and _left_alone(self.folder / name):
                yield UnreadableFleet(name, "it has no record", has_record=False)

    def _read(self, row: Sequence[Any]) -> FleetRecord | UnreadableFleet:
        fleet_id, purpose, provider, machines, created_unix_ms, owner_text, lock_inode, heartbeat_unix_s, warm = row
        folder = self.folder / str(fleet_id)
        try:
            checked(row, "ttttmtTsS")
            with suppress(FileNotFoundError):  # A folder that was removed by hand has no lock to check.
                require_own(folder)
                if lock_inode is not None and lock_inode != str(os.stat(folder / LOCK).st_ino):
                    # The lock of a copied folder says nothing: the owner holds the lock in the original folder.
                    return UnreadableFleet(fleet_id, "its folder is a copy; the fleet belongs to another state folder")
            owner = Owner.from_document(parse_json(owner_text))
            return FleetRecord(
                fleet_id,
                purpose,
                _provider(fleet_id, provider),
                _regions(machines),
                created_unix_ms,
                owner,
                ownership(owner, locked=is_locked(folder / LOCK), heartbeat_unix_s=heartbeat_unix_s),
                heartbeat_unix_s,
                warm,
            )
        except ConfigError as error:
            return UnreadableFleet(str(fleet_id), str(error))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            return UnreadableFleet(str(fleet_id), f"its record cannot be read ({type(error).__name__}: {error})")

    def note(self, statement: str, values: Sequence[Any]) -> None:
        """Write a fact that is for information only: failures are ignored."""
        with suppress(StateError, ConfigError, OSError), self.database.transaction(durable=False, busy_s=BUSY_S) as own:
            own.execute(statement, values)

    def _lock(self, fleet_id: str, folder: Path) -> None:
        if fleet_id in self._locks:
            return
        lock = FileLock.take(folder / LOCK)
        if lock is None:
            raise GatewayError(f"fleet {fleet_id} is in use by another process")
        self._locks[fleet_id] = lock


def _provider(fleet_id: str, text: str) -> dict[str, Any]:
    """Return the document of a fleet's provider. Raises ValueError, TypeError.

    In another region or account than that of the fleet there are no machines, so the fleet would be taken for ended.
    """
    document = dict(parse_json(text))
    if not isinstance(document.get("kind"), str):
        raise ValueError("its provider has no kind")
    try:
        return without_digest(document, fleet_id)
    except ValueError:
        raise ValueError("its provider is not the one that was recorded") from None


def _regions(text: str) -> dict[str, str]:
    """Return the regions of wanted machines, by name. Raises ValueError, TypeError."""
    found = dict(parse_json(text))
    checked([*found.values()], "t" * len(found))
    return found


def _left_alone(folder: Path) -> bool:
    """Return whether no process is making or removing this folder right now."""
    try:
        return not is_locked(folder / LOCK) and time.time() - folder.stat().st_mtime > MADE_S
    except OSError:
        return False


def new_fleet_id() -> str:
    """Return a new id: the time in seconds, so that ids sort by age, and eight random hex digits."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(4).hex()}"
