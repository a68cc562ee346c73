"""`tradewind fleet`."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from tradewind.cli.terminal import can_ask, confirm
from tradewind.cli.warm import add_warm_arguments, bring_up, show_receipt
from tradewind.errors import FleetNotFound, UsageError
from tradewind.model.units import format_bytes, format_count, format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tradewind.engine.everywhere import Everywhere, FoundMachine
    from tradewind.engine.fleets import Attempt, Boot, FleetEnd, Fleets, FleetState
    from tradewind.errors import TradewindError

USAGE = "up REGION…|list|down [ID…]|explain ID|sweep"
HELP = """\
List and end fleets: the machines that transfers and measurements started, or `up`. A fleet ends with its command. If
the command was killed, the fleet ends automatically, at once or when its lease expires; `down` ends it now and removes
its record.

`up` starts a warm fleet: machines that are kept for later transfers between their regions, which then need not rent
any. It ends with its lease, or after its idle time. One transfer uses it at a time.

`down` without ID ends only fleets whose command is gone; with --all also warm ones; with ID also a fleet in use, whose
job can then be resumed. A fleet that the state folder does not know is found by the tags of its machines.

`explain` shows each attempt to launch a machine, why it was refused or how long it took to start, even for a fleet that
could not start.

`list --everywhere` shows the machines on all hosts and in all clouds of the configuration, by their tags, with their
cost so far; the state folder may be empty. `sweep` ends those machines whose command is gone (with --all, all of them),
removes everything else that their fleets have left (programs, disks, addresses, firewall rules), and prints a receipt:
what ran, for how long, what it cost, and what is left.

A fleet is in use while its command holds the fleet's lock, even in another container. A fleet of another host that
shares the state folder is listed, but never ended here. A record that cannot be read or belongs to another user is
reported by name, with exit code 1, because its machines may still run. `down ID --forget` removes a record that cannot
be read, if all hosts, clusters and clouds of the configuration answer and none has anything of the fleet."""
EXAMPLES = """\
  tradewind fleet up aws:us-east-1 gcp:europe-west1 --idle 20min
  tradewind fleet list
  tradewind fleet down
  tradewind fleet down 20260131-120000-0f1e2d3c
  tradewind fleet down 20260131-120000-0f1e2d3c --forget
  tradewind fleet explain 20260131-120000-0f1e2d3c
  tradewind fleet list --everywhere
  tradewind fleet sweep"""

#: Words for the owner of a machine in a list, by its state.
WHOSE = {
    "in use": "in use",
    "gone": "its command is gone",
    "warm": "warm",
    "elsewhere": "started on another host or in another container",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action and the fleets."""
    parser.add_argument(
        "action",
        metavar="ACTION",
        choices=["up", "list", "down", "explain", "sweep"],
        help="up, list, down, explain or sweep",
    )
    parser.add_argument("fleets", metavar="ID|REGION", nargs="*", help="fleets, as `list` shows them; up: regions")
    parser.add_argument(
        "--everywhere",
        action="store_true",
        help="list: the machines on all hosts and in all clouds of the configuration",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="sweep: also end machines whose command runs or is elsewhere, and those of warm fleets; "
        "down: also warm fleets",
    )
    parser.add_argument(
        "--forget",
        action="store_true",
        help="down: remove a record that cannot be read, if nothing of its fleet is left",
    )
    add_warm_arguments(parser)


