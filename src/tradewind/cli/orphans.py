"""Rented machines that nothing uses any more: ended beside the work of a command, and reported when that is done."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tradewind.engine import orphans
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from tradewind.engine.engine import Engine
    from tradewind.engine.fleets import FleetEnd
    from tradewind.fleet.fleet_records import FleetRecord

__all__ = ["end_orphans_beside", "ending_orphans"]


@contextmanager
def ending_orphans(args: Namespace, engine: Engine, without: str | None = None) -> Iterator[None]:
    """End the machines of killed commands while the block runs, and report them after it.

    The block itself ends those of the job `without`. An error of the block is not delayed.
    """
    found, simple = _orphans(engine, without)
    if not found:
        yield
        return
    records = {record.id: record for record in found}
    ends = orphans.OrphanEnds(engine.fleets, simple)
    try:
        yield
    except BaseException:
        for end in ends.wait(0.0)[0]:
            _report(args, records[end.id], end)
        raise
    ended, left = ends.wait(orphans.UNNOTICED_WAIT_S)
    if left and not args.quiet and not args.json:
        whom = ", ".join(record.id for record in left)
        print(
            f"note: waiting up to {orphans.ORPHANS_WAIT_S:g} s until the machines of {whom} have ended", file=sys.stderr
        )
    ended, left = ends.wait(orphans.ORPHANS_WAIT_S)
    for end in ended:
        _report(args, records[end.id], end)
    for record in left:
        _warn(f"{orphans.whose(record)} may still have machines: its provider has not answered", record.id)
    _name_others(args, found, simple)


def end_orphans_beside(args: Namespace, engine: Engine, without: str | None = None) -> None:
    """End the machines of killed commands beside a command that runs until it is stopped, and report each at its end.

    The command itself ends those of the acceleration `without`.
    """
    found, simple = _orphans(engine, without)
    records = {record.id: record for record in found}
    _name_others(args, found, simple)
    if simple:
        orphans.OrphanEnds(engine.fleets, simple, lambda end: _report(args, records[end.id], end))


def _orphans(engine: Engine, without: str | None) -> tuple[list[FleetRecord], list[FleetRecord]]:
    """Return the fleets whose command is gone, and those of them that can be ended unasked."""
    try:
        found = [each for each in orphans.orphaned_fleets(engine.control) if orphans.user_of(each) != without]
    except TradewindError:
        found = []  # The command itself meets this error, or can do without.
    return found, [record for record in found if orphans.has_simple_end(record)]


def _name_others(args: Namespace, found: list[FleetRecord], simple: list[FleetRecord]) -> None:
    for record in found:
        if record not in simple:
            _report(args, record, None)


def _report(args: Namespace, record: FleetRecord, end: FleetEnd | None) -> None:
    kind, words = orphans.outcome(record, end) or (None, "")
    if kind == "warning":
        _warn(words, record.id)
    elif kind == "note" and not args.quiet and not args.json:
        print(f"note: {words}", file=sys.stderr)


def _warn(words: str, fleet_id: str) -> None:
    print(f"warning: {words}", f"hint: `tradewind fleet down {fleet_id}` ends it", sep="\n", file=sys.stderr)
