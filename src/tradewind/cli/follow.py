"""Follows one job from the command line: signals, events, the question before it deletes, the end."""

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

from tradewind.cli.failures import Failures
from tradewind.cli.signals import STOPPING, SignalThread, StopHandlers
from tradewind.cli.terminal import Terminal, can_ask, confirm
from tradewind.engine.job import Job
from tradewind.engine.report import JobCost, job_cost, plan_lines, summary_lines
from tradewind.engine.running import RunningJob, kill_started, kill_unclosed, resume_hint
from tradewind.errors import Interrupted, JobFailed, TransferError
from tradewind.model.event import Progress, Summary, event_from_document
from tradewind.model.job import ObjectSelection
from tradewind.model.units import format_bytes, format_count

#: After a second request to stop, all processes are killed at once; their records are removed within so long,
#: or left for `fleet down`.
LEAVE_S = 3.0
#: A line about a signal that cannot be written within so long is not waited for.
SAY_S = 0.5


class Follower(StopHandlers):
    """First SIGINT, SIGTERM or SIGHUP: drain, the job can be resumed. Second: leave now; the journal is safe."""

    def __init__(self, args: Namespace, after_dry_run: Callable[[Summary], None] | None = None) -> None:
        super().__init__()
        self._after_dry_run = after_dry_run
        self._json: bool = args.json
        self._verb: str = args.verb
        self._terminal = Terminal(quiet=args.quiet or args.json)
        #: The job that a stop signal drains; without a job the main thread is interrupted.
        self._job: RunningJob | None = None
        #: Set by the handler, which does nothing else once there is a job.
        self._asked = False
        #: Set by the thread of the signals.
        self._interrupts = 0
        self._signals: SignalThread | None = None

    def __enter__(self) -> Follower:
        self._signals = SignalThread(self._interrupted)
        for number in STOPPING:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # The user wants the job to outlive the terminal: nohup.
            self.take(number, self._flag)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the signal handlers. A job that was started and never passed on, because of a signal, is ended."""
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
        """Show the job to its end and return its exit code. Raises TradewindError for all but a good end.

        `begun` is called when all has been said that there is to say before the start.
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
        self._terminal.say(*plan_lines(self._verb, source, destinations, job.plan, job.spec.ceiling_usd_per_gb))
        if begun is not None:
            begun()
        if isinstance(job.spec.selection, ObjectSelection) and len(job.spec.targets) == 1:
            self._terminal.failures = Failures(hold=True)  # The last line will say it.
        try:
            self._follow(job)
        finally:
            self._terminal.end(None if job.summary is None else job.summary.message)
            job.close()
        if job.summary is not None and not self._json:
            self._terminal.say(*_closing_lines(job.summary, job))
        self._end_dry_run(job)
        if self._json:
            return self._json_end(job)
        job.result()
        return 0

    def rest(self) -> None:
        """The job has ended and the user is asked something: a signal interrupts the main thread again."""
        self._job = None
        if self._asked:
            raise KeyboardInterrupt

    def _end_dry_run(self, job: RunningJob) -> None:
        """Print the rest of a successful dry run; a signal then stops at once, because nothing is in flight."""
        if job.spec.dry_run and self._after_dry_run and job.summary is not None and job.summary.outcome == "done":
            self._job = None
            self._after_dry_run(job.summary)

    def _follow(self, job: RunningJob) -> None:
        for line in job.lines():
            if self._json:
                # The last line comes with the exit code.
                if not (b'"done"' in line and json.loads(line)["event"] == "done"):
                    sys.stdout.write(line.decode())
                    sys.stdout.flush()
                continue
            event = event_from_document(json.loads(line))
            if event is not None and not isinstance(event, Summary):
                self._terminal.event(event)

    def _json_end(self, job: RunningJob) -> int:
        """The last line: the summary with what the job has cost, job id and exit code."""
        try:
            job.result()
            code = 0
        except TransferError as error:
            code = error.exit_code
            print(f"error: {error}", file=sys.stderr)
            if error.hint:
                print(f"hint: {error.hint}", file=sys.stderr)
        progress = Progress() if job.summary is None else job.summary.progress
        cost = _cost(job, progress).document()
        print(json.dumps({**(job.summary_document or {}), "cost": cost, "job_id": job.id, "exit_code": code}))
        return code

    def _flag(self, number: int, frame: FrameType | None) -> None:
        """The handler: takes no lock. Before there is a job the main thread is interrupted, once."""
        first, self._asked = not self._asked, True
        if first and self._job is None:
            raise KeyboardInterrupt

    def _interrupted(self, count: int) -> None:
        """In the thread of the signals: the main thread may hold any lock, or be stuck in a write."""
        self._interrupts = count  # Before the job is looked at: `run` does it the other way round.
        job = self._job
        if count > 1:
            self._leave(job)
        elif job is not None:
            job.drain()
            _say("\nstopping: saving unfinished work; press Ctrl-C again to quit at once\n")

    def _leave(self, job: RunningJob | None) -> None:
        """End all processes, and this one."""
        kill_started()
        ending = threading.Thread(target=kill_unclosed, daemon=True)
        ending.start()
        ending.join(LEAVE_S)
        said = "error: quit at once\n"
        if job is not None and job.spec.state_dir is not None:
            said += f"hint: {resume_hint(job.id)}\n"
        _say(said)
        os._exit(Interrupted.exit_code)


def _say(text: str) -> None:
    """Write to standard error, past the stream object, which may be in the middle of a write, and without waiting long.

    Who reads it may have stopped: a full pipe must not hold up the next request.
    """

    def write() -> None:
        try:
            os.write(2, text.encode())
        except OSError:
            _mute()  # The terminal is gone. That is no reason to stop in disorder.

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    writer.join(SAY_S)


def _mute() -> None:
    """Standard error goes nowhere from now on, and standard output too if it is the same."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if os.path.sameopenfile(1, 2):
        os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _closing_lines(summary: Summary, job: RunningJob) -> list[str]:
    """The report; nothing where there is nothing to report but the error that follows."""
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
    return summary_lines(summary, job.plan, job.spec.ceiling_usd_per_gb, _cost(job, progress))


def _cost(job: RunningJob, progress: Progress) -> JobCost:
    return job_cost(job.ledger, job.plan, progress, job.spec.ceiling_usd_per_gb, time.time())


def follow(args: Namespace, after_dry_run: Callable[[Summary], None] | None = None) -> Follower:
    """A follower as a context: the signals are its own within. `after_dry_run` is called before its last line."""
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
    """Show the job to its end, ask if it waits for a confirmation, and resume it with a yes. Return the exit code.

    Raises UsageError for a no, and the job's TransferError, also where nobody can be asked.
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
        confirm(f"Delete {objects} ({format_bytes(waiting.bytes)}) that the source does not have?")
    return follower.run(job.confirm_deletion(waiting).require_running(), source, destinations)
