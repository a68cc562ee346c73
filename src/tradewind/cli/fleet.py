"""`tradewind fleet`."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from tradewind.errors import StateError, TradewindError, UsageError
from tradewind.model.units import format_duration

if TYPE_CHECKING:
    from tradewind.fleet.journal import FleetJournal, FleetRecord

USAGE = "list|down [ID…]|explain ID"
HELP = """\
List and end fleets: the machines that transfers and measurements started. A fleet ends with its command. If the command
was killed, the fleet ends automatically, at once or when its lease expires; `down` ends it now and forgets it. `down`
without ID ends only fleets whose command is gone; with ID also a fleet in use, whose job can then be resumed.
`explain` shows each attempt to launch a machine and why it was refused, also of a fleet that could not start.

A fleet is in use while its command holds the fleet's lock, even in another container. A fleet of another host that
shares the state folder is listed, but never ended here. A record that cannot be read or belongs to another user is
reported by name, with exit code 1, because its machines may still run."""
EXAMPLES = """\
  tradewind fleet list
  tradewind fleet down
  tradewind fleet down 20260131-120000-0f1e2d3c
  tradewind fleet explain 20260131-120000-0f1e2d3c"""


def add_arguments(parser: ArgumentParser) -> None:
    """Action and fleets."""
    parser.add_argument("action", metavar="ACTION", choices=["list", "down", "explain"], help="list, down or explain")
    parser.add_argument("fleets", metavar="ID", nargs="*", help="fleets, as `list` shows them")


def run(args: Namespace) -> int:
    """List, end or explain fleets."""
    from tradewind.engine.jobs import JobStore
    from tradewind.fleet.journal import FleetJournal

    journal = FleetJournal(JobStore(args.state_dir).state_dir)
    if args.action == "list":
        if args.fleets:
            raise UsageError("`fleet list` shows all fleets and takes no ID")
        return _list(args, journal)
    if args.action == "explain":
        if len(args.fleets) != 1:
            raise UsageError("`fleet explain` takes one ID", hint="`tradewind fleet list` shows the fleets that run")
        return _explain(args, journal)
    if not args.fleets:
        journal.remove_remains()
    records = [journal.load(fleet_id) for fleet_id in args.fleets]
    chosen = records if args.fleets else [record for record in journal.records() if record.abandoned]
    code = _down(args, journal, chosen)
    return code if args.fleets else max(code, _tell_unreadable(args, journal))


def _list(args: Namespace, journal: FleetJournal) -> int:
    for record in journal.records():
        living = _living(args, journal, record)
        if args.json:
            print(json.dumps(_document(record, living)))
            continue
        state = _state(record)
        age = format_duration(max(0.0, time.time() - record.created_unix_ms / 1000))
        alive = "machines unknown" if living is None else f"{len(living)} of {len(record.machines)} machines alive"
        alive = alive if record.machines else "no machines"
        print(f"{record.id}  {record.provider['kind']:<6} {alive}, {state}, {age} old, {record.purpose}")
    return _tell_unreadable(args, journal)


def _explain(args: Namespace, journal: FleetJournal) -> int:
    """Print each attempt to launch a machine of a fleet, oldest first."""
    for attempt in journal.attempts(args.fleets[0]):
        if args.json:
            print(json.dumps({key: value for key, value in asdict(attempt).items() if value is not None}))
            continue
        at = time.strftime("%H:%M:%S", time.localtime(attempt.unix_s))
        where = " ".join(part for part in (attempt.region, attempt.zone, attempt.type) if part)
        why = f": {attempt.reason}" if attempt.reason else ""
        needed = f" (missing: {attempt.action})" if attempt.action else ""
        print(f"{at}  {attempt.name}  {where}  {attempt.outcome}{why}{needed}")
    return 0


def _state(record: FleetRecord) -> str:
    from tradewind.fleet.owner import pid_namespace

    if record.ownership == "abandoned":
        return "abandoned"
    if record.ownership == "elsewhere":
        seen = format_duration(max(0.0, time.time() - record.heartbeat_unix_s))
        return f"on host {record.owner.host_name or 'unknown'}, last heard {seen} ago"
    where = "" if record.owner.pid_namespace == pid_namespace() else " of another PID namespace"
    return f"in use by process {record.owner.process.pid}{where}"


def _tell_unreadable(args: Namespace, journal: FleetJournal) -> int:
    """Report records that cannot be read: their machines may live. Returns 1 if there are any."""
    unreadable = journal.unreadable()
    for fleet in unreadable:
        if args.json:
            print(json.dumps({"id": fleet.id, "unreadable": fleet.because}))
        print(f"error: fleet {fleet.id} cannot be read: {fleet.because}", file=sys.stderr)
    if unreadable:
        print(f"hint: look into {journal.folder}, and remove what is not yours", file=sys.stderr)
    return 1 if unreadable else 0


def _down(args: Namespace, journal: FleetJournal, records: list[FleetRecord]) -> int:
    """End fleets. One that cannot be ended does not hold up the others; the exit code is then its error's."""
    from tradewind.fleet.ending import end_fleet

    code = 0
    for record in records:
        abandoned = record.abandoned
        try:
            ended = end_fleet(record, journal, args.gateway or "")
        except TradewindError as error:
            code = error.exit_code
            print(f"error: fleet {record.id} could not be ended: {error}", file=sys.stderr)
            if error.hint:
                print(f"hint: {error.hint}", file=sys.stderr)
            continue
        if abandoned:
            _note_end(args, record)
        if args.json:
            print(json.dumps({"id": record.id, "ended": ended}))
        else:
            print(f"{record.id}: {ended} machines ended")
    return code


def _note_end(args: Namespace, record: FleetRecord) -> None:
    """Charge the job of a fleet for its machines until now. An owner that lives does this itself."""
    from tradewind.engine.gateways import job_of
    from tradewind.engine.jobs import JobStore
    from tradewind.engine.ledger import LedgerBook

    job_id = job_of(record)
    if job_id is not None:
        store = JobStore(args.state_dir)
        try:
            LedgerBook(store.database, job_id, store.path(job_id)).end_fleet(record.id, time.time())
        except (StateError, OSError) as error:
            print(f"warning: the ledger of job {job_id} could not be written: {error}", file=sys.stderr)


def _living(args: Namespace, journal: FleetJournal, record: FleetRecord) -> list[str] | None:
    """Names of the machines that live; None if the provider cannot say."""
    from tradewind.fleet.provider import FLEET_TAG
    from tradewind.fleet.providers import make_provider

    try:
        machines = make_provider(record.provider, args.gateway or "", journal).machines({FLEET_TAG: record.id})
    except TradewindError:
        return None
    return [machine.name for machine in machines if not machine.ended]


def _document(record: FleetRecord, living: list[str] | None) -> dict[str, object]:
    return {
        "id": record.id,
        "provider": record.provider["kind"],
        "purpose": record.purpose,
        "machines": dict(record.machines),
        "alive": living,
        "abandoned": record.abandoned,
        "ownership": record.ownership,
        "host": record.owner.host_name,
        "client_pid": record.owner.process.pid,
        "created_unix_ms": record.created_unix_ms,
    }
