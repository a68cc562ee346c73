"""`tradewind jobs`: list, show, attach, wait, pause, resume, cancel, receipt, prune."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tradewind.cli.arguments import add_setting, typed
from tradewind.cli.boots import boot_lines, boots_document
from tradewind.cli.config import SETTINGS, parse_count
from tradewind.cli.options import parse_time_ms
from tradewind.cli.remains import left_lines
from tradewind.cli.terminal import printable
from tradewind.engine.deadline import deadline_lines
from tradewind.engine.engine import Engine, Job
from tradewind.engine.jobs import RECORDED_STATES, RESUMABLE, JobRecord
from tradewind.engine.passage import passage_lines
from tradewind.engine.report import (
    cost_lines,
    in_columns,
    job_cost,
    ledger_table,
    limits_lines,
    saved_lines,
    summary_lines,
)
from tradewind.errors import JobUnreadable, UsageError, with_paths
from tradewind.model.document import to_document
from tradewind.model.job import Deletion, JobSpec
from tradewind.model.units import format_bytes, format_count, format_usd

if TYPE_CHECKING:
    from tradewind.engine.pruning import Pruned

ACTIONS = ("list", "show", "attach", "wait", "pause", "resume", "cancel", "receipt", "prune")
#: Jobs that the list shows without --last and --all: the latest ones.
LISTED_DEFAULT = 20
USAGE = "[OPTION]… list | show ID | attach ID | wait ID | pause ID | resume ID | cancel ID | receipt ID | prune"
HELP = """\
List jobs, show one, or act on one:
  show     its state, counts and cost
  attach   follow it to its end, whichever process runs it; Ctrl-C ends only this command. If that process was
           killed, attach resumes the job
  wait     wait for its end without showing anything; the exit code is the job's
  pause    stop it at its next checkpoint
  resume   resume a stopped job
  cancel   stop it for good and abort its unfinished uploads; objects that it has copied stay
  receipt  print as JSON what moved, how it was proven, each run, the cost line by line, and the plan
  prune    remove the records of jobs older than --older, with their costs. Jobs that run or have something to resume
           stay, and jobs with a machine or fleet that has not ended. The setting jobs_prune_after does this after each
           transfer
States: running, done, failed, interrupted, paused, cancelled. An interrupted job was stopped by a signal, a ceiling or
a stall, or its process was killed; in a failed job some objects failed, or its start failed after its machines cost
something. These and paused jobs can be resumed."""
EXAMPLES = """\
  tradewind jobs list
  tradewind jobs list --all --state failed --state interrupted --newer 7d
  tradewind jobs attach 20250131-120000-k3f9tw2a
  tradewind jobs show 20250131-120000-k3f9tw2a --cost
  tradewind jobs resume 20250131-120000-k3f9tw2a
  tradewind jobs prune --older 30d --dry-run
  tradewind jobs list --json | jq -r 'select(.state == "interrupted").id'"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action and the job."""
    parser.add_argument("action", metavar="ACTION", choices=ACTIONS, help=f"{', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}")
    parser.add_argument("id", metavar="ID", nargs="?", help="job, for all actions except list and prune")
    parser.add_argument(
        "--state",
        dest="states",
        metavar="STATE",
        action="append",
        choices=RECORDED_STATES,
        help="list: only jobs in this state; can be repeated",
    )
    parser.add_argument(
        "--newer",
        metavar="TIME",
        type=typed(parse_time_ms),
        help="list: created since, such as 2025-01-31 or 7d (in the last 7 days)",
    )
    parser.add_argument(
        "--older",
        metavar="TIME",
        type=typed(parse_time_ms),
        help="list, prune: created before, such as 2025-01-31 or 7d (over 7 days ago)",
    )
    parser.add_argument(
        "--last",
        metavar="N",
        type=typed(parse_count),
        help=f"list: only the last N of these jobs (default {LISTED_DEFAULT}; all with --json)",
    )
    parser.add_argument("--all", action="store_true", default=None, help="list: all of these jobs")
    parser.add_argument("--dry-run", action="store_true", default=None, help="prune: show what would be removed")
    parser.add_argument(
        "--keep-logs",
        action="store_true",
        default=None,
        help="resume, attach: keep the gateways' logs in the job's folder",
    )
    parser.add_argument(
        "--cost", action="store_true", default=None, help="show: each line of the ledger, for all runs of the job"
    )
    add_setting(parser, "max_delete", metavar="N", words=f"resume, attach: {SETTINGS['max_delete'].help}")


