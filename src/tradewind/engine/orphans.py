"""Orphaned fleets: rented machines of this state folder that nothing uses any more. The next command ends them.

Their command was killed, or they belong to a warm fleet whose lease has expired.

Most have ended with their leases. A machine that never booted has no timer of its own, and nobody else may end it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.engine.gateways import job_of
from tradewind.fleet.journal import FleetJournal, FleetRecord
from tradewind.fleet.owner import HEARTBEAT_STALE_S, here
from tradewind.model.sites import CLOUDS

if TYPE_CHECKING:
    from tradewind.engine.fleets import FleetEnd, Fleets
    from tradewind.engine.job_control import JobControl

__all__ = ["ORPHANS_WAIT_S", "UNNOTICED_WAIT_S", "OrphanEnds", "has_simple_end", "is_of_this_host", "orphaned_fleets"]

#: Maximum time for which a command that is done waits for a provider [s].
ORPHANS_WAIT_S = 30.0
#: After this time, it says that it waits [s].
UNNOTICED_WAIT_S = 1.0


def orphaned_fleets(control: JobControl) -> list[FleetRecord]:
    """Return the fleets with rented machines whose command is gone, oldest first. Raises ConfigError, StateError.

    An acceleration is not among them while its leases last: its proxies may serve connections.
    """
    journal = FleetJournal(control.store.state_dir)
    gone = [each for each in journal.records() if each.abandoned and _rents(each.provider, each.machines.values())]
    now_s = time.time()
    return [
        each
        for each in gone
        # Without the lock, which was removed by hand, only the heartbeat tells that the command is gone.
        if (journal.has_lock(each.id) or now_s - each.heartbeat_unix_s >= HEARTBEAT_STALE_S)
        and (has_simple_end(each) or all(end_s <= now_s for end_s in journal.lease_ends(each.id).values()))
    ]


def has_simple_end(record: FleetRecord) -> bool:
    """Return whether a fleet can be ended unasked: that of a job or of `fleet up`, but not that of an acceleration.

    An acceleration counts the cost of its machines when it is resumed or ended, from the record of its fleet.
    """
    from tradewind.fleet.warm import WARM_PURPOSE

    return is_of_this_host(record) and (record.purpose == WARM_PURPOSE or job_of(record.purpose) is not None)


def is_of_this_host(record: FleetRecord) -> bool:
    """Return whether the command ran on this host. A host with a copy of its disk has the same id, but another name.

    The command may run there, although the heartbeat in the copied database has stopped.
    """
    this = here()
    return record.owner.boot == this.boot or record.owner.host_name == this.host_name


def _rents(document: Mapping[str, Any], regions: Collection[str]) -> bool:
    """Return whether machines in these regions are rented from a cloud or a cluster."""
    if document.get("kind") in CLOUDS:
        return bool(regions)
    members: Sequence[Mapping[str, Any]] = document.get("members", ())
    return any(_rents(one["provider"], set(regions) & set(one["regions"])) for one in members)


class OrphanEnds:
    """Ends fleets in a thread of its own, while the command does its work."""

    def __init__(self, fleets: Fleets, records: Sequence[FleetRecord]) -> None:
        self._fleets = fleets
        self._left = list(records)
        self._ends: list[FleetEnd] = []
        self._thread = threading.Thread(target=self._run, name="orphaned fleets", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        from tradewind.engine.everywhere import FAILURES, typed_error
        from tradewind.engine.fleets import FleetEnd

        while self._left:
            try:
                self._ends += self._fleets.end_unclaimed(self._left[:1])
            except FAILURES as error:
                self._ends.append(FleetEnd(self._left[0].id, error=typed_error(error)))
            del self._left[0]

    def wait(self, limit_s: float) -> tuple[list[FleetEnd], list[FleetRecord]]:
        """Wait until all have ended, up to a limit [s]. Return the ends, and the fleets that have none yet."""
        self._thread.join(limit_s)
        return list(self._ends), list(self._left)
