"""What is written down of each fleet: `fleets/ID` below the state folder, as long as the fleet is not closed.

`fleet.json` says who made it, for what and with which provider; providers keep their own records beside it. Whoever
finds a fleet whose client is gone can close it: `tradewind fleet down`.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.errors import UsageError
from tradewind.fleet.running import RunningProcess, find_process

__all__ = ["FleetJournal", "FleetRecord", "new_fleet_id"]

FILE = "fleet.json"


@dataclass(frozen=True, slots=True)
class FleetRecord:
    """One fleet that was not closed. `machines` are the regions by name that were wanted."""

    id: str
    purpose: str
    provider: Mapping[str, Any]
    machines: Mapping[str, str]
    created_unix_ms: int
    client: RunningProcess

    @property
    def abandoned(self) -> bool:
        """Whether the process that made it is gone."""
        return not self.client.alive


class FleetJournal:
    """The fleets of one state folder."""

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        self.folder = Path(state_dir) / "fleets"

    def path(self, fleet_id: str) -> Path:
        """Folder of a fleet, whether it exists or not. Raises UsageError for what is no id."""
        if not fleet_id or not all(c.isascii() and (c.isalnum() or c == "-") for c in fleet_id):
            raise UsageError(f"{fleet_id!r} is not the id of a fleet", hint="`tradewind fleet list` shows all")
        return self.folder / fleet_id

    def open(self, fleet_id: str, purpose: str, provider: Mapping[str, Any], machines: Mapping[str, str]) -> Path:
        """Writes a fleet down before any machine of it is ordered; gives its folder."""
        folder = self.path(fleet_id)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        document = {
            "id": fleet_id,
            "purpose": purpose,
            "provider": dict(provider),
            "machines": dict(machines),
            "created_unix_ms": time.time_ns() // 1_000_000,
            "client": find_process(os.getpid()).document(),
        }
        fresh = folder / f".{FILE}.{os.getpid()}"
        fresh.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        fresh.replace(folder / FILE)
        return folder

    def close(self, fleet_id: str) -> None:
        """Forgets a fleet that has no machines any more. One that is not there is no error."""
        shutil.rmtree(self.path(fleet_id), ignore_errors=True)

    def load(self, fleet_id: str) -> FleetRecord:
        """One fleet. Raises UsageError if there is none of that name."""
        record = self._read(self.path(fleet_id))
        if record is None:
            raise UsageError(f"no fleet {fleet_id}", hint="`tradewind fleet list` shows all")
        return record

    def records(self) -> Iterator[FleetRecord]:
        """All fleets that were not closed, oldest first."""
        try:
            names = sorted(entry.name for entry in self.folder.iterdir())
        except FileNotFoundError:
            return
        found = [record for name in names if (record := self._read(self.folder / name))]
        yield from sorted(found, key=lambda record: record.created_unix_ms)

    def _read(self, folder: Path) -> FleetRecord | None:
        try:
            document = json.loads((folder / FILE).read_text(encoding="utf-8"))
            return FleetRecord(
                document["id"],
                document["purpose"],
                document["provider"],
                document["machines"],
                document["created_unix_ms"],
                RunningProcess.from_document(document["client"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None  # Being made or removed by another process at this moment.


def new_fleet_id() -> str:
    """Time to the second and eight random digits: ids sort by age."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(4).hex()}"
