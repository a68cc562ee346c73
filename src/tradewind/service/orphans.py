"""Ends rented machines that nothing uses any more while a server runs: those of killed servers and commands.

The rules are those of the command line (`engine/orphans.py`). A fleet that must not be ended unasked is only named.
"""

from __future__ import annotations

import logging

from tradewind.engine.engine import Engine
from tradewind.engine.fleets import FleetEnd
from tradewind.engine.orphans import ends_of, has_simple_end, orphaned_fleets, outcome
from tradewind.fleet.fleet_records import FleetRecord

__all__ = ["Orphans"]

_LOG = logging.getLogger("tradewind.service")


class Orphans:
    """The fleets of the server's state folder whose command is gone."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: The last line that was logged about each fleet that still exists.
        self._said: dict[str, str] = {}

    def step(self) -> None:
        """End the machines of killed commands, and log their ends; a failure again only if its reason has changed.

        Raises ConfigError, StateError.
        """
        found = orphaned_fleets(self._engine.control)
        self._said = {record.id: self._said[record.id] for record in found if record.id in self._said}
        for record in found:
            if has_simple_end(record):
                for end in ends_of(self._engine.fleets, record):
                    self._log(record, end)
            else:
                self._log(record, None)

    def _log(self, record: FleetRecord, end: FleetEnd | None) -> None:
        kind, words = outcome(record, end) or (None, "")
        if kind is None or self._said.get(record.id) == words:
            return
        self._said[record.id] = words
        hint = f"; `tradewind fleet down {record.id}` ends it" if kind == "warning" else ""
        _LOG.warning("%s%s", words, hint)
