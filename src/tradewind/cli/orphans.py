"""Rented machines of killed commands: ended beside the work of a command, and reported when that is done."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tradewind.engine import orphans
from tradewind.errors import TradewindError
from tradewind.model.units import format_count

if TYPE_CHECKING:
    from tradewind.engine.engine import Engine
    from tradewind.engine.fleets import FleetEnd
    from tradewind.fleet.journal import FleetRecord

__all__ = ["ending_orphans"]


@contextmanager
def ending_orphans(args: Namespace, engine: Engine) -> Iterator[None]:
    """End the machines of killed commands while the block runs, and report them after it.

    An error of the block is not delayed.
    """
    try:
        found = orphans.orphaned_fleets(engine.control)
    except TradewindError:
        found = []  # The block itself meets this error, or can do without.
    if not found:
        yield
        return
    simple = [record for record in found if orphans.has_simple_end(record)]
    ends = orphans.OrphanEnds(engine.fleets, simple)
    limit_s = 0.0
    try:
        yield
        limit_s = orphans.ORPHANS_WAIT_S
    finally:
        _report(args, *ends.wait(limit_s))
        _report_named([record for record in found if record not in simple])


def _report(args: Namespace, ended: Sequence[FleetEnd], left: Sequence[FleetRecord]) -> None:
    for end in ended:
        whose = f"fleet {end.id}, whose command was killed,"
        if end.error is not None:
            _warn(f"{whose} may still have machines: {end.error}", end.id)
        elif end.remains is not None and not end.remains.is_nothing:
            _warn(f"{whose} may have left something: {end.remains.error or ', '.join(end.remains.left)}", end.id)
        elif end.machines and not args.quiet and not args.json:
            machines = format_count(end.machines, "machine")
            print(f"note: ended {machines} of fleet {end.id}, whose command was killed", file=sys.stderr)
    for record in left:
        why = "its provider has not answered"
        _warn(f"fleet {record.id}, whose command was killed, may still have machines: {why}", record.id)


def _report_named(records: Sequence[FleetRecord]) -> None:
    for record in records:
        whose = f"fleet {record.id} of {record.purpose}, whose command was killed,"
        _warn(f"{whose} may still have machines", record.id)


def _warn(words: str, fleet_id: str) -> None:
    print(f"warning: {words}", f"hint: `tradewind fleet down {fleet_id}` ends it", sep="\n", file=sys.stderr)
