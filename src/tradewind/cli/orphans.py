"""Rented machines that nothing uses any more: ended beside the work of a command, and reported when that is done."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
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
    whose = {record.id: _whose(record) for record in found}
    ends = orphans.OrphanEnds(engine.fleets, simple)
    try:
        yield
    except BaseException:
        _report(args, whose, ends.wait(0.0)[0])
        raise
    ended, left = ends.wait(orphans.UNNOTICED_WAIT_S)
    if left and not args.quiet and not args.json:
        whom = ", ".join(record.id for record in left)
        print(
            f"note: waiting up to {orphans.ORPHANS_WAIT_S:g} s until the machines of {whom} have ended", file=sys.stderr
        )
    ended, left = ends.wait(orphans.ORPHANS_WAIT_S)
    _report(args, whose, ended)
    for record in left:
        _warn(f"{whose[record.id]} may still have machines: its provider has not answered", record.id)
    for record in found:
        if record not in simple:
            _warn(f"{whose[record.id]} may still have machines", record.id)


def _whose(record: FleetRecord) -> str:
    """Return a fleet with the reason for which nothing uses it."""
    if record.warm_until_unix_s is not None:
        return f"warm fleet {record.id}, whose lease has expired,"
    if not orphans.is_of_this_host(record):
        return f"fleet {record.id} of host {record.owner.host_name}, whose command was killed,"
    of = "" if orphans.has_simple_end(record) else f" of {record.purpose}"
    return f"fleet {record.id}{of}, whose command was killed,"


def _report(args: Namespace, whose: Mapping[str, str], ended: Sequence[FleetEnd]) -> None:
    for end in ended:
        if end.error is not None:
            _warn(f"{whose[end.id]} may still have machines: {end.error}", end.id)
        elif end.remains is not None and not end.remains.is_nothing:
            _warn(
                f"{whose[end.id]} may have left something: {end.remains.error or ', '.join(end.remains.left)}", end.id
            )
        elif end.machines and not args.quiet and not args.json:
            machines = format_count(end.machines, "machine")
            print(f"note: ended {machines} of {whose[end.id].removesuffix(',')}", file=sys.stderr)


def _warn(words: str, fleet_id: str) -> None:
    print(f"warning: {words}", f"hint: `tradewind fleet down {fleet_id}` ends it", sep="\n", file=sys.stderr)
