"""What is written down of each fleet: `fleets/ID` below the state folder, as long as the fleet is not closed.

`fleet.json` says who made it, for what and with which provider; providers keep their own records beside it. The client
holds the lock of `owner.lock` and touches `heartbeat`. Whoever finds a fleet whose client is gone can close it:
`tradewind fleet down`. Folders are private (mode 0700), and a record of another user is refused: it would name
processes for us to end.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.errors import ConfigError, GatewayError, UsageError
from tradewind.fleet.owner import Owner, Ownership, here, ownership
from tradewind.model.files import private_folder, require_own, state_folder
from tradewind.model.locks import is_locked, try_lock

__all__ = ["MACHINES", "FleetJournal", "FleetRecord", "UnreadableFleet", "new_fleet_id"]

FILE = "fleet.json"
LOCK = "owner.lock"
HEARTBEAT = "heartbeat"
#: In a fleet's folder, the records of its machines, which are the provider's.
MACHINES = "machines"
#: Maximum time for which a folder has no record while it is made or removed.
MADE_S = 10.0


@dataclass(frozen=True, slots=True)
class FleetRecord:
    """One fleet that was not closed. `machines` has the region of each requested machine by name."""

    id: str
    purpose: str
    provider: Mapping[str, Any]
    machines: Mapping[str, str]
    created_unix_ms: int
    owner: Owner
    ownership: Ownership
    heartbeat_unix_s: float

    @property
    def abandoned(self) -> bool:
        """True if the process that made it is gone."""
        return self.ownership == "abandoned"


@dataclass(frozen=True, slots=True)
class UnreadableFleet:
    """A folder among the fleets whose record cannot be read or trusted. Its machines may live."""

    id: str
    because: str


class FleetJournal:
    """The fleets of one state folder."""

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        self.folder = Path(state_dir) / "fleets"
        #: Open lock files of the fleets that this process opened.
        self._locks: dict[str, int] = {}

    def path(self, fleet_id: str) -> Path:
        """Folder of a fleet, whether it exists or not. Raises UsageError for what is no id."""
        if not fleet_id or not all(c.isascii() and (c.isalnum() or c == "-") for c in fleet_id):
            raise UsageError(f"{fleet_id!r} is not the id of a fleet", hint="`tradewind fleet list` shows all")
        return self.folder / fleet_id

    def open(self, fleet_id: str, purpose: str, provider: Mapping[str, Any], machines: Mapping[str, str]) -> Path:
        """Writes a fleet down before any machine of it is ordered, and takes its lock; gives its folder.

        Raises ConfigError if the folder is another user's, GatewayError if another process has the fleet.
        """
        state_folder(self.folder.parent)
        private_folder(self.folder)
        folder = private_folder(self.path(fleet_id))
        self._lock(fleet_id, folder)
        self.beat(fleet_id)
        document = {
            "id": fleet_id,
            "purpose": purpose,
            "provider": dict(provider),
            "machines": dict(machines),
            "created_unix_ms": time.time_ns() // 1_000_000,
            "owner": here().document(),
            "lock_inode": os.fstat(self._locks[fleet_id]).st_ino,
        }
        fresh = folder / f".{FILE}.{os.getpid()}"
        fresh.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        fresh.replace(folder / FILE)
        return folder

    def beat(self, fleet_id: str) -> None:
        """Say that the owner lives: hosts that share the folder and no locks go by it."""
        with suppress(FileNotFoundError):  # It was closed meanwhile.
            self._heartbeat(fleet_id).write_text(f"{time.time():.0f}\n", encoding="ascii")

    def close(self, fleet_id: str) -> None:
        """Remove the record of a fleet without machines. A missing record is not an error."""
        shutil.rmtree(self.path(fleet_id), ignore_errors=True)
        descriptor = self._locks.pop(fleet_id, None)
        if descriptor is not None:
            os.close(descriptor)

    def load(self, fleet_id: str) -> FleetRecord:
        """One fleet. Raises UsageError if there is none of that name, or its record cannot be read."""
        found = self._read(self.path(fleet_id))
        if found is None:
            raise UsageError(f"no fleet {fleet_id}", hint="`tradewind fleet list` shows all")
        if isinstance(found, UnreadableFleet):
            raise UsageError(f"fleet {fleet_id} cannot be used: {found.because}")
        return found

    def records(self) -> Iterator[FleetRecord]:
        """All fleets that were not closed and can be read, oldest first. Raises ConfigError."""
        yield from sorted(
            (found for found in self._all() if isinstance(found, FleetRecord)),
            key=lambda record: record.created_unix_ms,
        )

    def unreadable(self) -> list[UnreadableFleet]:
        """Return the records of fleets that cannot be read. Raises ConfigError."""
        return [found for found in self._all() if isinstance(found, UnreadableFleet)]

    def remove_remains(self) -> list[str]:
        """Remove folders that have neither a record nor machines, and no owner; return their names.

        A client was killed while it made or forgot its fleet. Raises ConfigError.
        """
        removed = []
        for found in self.unreadable():
            folder = self.folder / found.id
            with suppress(ConfigError, OSError):
                require_own(folder)
                has_record = (folder / FILE).exists() or any(folder.glob(f"{MACHINES}/*"))
                if not has_record and _left_alone(folder):
                    shutil.rmtree(folder)
                    removed.append(found.id)
        return removed

    def _all(self) -> Iterator[FleetRecord | UnreadableFleet]:
        try:
            require_own(self.folder)
            names = sorted(entry.name for entry in self.folder.iterdir() if entry.is_dir())
        except FileNotFoundError:
            return
        for name in names:
            if (found := self._read(self.folder / name)) is not None:
                yield found

    def _read(self, folder: Path) -> FleetRecord | UnreadableFleet | None:
        """None for a folder that is not there, or is being made or removed by another process at this moment."""
        try:
            require_own(folder)
            require_own(folder / FILE)
            document = json.loads((folder / FILE).read_text(encoding="utf-8"))
            if document["id"] != folder.name:
                raise ValueError("it is the record of another fleet")
            lock_inode = document.get("lock_inode")
            if lock_inode is not None and lock_inode != os.stat(folder / LOCK).st_ino:
                # Its lock is free whatever the owner does: the owner holds the one in the folder that was copied.
                return UnreadableFleet(folder.name, "it was copied from another state folder, which has the fleet")
            owner = Owner.from_document(document["owner"])
            locked, heartbeat_unix_s = is_locked(folder / LOCK), self._last_beat(folder)
            return FleetRecord(
                document["id"],
                document["purpose"],
                dict(document["provider"]),
                dict(document["machines"]),
                int(document["created_unix_ms"]),
                owner,
                ownership(owner, locked=locked, heartbeat_unix_s=heartbeat_unix_s),
                heartbeat_unix_s,
            )
        except FileNotFoundError:
            return UnreadableFleet(folder.name, f"it has no {FILE}") if _left_alone(folder) else None
        except ConfigError as error:
            return UnreadableFleet(folder.name, str(error))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            return UnreadableFleet(folder.name, f"{FILE} cannot be read ({type(error).__name__}: {error})")

    def _lock(self, fleet_id: str, folder: Path) -> None:
        if fleet_id in self._locks:
            return
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not try_lock(descriptor):
            os.close(descriptor)
            raise GatewayError(f"another process has fleet {fleet_id}")
        self._locks[fleet_id] = descriptor

    def _heartbeat(self, fleet_id: str) -> Path:
        return self.path(fleet_id) / HEARTBEAT

    @staticmethod
    def _last_beat(folder: Path) -> float:
        try:
            return float((folder / HEARTBEAT).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0.0


def _left_alone(folder: Path) -> bool:
    """Return whether a folder without a record is not being made or removed right now."""
    try:
        return not is_locked(folder / LOCK) and time.time() - folder.stat().st_mtime > MADE_S
    except OSError:
        return False


def new_fleet_id() -> str:
    """Time to the second and eight random digits: ids sort by age."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(4).hex()}"