def run(args: Namespace) -> int:
    """List, end or explain fleets."""
    from tradewind.engine.engine import Engine

    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        fleets = engine.fleets
        fleets.say = lambda line: print(f"note: {line}", file=sys.stderr)
        if args.everywhere and args.action != "list":
            raise UsageError("--everywhere belongs to `fleet list`")
        if args.all and args.action not in ("sweep", "down"):
            hint = "`fleet list --everywhere` shows all machines" if args.action == "list" else None
            raise UsageError("--all belongs to `fleet sweep` and `fleet down`", hint=hint)
        if args.forget and (args.action != "down" or not args.fleets):
            raise UsageError("--forget belongs to `fleet down ID`", hint="`tradewind fleet list` names the records")
        if args.action == "up":
            from tradewind.cli.orphans import ending_orphans

            with ending_orphans(args, engine):
                return bring_up(args, engine)
        if any(value is not None for value in (args.machines, args.idle, args.lease, args.max_cost)):
            raise UsageError("--machines, --idle, --lease and --max-cost belong to `fleet up`")
        if args.action == "sweep":
            return _sweep(args, fleets)
        if args.action == "list" and args.everywhere:
            return _list_everywhere(args, fleets)
        if args.action == "list":
            if args.fleets:
                raise UsageError("`fleet list` shows all fleets and takes no ID")
            return _list(args, fleets)
        if args.action == "explain":
            if len(args.fleets) != 1:
                raise UsageError(
                    "`fleet explain` takes one ID", hint="`tradewind fleet list` shows the fleets that run"
                )
            return _explain(args, fleets)
        if args.fleets and args.all:
            raise UsageError("`fleet down` takes either IDs or --all")
        if args.forget:
            return _forget(args, fleets)
        if args.fleets:
            return _down(args, fleets)
        ends = fleets.end_unused() if args.all else fleets.end_abandoned()
        code = _report_ends(args, ends)
        if code == 0 and not args.quiet and not args.json and (left := fleets.open_count()):
            kept = "in use" if args.all else "in use or warm"
            words = f"{format_count(left, 'fleet')} {kept} {'stays' if left == 1 else 'stay'}"
            print(f"note: {words}; `tradewind fleet down ID` ends one", file=sys.stderr)
        return max(code, _report_unreadable(args, fleets))


def _forget(args: Namespace, fleets: Fleets) -> int:
    """Remove records that cannot be read. Raises TradewindError for the first whose fleet may not be gone."""
    for fleet_id in args.fleets:
        places = fleets.forget(fleet_id, args.configuration.sites())
        if args.json:
            print(json.dumps({"forgotten": fleet_id, "places": places}))
        else:
            print(f"{fleet_id}: removed its record; found nothing else of it (asked: {', '.join(places)})")
    return 0


def _down(args: Namespace, fleets: Fleets) -> int:
    """End fleets: of this state folder by their records, and others by the tags of their machines."""
    unknown = fleets.unknown(args.fleets)
    if not unknown or not args.configuration.sites():
        return _report_ends(args, fleets.end(args.fleets))
    everywhere = _everywhere(args, fleets)
    found, failed = _look_everywhere(args, everywhere, show=False)
    wanted = [one for one in found if one.fleet in unknown]
    for place, error in failed.items():
        _print_failure(place, " cannot be queried", error)
    missing = set(unknown) - {one.fleet for one in wanted}
    if missing and (missing := missing - everywhere.known(missing)):
        raise FleetNotFound(
            f"no fleet {min(missing)} in this state folder, and nothing of it in the configured places",
            hint="`tradewind fleet list --everywhere` shows all machines",
        )
    code = _code(failed)
    ended: list[FoundMachine] = []
    for swept in everywhere.end(wanted, unknown, without=failed.keys() - {one.place for one in wanted}):
        ended += swept.ended
        if swept.error is not None:
            code = swept.error.exit_code
            if swept.what not in failed:  # A place that cannot be asked has been named.
                _print_failure(swept.what, "", swept.error)
        else:
            print(json.dumps({"swept": swept.what}) if args.json else swept.what)
    _show_receipt(args, ended)
    _warn_of_owners(ended)
    code = max(code, _show_left_of(args, everywhere, unknown, failed))
    known = [fleet_id for fleet_id in args.fleets if fleet_id not in unknown]
    return max(code, _report_ends(args, fleets.end(known)))


def _show_left_of(
    args: Namespace, everywhere: Everywhere, ids: Sequence[str], failed: Mapping[str, TradewindError]
) -> int:
    """Show what is left of fleets at all places, or that nothing is left. Return 1 if something is, or the exit code of
    places that could not be asked. Those that have already `failed` are not reported again.
    """
    errors, left = dict(failed), 0
    for one in everywhere.left_of(ids):
        if isinstance(one, tuple):
            place, error = one
            if place not in errors:
                errors[place] = error
                _print_failure(place, " does not report what is left", error)
            continue
        left += 1
        print(json.dumps({"left": str(one)}) if args.json else f"left: {one}; run the command again to remove it")
    if not (left or errors or args.json):
        print(f"nothing is left of {', '.join(ids)} in {', '.join(everywhere.names)}")
    return max(_code(errors), 1 if left else 0)


