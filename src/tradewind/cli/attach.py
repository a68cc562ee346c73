"""`tradewind jobs attach`: follow a job that another process runs; adopt it if that process died."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable

from tradewind.cli.boots import boot_lines, boots_document
from tradewind.cli.remains import left_lines
from tradewind.cli.terminal import Terminal
from tradewind.engine.attach import AttachedJob, result_of
from tradewind.engine.deadline import deadline_lines
from tradewind.engine.job import Job
from tradewind.engine.passage import passage_lines
from tradewind.engine.report import job_cost, summary_lines
from tradewind.errors import GatewayLost, Interrupted, JobBusy, TransferError
from tradewind.model.document import to_document
from tradewind.model.event import Summary, event_from_document
from tradewind.model.job import JobSpec


def attach(args: Namespace, job: Job, adopt: Callable[[], int]) -> int:
    """Show the job until its run ends, and return the exit code. `adopt` resumes a job whose process died.

    Ctrl-C ends only this command. Raises JobNotFound, and the TransferError of the job's outcome.
    """
    terminal = Terminal(quiet=args.quiet or args.json)
    followed = job.follow()
    try:
        _show(followed, terminal, as_json=args.json)
    except KeyboardInterrupt:
        terminal.end()
        print(f"\njob {job.id} continues; `tradewind jobs pause {job.id}` stops it", file=sys.stderr)
        return Interrupted.exit_code
    if followed.can_be_adopted():
        terminal.end()
        terminal.say(f"note: the process that ran job {job.id} was killed; this command continues it")
        try:
            return adopt()
        except JobBusy:
            if not followed.is_owned():
                raise
            return attach(args, job, adopt)  # Another process has adopted the job.
    return _end(args, job, followed, terminal)


def wait(job: Job) -> int:
    """Wait for the job's end. Return 0 if it is done. Raises JobNotFound, and the TransferError of another outcome."""
    followed = job.follow()
    for _ in followed.lines():
        pass
    record = job.record
    if followed.can_be_adopted():
        hint = f"`tradewind jobs attach {job.id}` continues it"
        raise Interrupted(f"the process that ran job {job.id} was killed", hint=hint, job_id=job.id)
    result_of(record, followed.end, job.deadline)
    return 0


def _show(job: AttachedJob, terminal: Terminal, *, as_json: bool) -> None:
    for line in job.lines():
        document = json.loads(line)
        if document["event"] == "done":
            continue  # `_end` prints it, with the exit code or as a report.
        if as_json:
            sys.stdout.write(line.decode())
            sys.stdout.flush()
            continue
        event = event_from_document(document)
        if event is not None and not isinstance(event, Summary):
            terminal.event(event)


def _end(args: Namespace, job: Job, followed: AttachedJob, terminal: Terminal) -> int:
    record = job.record
    terminal.end(None if record.summary is None else record.summary.message)
    code, failure, deadline = 0, None, job.deadline
    try:
        result_of(record, followed.end, deadline)
    except (TransferError, GatewayLost) as error:
        code, failure = error.exit_code, error
    plan, ceiling = job.plan, record.document["spec"].get("ceiling_usd_per_gb")
    cost = job_cost(job.ledger, plan, record.progress, ceiling, time.time())
    boots, remains = [] if plan.overlay is None else job.boots, job.remains
    if args.json:
        summary = {} if record.summary is None else to_document(record.summary)
        goal = {} if deadline is None else {"deadline": deadline.document()}
        more = {"cost": cost.document(), **goal, **boots_document(boots), "job_id": job.id, "exit_code": code}
        print(json.dumps({"event": "done", **summary, **more}))
    elif record.summary is not None and record.progress.objects_done:
        passed = passage_lines(record.summary, plan, JobSpec.from_document(record.document["spec"]))
        lines = summary_lines(record.summary, plan, ceiling, cost)
        terminal.say(*lines, *passed, *boot_lines(boots), *deadline_lines(deadline), *left_lines(remains))
    if failure is not None:
        raise failure
    return 0