def run(args: Namespace) -> int:
    """Run the action."""
    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        if args.action in ("list", "prune") and args.id is not None:
            hint = f"`tradewind jobs show {args.id}` shows one job" if args.action == "list" else "leave it out"
            raise UsageError(f"jobs {args.action} takes no ID", hint=hint)
        _refuse_options_of_others(args)
        if args.all and args.last is not None:
            raise UsageError("--all and --last cannot be combined", hint="leave one of them out")
        if args.action == "list":
            return _list(args, engine)
        if args.action == "prune":
            return _prune(args, engine)
        if args.id is None:
            raise UsageError(f"jobs {args.action} needs the ID of a job", hint="`tradewind jobs list` shows all")
        return _act(args, engine, engine.job(args.id))


def _act(args: Namespace, engine: Engine, job: Job) -> int:
    if args.action == "show":
        return _show(args, job)
    if args.action == "resume":
        return _resume(args, engine, job)
    if args.action == "attach":
        from tradewind.cli.attach import attach

        return attach(args, job, adopt=lambda: _resume(args, engine, job))
    if args.action == "wait":
        from tradewind.cli.attach import wait

        return wait(job)
    if args.action == "receipt":
        print(json.dumps(job.receipt(), ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))
        return 0
    record = (job.pause() if args.action == "pause" else job.cancel(quiet=args.quiet)).record
    if args.json:
        print(json.dumps(_document(record)))
    elif args.action == "pause" and record.state == "paused" and not args.quiet:
        print(f"paused; resume with: tradewind jobs resume {record.id}", file=sys.stderr)
    return 0


#: Headings of the list. The columns between the first LIST_TEXT_COLUMNS and the last are numbers.
LIST_HEADINGS = ("job", "state", "created", "verb", "objects", "bytes", "from → to")
LIST_TEXT_COLUMNS = 4


#: Options of some actions only.
OPTION_ACTIONS = {
    "states": ("list",),
    "newer": ("list",),
    "older": ("list", "prune"),
    "last": ("list",),
    "all": ("list",),
    "dry_run": ("prune",),
    "keep_logs": ("resume", "attach"),
    "cost": ("show",),
    "max_delete": ("resume", "attach"),
}


def _refuse_options_of_others(args: Namespace) -> None:
    """Raise UsageError for an option that belongs to another action."""
    for name, actions in OPTION_ACTIONS.items():
        is_given = name in args.typed if name in SETTINGS else getattr(args, name) is not None
        if is_given and args.action not in actions:
            option = "--state" if name == "states" else f"--{name.replace('_', '-')}"
            owners = " and ".join(f"`jobs {action}`" for action in actions)
            raise UsageError(f"jobs {args.action} takes no {option}", hint=f"{option} belongs to {owners}")


def _prune(args: Namespace, engine: Engine) -> int:
    older, after_s = args.older, args.jobs_prune_after
    if older is None and after_s is None:
        raise UsageError("jobs prune needs the age of the jobs to remove", hint="for example --older 30d")
    before = older if older is not None else round((time.time() - after_s) * 1000)
    pruned = engine.prune(before, dry_run=bool(args.dry_run))
    if args.json:
        document = {"dry_run": bool(args.dry_run), "jobs": list(pruned.jobs)}
        print(json.dumps({**document, "cost_records": pruned.costly, "cost_usd": pruned.usd}))
        return 0
    print(pruned_line(pruned, dry_run=bool(args.dry_run)))
    return 0


def pruned_line(pruned: Pruned, *, dry_run: bool = False) -> str:
    """Return `removed 12 jobs, 3 of them with cost records ($4.50 in all)`."""
    line = f"{'would remove' if dry_run else 'removed'} {format_count(len(pruned.jobs), 'job')}"
    if pruned.costly:
        line += f", {pruned.costly:,} of them with cost records ({format_usd(pruned.usd)} in all)"
    return line


def _list(args: Namespace, engine: Engine) -> int:
    wanted: Iterable[JobRecord] = (record for record in engine.records(_report_unreadable) if _is_wanted(args, record))
    if args.json:
        for record in wanted if args.last is None else deque(wanted, args.last):
            print(json.dumps(_document(record), ensure_ascii=False))
        return 0
    records = list(wanted)
    shown = records if args.all else records[-(args.last or LISTED_DEFAULT) :]
    rows = [_row(record) for record in shown]
    if rows:
        *columns, ends = zip(LIST_HEADINGS, *rows, strict=True)
        for line, end in zip(in_columns(list(zip(*columns, strict=True)), LIST_TEXT_COLUMNS), ends, strict=True):
            print(printable(f"{line}  {end}"))
    if len(shown) < len(records) and args.last is None and not args.quiet:
        print(f"{format_count(len(records) - len(shown), 'earlier job')}: --all lists all", file=sys.stderr)
    return 0


