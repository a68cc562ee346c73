"""Orphaned fleets: rented machines of this state folder that nothing uses any more. The next command ends them.

Their command was killed, or they belong to a warm fleet whose lease has expired.

Most have ended with their leases. A machine that never booted has no timer of its own, and nobody else may end it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tradewind.engine.gateways import job_of
from tradewind.fleet.fleet_records import FleetRecord
from tradewind.fleet.journal import FleetJournal
from tradewind.fleet.owner import HEARTBEAT_STALE_S, here
from tradewind.model.sites import CLOUDS
from tradewind.model.units import format_count

if TYPE_CHECKING:
    from tradewind.engine.fleets import FleetEnd, Fleets
    from tradewind.engine.job_control import JobControl

__all__ = [
    "ORPHANS_WAIT_S",
    "UNNOTICED_WAIT_S",
    "OrphanEnds",
    "ends_of",
    "has_simple_end",
    "orphaned_fleets",
    "outcome",
    "user_of",
    "whose",
]

#: Maximum time for which a command that is done waits for a provider [s].
ORPHANS_WAIT_S = 30.0
#: After this time, it says that it waits [s].
UNNOTICED_WAIT_S = 1.0


def orphaned_fleets(control: JobControl) -> list[FleetRecord]:
    """Return the fleets with rented machines whose command is gone, oldest first. Raises ConfigError, StateError.

    An acceleration is not among them while its leases last: its proxies may serve connections.
    """
    journal = FleetJournal(control.store.state_dir)
    gone = [
        each
        for each in journal.records()
        if each.abandoned and _rents(each.provider, {*each.machines.values(), *journal.open_regions(each.id)})
    ]
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

    return _is_of_this_host(record) and (record.purpose == WARM_PURPOSE or job_of(record.purpose) is not None)


def _is_of_this_host(record: FleetRecord) -> bool:
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


def user_of(record: FleetRecord) -> str:
    """Return the id of the job or acceleration for which a fleet was started; `warm` for one without."""
    return record.purpose.rpartition(" ")[2]


def whose(record: FleetRecord) -> str:
    """Return a fleet with the reason for which nothing uses it."""
    if record.warm_until_unix_s is not None:
        return f"warm fleet {record.id}, whose lease has expired,"
    if not _is_of_this_host(record):
        return f"fleet {record.id} of host {record.owner.host_name}, whose command was killed,"
    of = "" if has_simple_end(record) else f" of {record.purpose}"
    return f"fleet {record.id}{of}, whose command was killed,"


def outcome(record: FleetRecord, end: FleetEnd | None) -> tuple[Literal["note", "warning"], str] | None:
    """Describe the end of a fleet; None if there was nothing to end. Without an `end`, nobody ends it unasked."""
    if end is None:
        return "warning", f"{whose(record)} may still have machines"
    if end.error is not None:
        return "warning", f"{whose(record)} may still have machines: {end.error}"
    if end.remains is not None and not end.remains.is_nothing:
        left = end.remains.error or ", ".join(end.remains.left)
        return "warning", f"{whose(record)} may have left something: {left}"
    if end.machines:
        return "note", f"ended {format_count(end.machines, 'machine')} of {whose(record).removesuffix(',')}"
    return None


def ends_of(fleets: Fleets, record: FleetRecord) -> Iterator[FleetEnd]:
    """End a fleet that nobody uses any more, and yield its end, or why it failed; nothing if it was claimed."""
    from tradewind.engine.everywhere import FAILURES, typed_error
    from tradewind.engine.fleets import FleetEnd

    try:
        yield from fleets.end_unclaimed([record])
    except FAILURES as error:
        yield FleetEnd(record.id, error=typed_error(error))


class OrphanEnds:
    """Ends fleets in a thread of its own, while the command does its work. `on_end` gets each end in that thread."""

    def __init__(
        self, fleets: Fleets, records: Sequence[FleetRecord], on_end: Callable[[FleetEnd], object] | None = None
    ) -> None:
        self._fleets, self._on_end = fleets, on_end
        self._left = list(records)
        self._ends: list[FleetEnd] = []
        self._thread = threading.Thread(target=self._run, name="orphaned fleets", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self._left:
            for end in ends_of(self._fleets, self._left[0]):
                self._ends.append(end)
                if self._on_end is not None:
                    self._on_end(end)
            del self._left[0]

    def wait(self, limit_s: float) -> tuple[list[FleetEnd], list[FleetRecord]]:
        """Wait until all have ended, up to a limit [s]. Return the ends, and the fleets that have none yet."""
        self._thread.join(limit_s)
        return list(self._ends), list(self._left)