def _list(args: Namespace, fleets: Fleets) -> int:
    for fleet in fleets.states():
        if args.json:
            print(json.dumps(_document(fleet)))
            continue
        record = fleet.record
        age = format_duration(max(0.0, time.time() - record.created_unix_ms / 1000))
        count = len(record.machines)
        alive = (
            "machines unknown"
            if fleet.alive is None
            else f"{len(fleet.alive)} of {format_count(count, 'machine')} alive"
        )
        alive = f"{alive}{_lease(fleet)}" if record.machines else "no machines"
        print(f"{record.id}  {record.provider['kind']:<6} {alive}, {_use(fleet)}, {age} old, {record.purpose}")
    return _report_unreadable(args, fleets)


def _list_everywhere(args: Namespace, fleets: Fleets) -> int:
    return _code(_look_everywhere(args, _everywhere(args, fleets), show=True)[1])


def _sweep(args: Namespace, fleets: Fleets) -> int:
    """End machines whose command is gone, remove copied programs, and say what is left."""
    if args.fleets:
        raise UsageError("`fleet sweep` takes no ID", hint="`tradewind fleet down ID` ends one fleet")
    everywhere = _everywhere(args, fleets)
    found, failed = _look_everywhere(args, everywhere, show=False)
    code = _code(failed)
    wanted = [one for one in found if args.all or one.owner == "gone"]
    if wanted and not args.yes and can_ask():
        confirm(f"End {format_count(len(wanted), 'machine')}?")
    ended: list[FoundMachine] = []
    troubles: list[tuple[str, TradewindError]] = []
    for swept in everywhere.sweep(wanted, everything=args.all):
        ended += swept.ended
        if swept.error is not None:
            code = swept.error.exit_code
            troubles.append((swept.what, swept.error))
        else:
            print(json.dumps({"swept": swept.what}) if args.json else swept.what)
    # Otherwise the jobs of this state folder would be charged until the leases of their machines must have expired.
    # Their remains are among those of all places.
    ends = (replace(end, remains=None) for end in fleets.end_abandoned())
    closed = [end for end in ends if end.error or end.unbooked or end.machines]
    code = max(code, _report_ends(args, closed))
    left, failed = _look_everywhere(args, everywhere, show=True)
    for place, error in troubles:
        if place not in failed:  # A place that cannot be asked has been named.
            _print_failure(place, "", error)
    remains, owned, remains_code = _show_remains(args, everywhere, failed)
    _show_receipt(args, ended)
    _warn_of_owners(ended)
    kept = [] if args.all else [one for one in left if one.owner != "gone"]
    code = max(code, _code(failed), remains_code, 1 if remains or len(left) > len(kept) else 0)
    if not (left or owned or code or args.json):
        print("nothing is left")
    if kept and not args.json:
        print(
            f"kept {format_count(len(kept), 'machine')} ({_owners(kept)}); `fleet sweep --all` ends {_them(kept)}, too"
        )
    return code


def _owners(kept: Sequence[FoundMachine]) -> str:
    """Return why machines are kept, each reason with the number of its machines if there are several."""
    counts: Counter[str] = Counter(one.owner for one in kept)
    return ", ".join(
        WHOSE[owner] if len(counts) == 1 else f"{counts[owner]} {WHOSE[owner]}" for owner in WHOSE if owner in counts
    )


def _them(machines: Sequence[FoundMachine]) -> str:
    return "it" if len(machines) == 1 else "them"


def _code(failed: Mapping[str, TradewindError]) -> int:
    """Return the highest exit code of the places that could not be asked, 0 if there are none."""
    return max((error.exit_code for error in failed.values()), default=0)