def _is_wanted(args: Namespace, record: JobRecord) -> bool:
    in_state = not args.states or record.state in args.states
    since = args.newer is None or record.created_unix_ms >= args.newer
    return in_state and since and (args.older is None or record.created_unix_ms < args.older)


def _row(record: JobRecord) -> tuple[str, ...]:
    progress = record.progress
    return (
        record.id,
        record.state,
        _local_time(record.created_unix_ms),
        record.verb,
        f"{progress.objects_done:,}/{progress.objects_total:,}",
        format_bytes(progress.bytes_done),
        f"{record.source} → {', '.join(record.destinations)}",
    )


def _local_time(unix_ms: int) -> str:
    """Return a time in the zone of this machine, which it names."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(unix_ms / 1000))


def _report_unreadable(error: JobUnreadable) -> None:
    print(f"warning: {error}; it is skipped", file=sys.stderr)


def _show(args: Namespace, job: Job) -> int:
    record, plan = job.record, job.plan
    ceiling = record.document["spec"].get("ceiling_usd_per_gb")
    cost = job_cost(job.ledger, plan, record.progress, ceiling, time.time())
    if args.json:
        summary = None if record.summary is None else to_document(record.summary)
        limits = None if record.state != "running" else to_document(record.progress.limits)
        more: dict[str, Any] = {
            "limits": limits,
            "cost": cost.document(),
            "summary": summary,
            "spec": record.document["spec"],
        }
        if remains := job.remains:
            more["left"] = [one.document() for one in remains]
        if job.deadline is not None:
            more["deadline"] = job.deadline.document()
        print(json.dumps({**_document(record), **more, **boots_document(job.boots)}, ensure_ascii=False))
        return 0
    rows = [("job", record.id), ("state", record.state), ("created", _local_time(record.created_unix_ms))]
    rows.append(("source", record.source))
    rows += [("to", end) for end in record.destinations]
    progress = record.progress
    rows.append(
        ("objects", f"{progress.objects_done:,} done of {progress.objects_total:,}, {progress.objects_failed:,} failed")
    )
    rows.append(("bytes", f"{format_bytes(progress.bytes_done)} of {format_bytes(progress.bytes_total)}"))
    for name, content in rows:
        print(printable(f"{name:<8}{content}"))
    for line in [*deadline_lines(job.deadline), *boot_lines(job.boots)]:
        print(printable(line))
    if record.summary is not None:
        passed = passage_lines(record.summary, plan, JobSpec.from_document(record.document["spec"]))
        for line in [*summary_lines(record.summary, plan, ceiling, cost), *passed]:
            print(printable(line))
        if record.summary.message:
            print(printable(with_paths(f"error   {record.summary.message}")))
    else:
        limits = progress.limits if record.state == "running" else None
        for line in [*limits_lines(limits), *saved_lines(progress), *cost_lines(cost)]:
            print(line)
    if record.state != "running":
        for line in left_lines(job.remains):
            print(printable(line))
    if args.cost:
        for line in ledger_table(cost):
            print(printable(line))
    if record.state in RESUMABLE:
        print(f"resume  tradewind jobs resume {record.id}")
    return 0


def _resume(args: Namespace, engine: Engine, job: Job) -> int:
    from tradewind.cli.follow import follow, run_with_question
    from tradewind.cli.orphans import ending_orphans

    record = job.require_resumable()
    args.verb = record.verb
    with ending_orphans(args, engine, without=job.id), follow(args) as follower:
        job.resume(keep_logs=bool(args.keep_logs), deletion=_agreed(args, record))
        return run_with_question(follower, job, record.source, record.destinations, yes=args.yes)


def _agreed(args: Namespace, record: JobRecord) -> Deletion | None:
    """Return the limits of the job's deletion, extended by -y and a typed --max-delete. Raises UsageError."""
    limited = "max_delete" in args.typed
    before = JobSpec.from_document(record.document["spec"]).delete
    if before is None:
        if limited:
            raise UsageError(f"job {record.id} does not delete", hint="--max-delete needs a `sync --delete` job")
        return None
    return Deletion(
        keys_max=args.max_delete if limited else before.keys_max,
        over_half=before.over_half or args.yes or limited,
        ask=before.ask and not limited,
    )


def _document(record: JobRecord) -> dict[str, Any]:
    progress = record.progress
    return {
        "id": record.id,
        "state": record.state,
        "resumable": record.state in RESUMABLE,
        "verb": record.verb,
        "source": record.source,
        "destinations": list(record.destinations),
        "created_unix_ms": record.created_unix_ms,
        "objects_total": progress.objects_total,
        "objects_done": progress.objects_done,
        "objects_failed": progress.objects_failed,
        "bytes_total": progress.bytes_total,
        "bytes_done": progress.bytes_done,
    }
