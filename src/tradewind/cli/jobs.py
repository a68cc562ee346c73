"""`tradewind jobs`: list, show, attach, wait, pause, resume, cancel, receipt."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.cli.arguments import add_setting, typed
from tradewind.cli.config import parse_count
from tradewind.cli.options import parse_time_ms
from tradewind.cli.terminal import printable
from tradewind.engine.engine import Engine, Job
from tradewind.engine.jobs import RECORDED_STATES, RESUMABLE, JobRecord
from tradewind.engine.report import cost_lines, in_columns, job_cost, ledger_table, limits_lines, summary_lines
from tradewind.errors import JobUnreadable, UsageError
from tradewind.model.document import to_document
from tradewind.model.job import Deletion, JobSpec
from tradewind.model.units import format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from tradewind.engine.fleets import Boot

ACTIONS = ("list", "show", "attach", "wait", "pause", "resume", "cancel", "receipt")
USAGE = "[OPTION]… list | show ID | attach ID | wait ID | pause ID | resume ID | cancel ID | receipt ID"
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
States: running, done, failed, interrupted, paused, cancelled. An interrupted job was stopped by a signal, a ceiling or
a stall, or its process was killed; in a failed job some objects failed. These and paused jobs can be resumed."""
EXAMPLES = """\
  tradewind jobs list
  tradewind jobs list --state failed --state interrupted --newer 7d
  tradewind jobs attach 20250131-120000-k3f9t
  tradewind jobs show 20250131-120000-k3f9t --cost
  tradewind jobs resume 20250131-120000-k3f9t
  tradewind jobs list --json | jq -r 'select(.state == "interrupted").id'"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action and the job."""
    parser.add_argument("action", metavar="ACTION", choices=ACTIONS, help=f"{', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}")
    parser.add_argument("id", metavar="ID", nargs="?", help="job, for all actions except list")
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
        help="list: created before, such as 2025-01-31 or 7d (over 7 days ago)",
    )
    parser.add_argument("--last", metavar="N", type=typed(parse_count), help="list: only the last N of these jobs")
    parser.add_argument("--keep-logs", action="store_true", help="resume: keep the gateways' logs in the job's folder")
    parser.add_argument("--cost", action="store_true", help="show: each line of the ledger, for all runs of the job")
    add_setting(parser, "max_delete", metavar="N")


def run(args: Namespace) -> int:
    """Run the action."""
    with Engine(state_dir=args.state_dir, gateway=args.gateway) as engine:
        if args.action == "list":
            if args.id is not None:
                raise UsageError("jobs list takes no ID", hint=f"`tradewind jobs show {args.id}` shows one job")
            return _list(args, engine)
        if unused := [option for option, value in _list_options(args).items() if value is not None]:
            raise UsageError(f"jobs {args.action} takes no {unused[0]}", hint=f"{unused[0]} belongs to `jobs list`")
        if args.id is None:
            raise UsageError(f"jobs {args.action} needs the ID of a job", hint="`tradewind jobs list` shows all")
        return _act(args, engine.job(args.id))


def _act(args: Namespace, job: Job) -> int:
    if args.action == "show":
        return _show(args, job)
    if args.action == "resume":
        return _resume(args, job)
    if args.action == "attach":
        from tradewind.cli.attach import attach

        return attach(args, job, adopt=lambda: _resume(args, job))
    if args.action == "wait":
        from tradewind.cli.attach import wait

        return wait(job)
    if args.action == "receipt":
        print(json.dumps(job.receipt(), ensure_ascii=False))
        return 0
    record = (job.pause() if args.action == "pause" else job.cancel()).record
    if args.json:
        print(json.dumps(_document(record)))
    return 0


#: Headings of the list. The columns between the first LIST_TEXT_COLUMNS and the last are numbers.
LIST_HEADINGS = ("job", "state", "created", "verb", "objects", "bytes", "from → to")
LIST_TEXT_COLUMNS = 4


def _list_options(args: Namespace) -> dict[str, object]:
    """Return the options of the list with their values; None for one that is not given."""
    return {"--state": args.states, "--newer": args.newer, "--older": args.older, "--last": args.last}


def _list(args: Namespace, engine: Engine) -> int:
    wanted: Iterable[JobRecord] = (record for record in engine.records(_report_unreadable) if _is_wanted(args, record))
    if args.last is not None:
        wanted = deque(wanted, args.last)
    if args.json:
        for record in wanted:
            print(json.dumps(_document(record), ensure_ascii=False))
        return 0
    rows = [_row(record) for record in wanted]
    if rows:
        *columns, ends = zip(LIST_HEADINGS, *rows, strict=True)
        for line, end in zip(in_columns(list(zip(*columns, strict=True)), LIST_TEXT_COLUMNS), ends, strict=True):
            print(printable(f"{line}  {end}"))
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
        more = {"limits": limits, "cost": cost.document(), "summary": summary, "spec": record.document["spec"]}
        print(json.dumps({**_document(record), **more}, ensure_ascii=False))
        return 0
    rows = [("job", record.id), ("state", record.state), ("created", _local_time(record.created_unix_ms))]
    rows.append(("source", record.source))
    rows += [("to", end) for end in record.destinations]
    progress = record.progress
    rows.append(
        ("objects", f"{progress.objects_done:,} done of {progress.objects_total:,}, {progress.objects_failed:,} failed")
    )
    rows.append(("bytes", f"{format_bytes(progress.bytes_done)} of {format_bytes(progress.bytes_total)}"))
    rows += [("started", line) for line in _boot_lines(job.boots)]
    for name, content in rows:
        print(printable(f"{name:<8}{content}"))
    if record.summary is not None:
        for line in summary_lines(record.summary, plan, ceiling, cost):
            print(printable(line))
        if record.summary.message:
            print(printable(f"error   {record.summary.message}"))
    else:
        limits = progress.limits if record.state == "running" else None
        for line in [*limits_lines(limits), *cost_lines(cost)]:
            print(line)
    if args.cost:
        for line in ledger_table(cost):
            print(printable(line))
    if record.state in RESUMABLE:
        print(f"resume  tradewind jobs resume {record.id}")
    return 0


def _boot_lines(boots: Sequence[Boot]) -> Iterator[str]:
    """Yield one line that says how long machines took to start: the slowest of them, by phase."""
    if boots:
        slowest = max(boots, key=lambda boot: boot.ready_unix_s - boot.ordered_unix_s)
        took = format_duration(max(0.0, slowest.ready_unix_s - slowest.ordered_unix_s))
        accepted = slowest.accepted_unix_s
        phase = "" if accepted is None else f"accepted after {format_duration(accepted - slowest.ordered_unix_s)}, "
        yield f"{format_count(len(boots), 'machine')}; the slowest was {phase}enrolled {took} after its order"


def _resume(args: Namespace, job: Job) -> int:
    from tradewind.cli.follow import follow, run_with_question

    record = job.require_resumable()
    args.verb = record.verb
    with follow(args) as follower:
        job.resume(keep_logs=args.keep_logs, deletion=_agreed(args, record))
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