def _print_failure(place: str, what: str, error: TradewindError) -> None:
    """Print the error of a place, which some errors name first themselves."""
    print(f"error: {place}{what}: {str(error).removeprefix(f'{place}: ')}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)


def _show_remains(
    args: Namespace, everywhere: Everywhere, failed: Mapping[str, TradewindError]
) -> tuple[int, int, int]:
    """Show what is left that is not a machine. Return how much of it nobody uses, how much belongs to commands that run
    or are elsewhere, and the exit code of places that could not be asked. With --all nobody uses anything.

    Places that have already `failed` are not reported again.
    """
    unused, owned = 0, 0
    errors: dict[str, TradewindError] = {}
    for one in everywhere.remains():
        if isinstance(one, tuple):
            place, error = one
            errors[place] = error
            if place not in failed:
                _print_failure(place, " does not report what is left", error)
            continue
        word = "kept" if one.is_owned and not args.all else "left"
        unused, owned = unused + (word == "left"), owned + (word == "kept")
        print(json.dumps({word: str(one)}) if args.json else f"{word}: {one}")
    return unused, owned, _code(errors)


def _show_receipt(args: Namespace, ended: Sequence[FoundMachine]) -> None:
    """Show how long each ended machine ran and what it cost, and the sum."""
    for found in ended:
        if args.json:
            lasted_s = None if found.age_s is None else round(found.age_s, 1)
            print(json.dumps({"ran": found.machine.name, "fleet": found.fleet, "seconds": lasted_s, "usd": found.usd}))
            continue
        lasted = "for an unknown time" if found.age_s is None else f"for {format_duration(found.age_s)}"
        cost = "at an unknown price" if found.usd is None else f"and cost {format_usd(found.usd)}"
        kind = f" ({found.machine.type})" if found.machine.type else ""
        print(f"ran  {found.machine.region}  {found.machine.name}{kind} of {found.fleet} {lasted} {cost}")
    if len(ended) > 1 and not args.json:
        known = sum(found.usd for found in ended if found.usd is not None)
        rest = sum(found.usd is None for found in ended)
        print(
            f"sum  {format_usd(known)}" + (f", and {format_count(rest, 'machine')} at unknown prices" if rest else "")
        )


def _warn_of_owners(ended: Sequence[FoundMachine]) -> None:
    """Name the fleets whose commands may still run: they do not know the record here, and replace ended machines."""
    fleets = dict.fromkeys(found.fleet for found in ended if found.owner in ("in use", "elsewhere"))
    if fleets:
        print(
            f"warning: the command of {', '.join(fleets)} may still run elsewhere, and then orders other machines",
            "hint: stop it there, or run this again once it has ended",
            sep="\n",
            file=sys.stderr,
        )


def _everywhere(args: Namespace, fleets: Fleets) -> Everywhere:
    sites = args.configuration.sites()
    if not sites:
        raise UsageError(
            "the configuration has no hosts, clusters or clouds",
            hint="`tradewind init` looks for some; docs/guides/fleet.md shows how to add others",
        )
    return fleets.everywhere(sites)


def _look_everywhere(
    args: Namespace, everywhere: Everywhere, *, show: bool
) -> tuple[list[FoundMachine], dict[str, TradewindError]]:
    """Return the machines at all places, and the errors of places that could not be asked."""
    machines: list[FoundMachine] = []
    failed: dict[str, TradewindError] = {}
    for found in everywhere.found():
        if isinstance(found, tuple):
            place, error = found
            failed[place] = error
            if show:
                _print_failure(place, " cannot be queried", error)
            continue
        machines.append(found)
        if show and args.json:
            print(json.dumps(found.document()))
        elif show:
            whose = WHOSE[found.owner]
            age = "of unknown age" if found.age_s is None else f"{format_duration(found.age_s)} old"
            cost = f", {format_usd(found.usd)}" if found.usd else ""
            where = f"{found.place}  {found.machine.region}  {found.machine.name} of {found.fleet}"
            print(f"{where}, {whose}, {age}{cost}")
    return machines, failed


def _explain(args: Namespace, fleets: Fleets) -> int:
    """Print each attempt to launch a machine of a fleet, and when its gateway answered, oldest first; then the TCP
    windows of those that run, and how long such machines usually take.
    """
    fleet_id = args.fleets[0]
    attempts = [(each.unix_s, _attempt_line(each), asdict(each)) for each in fleets.attempts(fleet_id)]
    boots = [(each.ready_unix_s, _boot_line(each), asdict(each)) for each in fleets.boots(fleet_id)]
    for unix_s, line, document in sorted([*attempts, *boots], key=lambda entry: entry[0]):
        if args.json:
            print(json.dumps({key: value for key, value in document.items() if value is not None}))
        else:
            print(f"{time.strftime('%H:%M:%S', time.localtime(unix_s))}  {line}")
    for windows in fleets.tcp_windows(fleet_id):
        if args.json:
            print(json.dumps({"tcp_windows": asdict(windows)}))
        else:
            sizes = f"{format_bytes(windows.receive_bytes)} received, {format_bytes(windows.send_bytes)} sent"
            print(f"now       {windows.name}  TCP windows up to {sizes}")
    for kind, usual in fleets.usual_boots(fleet_id).items():
        if args.json:
            print(json.dumps({"usual": {**asdict(kind), **usual.document()}}))
        else:
            print(f"usually   {kind}  {usual} after its order (median of {format_count(usual.count, 'start')})")
    return 0


def _attempt_line(attempt: Attempt) -> str:
    where = " ".join(part for part in (attempt.region, attempt.zone, attempt.type) if part)
    why = f": {attempt.reason}" if attempt.reason else ""
    needed = f" (needs {attempt.action})" if attempt.action else ""
    return f"{attempt.name}  {where}  {attempt.outcome}{why}{needed}"


def _boot_line(boot: Boot) -> str:
    """Return how long a machine took to start, by phase."""
    return f"{boot.name}  {boot.region}  {boot} after its order"


def _lease(fleet: FleetState) -> str:
    """Return when the machines end by themselves; empty while a living client renews their leases."""
    if fleet.lease_end_unix_s is None or fleet.is_warm or fleet.record.ownership == "in use":
        return ""
    left_s = fleet.lease_end_unix_s - time.time()
    return f" (leases expire in {format_duration(left_s)})" if left_s > 0 else " (leases expired)"


def _use(fleet: FleetState) -> str:
    record = fleet.record
    if fleet.is_warm and record.warm_until_unix_s is not None:
        left = format_duration(max(0.0, record.warm_until_unix_s - time.time()))
        return f"ends in {left} unless it is used"
    if record.ownership == "abandoned":
        return "abandoned"
    if record.ownership == "elsewhere":
        seen = format_duration(max(0.0, time.time() - record.heartbeat_unix_s))
        return f"on host {record.owner.host_name or 'unknown'}, last heartbeat {seen} ago"
    where = "" if fleet.is_of_this_pid_namespace else " in another PID namespace"
    return f"in use by process {record.owner.process.pid}{where}"


def _report_unreadable(args: Namespace, fleets: Fleets) -> int:
    """Report unreadable records, whose machines may still run. Return 1 if there are any."""
    unreadable = fleets.unreadable()
    for fleet in unreadable:
        if args.json:
            print(json.dumps({"id": fleet.id, "unreadable": fleet.because}))
        print(f"error: fleet {fleet.id} cannot be read: {fleet.because}", file=sys.stderr)
    if any(fleet.has_record for fleet in unreadable):
        print(
            f"hint: check {fleets.folder}, and remove folders that are not yours; "
            "`tradewind fleet sweep` ends machines by their tags, and `tradewind fleet down ID --forget` then removes "
            "the record",
            file=sys.stderr,
        )
    elif unreadable:
        print("hint: no machine belongs to it; `tradewind fleet down` removes it", file=sys.stderr)
    return 1 if unreadable else 0


def _report_ends(args: Namespace, ends: Iterable[FleetEnd]) -> int:
    """Print how each fleet ended, and what is left of it. Return the exit code of the last one that could not be ended;
    1 if something is left or that is unknown; else 0.
    """
    from tradewind.engine.remains import remains_lines

    code = 0
    for end in ends:
        if end.error is not None:
            code = end.error.exit_code
            print(f"error: fleet {end.id} could not be ended: {end.error}", file=sys.stderr)
            if end.error.hint:
                print(f"hint: {end.error.hint}", file=sys.stderr)
            continue
        if end.unbooked is not None:
            print(f"warning: the ledger of job {end.job_id} could not be written: {end.unbooked}", file=sys.stderr)
        if args.json:
            usd = {} if end.usd is None else {"usd": end.usd}
            left = {} if end.remains is None else {"left": end.remains.document()}
            print(json.dumps({"id": end.id, "ended": end.machines, **usd, **left}))
        elif end.is_kept:
            print(f"{end.id}: {format_count(end.machines, 'machine')} of a killed job ended; the warm machines stay")
        else:
            cost = f"; its machines cost {format_usd(end.usd)}" if end.usd else ""
            print(f"{end.id}: {format_count(end.machines, 'machine')} ended{cost}")
        if end.receipt is not None:
            show_receipt(args, end.receipt)
        if end.remains is not None:
            code = max(code, 0 if end.remains.is_nothing else 1)
            for line in [] if args.json else remains_lines([end.remains]):
                print(line)
    return code


def _document(fleet: FleetState) -> dict[str, object]:
    record = fleet.record
    return {
        "id": record.id,
        "provider": record.provider["kind"],
        "purpose": record.purpose,
        "machines": dict(record.machines),
        "alive": None if fleet.alive is None else list(fleet.alive),
        "abandoned": record.abandoned,
        "ownership": record.ownership,
        "host": record.owner.host_name,
        "client_pid": record.owner.process.pid,
        "lease_end_unix_s": fleet.lease_end_unix_s,
        "warm_until_unix_s": record.warm_until_unix_s if record.is_warm else None,
        "created_unix_ms": record.created_unix_ms,
    }
