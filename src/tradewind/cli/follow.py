"""Follow one job on the command line: signals, events, the confirmation of a deletion, the summary."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from tradewind.cli.boots import boot_lines, boots_document
from tradewind.cli.failures import Failures
from tradewind.cli.remains import left_lines
from tradewind.cli.signals import STOPPING, SignalThread, StopHandlers
from tradewind.cli.terminal import Terminal, can_ask, confirm
from tradewind.engine.deadline import deadline_lines
from tradewind.engine.job import Job
from tradewind.engine.passage import copied_by_store, passage_lines
from tradewind.engine.report import JobCost, job_cost, plan_lines, summary_lines
from tradewind.engine.result import resume_hint
from tradewind.engine.running import RunningJob, kill_started, kill_unclosed
from tradewind.errors import Interrupted, JobFailed, MachinesMayRun, TransferError, with_paths
from tradewind.model.event import Progress, Summary, event_from_document
from tradewind.model.job import ObjectSelection
from tradewind.model.units import format_bytes, format_count

#: A second request to stop kills all processes at once. This is the time limit for removing the fleet's records then;
#: `fleet down` removes those that remain.
LEAVE_S = 3.0
#: Timeout of writing a line about a signal.
SAY_S = 0.5


class Follower(StopHandlers):
    """Shows a job and handles SIGINT, SIGTERM and SIGHUP. The first one drains the job, the second quits at once.

    In both cases the journal is safe and the job can be resumed.
    """

    def __init__(self, args: Namespace, after_dry_run: Callable[[Summary], None] | None = None) -> None:
        super().__init__()
        self._after_dry_run = after_dry_run
        self._json: bool = args.json
        self._verb: str = args.verb
        self._terminal = Terminal(quiet=args.quiet or args.json)
        #: The job that a stop signal drains. Without a job the signal interrupts the main thread.
        self._job: RunningJob | None = None
        #: True after a signal. While there is a job, the handler only sets this.
        self._asked = False
        #: Number of requests to stop. Set by the thread that waits for signals.
        self._interrupts = 0
        self._signals: SignalThread | None = None

    def __enter__(self) -> Follower:
        self._signals = SignalThread(self._interrupted)
        for number in STOPPING:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # `nohup`: the job must outlive the terminal.
            self.take(number, self._flag)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the signal handlers. End a job that was started but not passed to `run` because of a signal."""
        kill_unclosed()
        if self._signals is not None:
            self._signals.close()
        super().__exit__(kind, error, trace)

    def run(
        self,
        job: RunningJob,
        source: str,
        destinations: tuple[str, ...],
        note: str | None = None,
        begun: Callable[[], None] | None = None,
    ) -> int:
        """Show the job until its end and return its exit code. Raises TradewindError for any outcome but `done`.

        `begun` is called after the lines that are shown at the start.
        """
        self._job = job
        if self._interrupts or self._asked:
            job.drain()
        if self._json:
            print(json.dumps({"event": "started", "job_id": job.id}), flush=True)
            if note is not None:
                print(json.dumps({"event": "notice", "message": note}), flush=True)
        if note is not None:
            self._terminal.say(f"note: {note}")
        ceiling, by_store = job.spec.ceiling_usd_per_gb, copied_by_store(job.spec)
        self._terminal.say(*plan_lines(self._verb, source, destinations, job.plan, ceiling, by_store))
        if begun is not None:
            begun()
        if isinstance(job.spec.selection, ObjectSelection) and len(job.spec.targets) == 1:
            self._terminal.failures = Failures(hold=True)  # With one object, the job's final message is the failure.
        try:
            self._follow(job)
        finally:
            self._terminal.end(None if job.summary is None else job.summary.message)
            for line in job.ending():
                self._terminal.say(f"note: {line}")
            may_run = _close(job)
        if job.summary is not None and not self._json:
            self._terminal.say(*_closing_lines(job.summary, job))
        if may_run is None and not self._json:
            self._terminal.say(*left_lines(job.remains))
        self._end_dry_run(job)
        if self._json:
            return self._json_end(job, may_run)
        try:
            job.result()
        except TransferError as error:
            raise self._said_once(error, job.summary) from None
        if may_run is not None:
            raise may_run
        return 0

    def _said_once(self, error: TransferError, summary: Summary | None) -> TransferError:
        """Return the error of a job; one that counts the failures if they were shown with the same words."""
        if summary is None or not self._terminal.failures.has_shown(summary.message, summary.hint):
            return error
        progress = summary.progress
        message = f"{progress.objects_failed:,} of {format_count(progress.objects_total, 'object')} failed"
        hint = None if error.hint == summary.hint else error.hint
        return type(error)(message, hint=hint, summary=error.summary, job_id=error.job_id)

    def rest(self) -> None:
        """Release the ended job, before the user is asked a question: a signal interrupts the main thread again."""
        self._job = None
        if self._asked:
            raise KeyboardInterrupt

    def _end_dry_run(self, job: RunningJob) -> None:
        """Print the rest of a successful dry run. A signal then stops at once, because nothing is in flight."""
        if job.spec.dry_run and self._after_dry_run and job.summary is not None and job.summary.outcome == "done":
            self._job = None
            self._after_dry_run(job.summary)

    def _follow(self, job: RunningJob) -> None:
        for line in job.lines():
            if self._json:
                # `_json_end` prints the last line, with the exit code.
                if not (b'"done"' in line and json.loads(line)["event"] == "done"):
                    sys.stdout.write(line.decode())
                    sys.stdout.flush()
                continue
            event = event_from_document(json.loads(line))
            if event is not None and not isinstance(event, Summary):
                self._terminal.event(event)

    def _json_end(self, job: RunningJob, may_run: MachinesMayRun | None) -> int:
        """Print the last line: the summary with the job's cost, id and exit code. Return the exit code."""
        try:
            job.result()
            if may_run is not None:
                raise may_run
            code = 0
        except (TransferError, MachinesMayRun) as error:
            code = error.exit_code
            print(with_paths(f"error: {error}"), file=sys.stderr)
            if error.hint:
                print(f"hint: {error.hint}", file=sys.stderr)
        progress = Progress() if job.summary is None else job.summary.progress
        cost = _cost(job, progress).document()
        goal = {} if job.deadline is None else {"deadline": job.deadline.document()}
        more: dict[str, Any] = {"cost": cost, **goal, **boots_document(job.boots), "job_id": job.id, "exit_code": code}
        if job.remains:
            more["left"] = [one.document() for one in job.remains]
        print(json.dumps({**(job.summary_document or {}), **more}))
        return code

    def _flag(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal, without a lock. Before there is a job, interrupt the main thread once."""
        first, self._asked = not self._asked, True
        if first and self._job is None:
            raise KeyboardInterrupt

    def _interrupted(self, count: int) -> None:
        """Handle a request to stop in the signals' thread, because the main thread may hold any lock or be blocked."""
        # Set the count before reading the job. `run` sets the job before reading the count, so no request is lost.
        self._interrupts = count
        job = self._job
        if count > 1:
            self._leave(job)
        elif job is not None and job.is_ending:
            job.hurry()
            _say("\nnot waiting for a provider that does not answer; press Ctrl-C again to quit at once\n")
        elif job is not None:
            job.drain()
            _say("\nstopping: saving unfinished work; press Ctrl-C again to quit at once\n")

    def _leave(self, job: RunningJob | None) -> None:
        """Kill all processes that the job started, and exit."""
        kill_started()
        ending = threading.Thread(target=kill_unclosed, daemon=True)
        ending.start()
        ending.join(LEAVE_S)
        said = "error: quit at once, without saving unfinished work\n"
        if job is not None and job.spec.state_dir is not None:
            said += f"hint: {resume_hint(job.id)}\n"
        _say(said)
        os._exit(Interrupted.exit_code)


def _say(text: str) -> None:
    """Write to standard error within SAY_S, bypassing the stream object, which may be in the middle of a write.

    The reader may have stopped: a full pipe must not delay the next request to stop.
    """

    def write() -> None:
        try:
            os.write(2, text.encode())
        except OSError:
            _mute()  # The terminal is gone. The job must still stop in order.

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    writer.join(SAY_S)


def _mute() -> None:
    """Discard standard error from now on, and standard output if it is the same file."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if os.path.sameopenfile(1, 2):
        os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _close(job: RunningJob) -> MachinesMayRun | None:
    """End the job's processes. Return the error of a transfer that is done, but whose machines could not be ended."""
    try:
        job.close()
    except MachinesMayRun as error:
        return error
    return None


def _closing_lines(summary: Summary, job: RunningJob) -> list[str]:
    """Return the lines of the report; none if the error that follows says everything."""
    progress = summary.progress
    if summary.outcome != "done" and not (progress.objects_done or progress.objects_failed or progress.bytes_done):
        return []
    if job.spec.dry_run:
        moved, failed = progress.objects_total - progress.objects_failed, progress.objects_failed
        cannot = f", {failed:,} cannot be moved" if failed else ""
        lines = [f"would move {format_count(moved, 'object')}{cannot}; nothing was done"]
        if summary.to_delete is not None and summary.to_delete.objects:
            objects, size = format_count(summary.to_delete.objects, "object"), format_bytes(summary.to_delete.bytes)
            lines.insert(0, f"would delete {objects}, {size}")
        return lines
    lines = summary_lines(summary, job.plan, job.spec.ceiling_usd_per_gb, _cost(job, progress))
    passed = passage_lines(summary, job.plan, job.spec)
    return [*lines, *passed, *boot_lines(job.boots), *deadline_lines(job.deadline)]


def _cost(job: RunningJob, progress: Progress) -> JobCost:
    return job_cost(job.ledger, job.first_plan, progress, job.spec.ceiling_usd_per_gb, time.time())


def follow(args: Namespace, after_dry_run: Callable[[Summary], None] | None = None) -> Follower:
    """Return a follower: a context in which it handles the signals. `after_dry_run` is called before the last line."""
    return Follower(args, after_dry_run)


def run_with_question(
    follower: Follower,
    job: Job,
    source: str,
    destinations: tuple[str, ...],
    *,
    yes: bool,
    note: str | None = None,
    begun: Callable[[], None] | None = None,
) -> int:
    """Show the job until its end; if it waits for a confirmation, ask, and resume it after a yes. Return the exit code.

    Raises UsageError after a no. Raises the job's TransferError, also if there is no terminal to ask at.
    """
    try:
        return follower.run(job.require_running(), source, destinations, note, begun)
    except JobFailed as failed:
        waiting = job.deletion_to_confirm(failed)
        if waiting is None or not (yes or can_ask()):
            raise
    if not yes:
        follower.rest()
        objects = format_count(waiting.objects, "object")
        confirm(
            f"Delete {objects} ({format_bytes(waiting.bytes)}) that the source does not have?",
            refused="nothing was deleted; the copies stay",
        )
    return follower.run(job.confirm_deletion(waiting).require_running(), source, destinations)
