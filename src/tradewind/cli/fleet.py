"""`tradewind fleet`."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from tradewind.errors import TradewindError, UsageError
from tradewind.model.units import format_duration

if TYPE_CHECKING:
    from tradewind.fleet.journal import FleetJournal, FleetRecord

USAGE = "list|down [ID…]"
HELP = """\
Shows and ends fleets: the machines that transfers and measurements started. A fleet ends with the command that made it.
One whose command was killed ends by itself, at once or when its lease lapses; `down` ends it now and forgets it. `down`
without ID takes only fleets whose command is gone; with ID also one that is in use, whose job can then be resumed."""
EXAMPLES = """\
  tradewind fleet list
  tradewind fleet down
  tradewind fleet down 20260131-120000-0f1e2d3c"""


def add_arguments(parser: ArgumentParser) -> None:
    """What to do, and with which fleets."""
    parser.add_argument("action", choices=["list", "down"], help="what to do")
    parser.add_argument("fleets", metavar="ID", nargs="*", help="fleets, as `list` shows them")


def run(args: Namespace) -> int:
    """Lists or ends fleets."""
    from tradewind.fleet.journal import FleetJournal
    from tradewind.transfer.jobs import JobStore

    journal = FleetJournal(JobStore(args.state_dir).state_dir)
    if args.action == "list":
        if args.fleets:
            raise UsageError("`fleet list` shows all fleets and takes no ID")
        return _list(args, journal)
    records = [journal.load(fleet_id) for fleet_id in args.fleets]
    chosen = records if args.fleets else [record for record in journal.records() if record.abandoned]
    return _down(args, journal, chosen)


def _list(args: Namespace, journal: FleetJournal) -> int:
    for record in journal.records():
        living = _living(args, journal, record)
        if args.json:
            print(json.dumps(_document(record, living)))
            continue
        state = "abandoned" if record.abandoned else f"in use by process {record.client.pid}"
        age = format_duration(max(0.0, time.time() - record.created_unix_ms / 1000))
        alive = "machines unknown" if living is None else f"{len(living)} of {len(record.machines)} machines alive"
        print(f"{record.id}  {record.provider['kind']:<6} {alive}, {state}, {age} old, {record.purpose}")
    return 0


def _down(args: Namespace, journal: FleetJournal, records: list[FleetRecord]) -> int:
    from tradewind.fleet.fleet import end_fleet

    for record in records:
        ended = end_fleet(record, journal, args.gateway or "")
        if args.json:
            print(json.dumps({"id": record.id, "ended": ended}))
        else:
            print(f"{record.id}: {ended} machines ended")
    return 0


def _living(args: Namespace, journal: FleetJournal, record: FleetRecord) -> list[str] | None:
    """Names of the machines that live; None if the provider cannot say."""
    from tradewind.fleet.providers import make_provider

    try:
        machines = make_provider(record.provider, args.gateway or "", journal).machines(record.id)
    except TradewindError:
        return None
    return [machine.name for machine in machines]


def _document(record: FleetRecord, living: list[str] | None) -> dict[str, object]:
    return {
        "id": record.id,
        "provider": record.provider["kind"],
        "purpose": record.purpose,
        "machines": dict(record.machines),
        "alive": living,
        "abandoned": record.abandoned,
        "client_pid": record.client.pid,
        "created_unix_ms": record.created_unix_ms,
    }
