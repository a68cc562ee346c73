"""Follows one job from the command line: signals, events, the end."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from types import FrameType

from tradewind.cli.failures import Failures
from tradewind.cli.output import Talk
from tradewind.cli.signals import STOPPING, StopHandlers
from tradewind.errors import Interrupted, TransferError
from tradewind.model.event import Summary, event_from_document
from tradewind.model.job import ObjectSelection
from tradewind.model.units import format_count
from tradewind.transfer.client import RunningJob
from tradewind.transfer.report import plan_lines, summary_lines

#: Signals this close together are one wish to stop: `timeout` and terminals send to the process and to its group.
ONE_WISH_S = 0.3


class Follower(StopHandlers):
    """First SIGINT, SIGTERM or SIGHUP: drain, the job can be resumed. Second: leave now; the journal is safe."""

    def __init__(self, args: Namespace, after_dry_run: Callable[[Summary], None] | None = None) -> None:
        super().__init__()
        self._after_dry_run = after_dry_run
        self._json: bool = args.json
        self._verb: str = args.verb
        self._talk = Talk(quiet=args.quiet or args.json)
        self._job: RunningJob | None = None
        self._interrupts = 0
        self._interrupted_s = 0.0

    def __enter__(self) -> Follower:
        for number in STOPPING:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # The user wants the job to outlive the terminal: nohup.
            self.take(number, self._interrupt)
        return self

    def run(
        self,
        job: RunningJob,
        source: str,
        destinations: tuple[str, ...],
        note: str | None = None,
        begun: Callable[[], None] | None = None,
    ) -> int:
        """Shows the job to its end and returns its exit code. Raises TradewindError for all but a good end.

        `begun` is called when all has been said that there is to say before the start.
        """
        self._job = job
        if self._interrupts:
            job.drain()
        if self._json:
            print(json.dumps({"event": "started", "job_id": job.id}), flush=True)
            if note is not None:
                print(json.dumps({"event": "notice", "message": note}), flush=True)
        if note is not None:
            self._talk.say(f"note: {note}")
        self._talk.say(*plan_lines(self._verb, source, destinations, job.plan, job.spec.ceiling_usd_per_gb))
        if begun is not None:
            begun()
        if isinstance(job.spec.selection, ObjectSelection) and len(job.spec.targets) == 1:
            self._talk.failures = Failures(hold=True)  # The last line will say it.
        try:
            self._follow(job)
        finally:
            self._talk.end(None if job.summary is None else job.summary.message)
            job.close()
        if job.summary is not None and not self._json:
            self._talk.say(*_closing_lines(job.summary, job))
        self._end_dry_run(job)
        if self._json:
            return self._json_end(job)
        job.result()
        return 0

    def _end_dry_run(self, job: RunningJob) -> None:
        """What there is to add to a dry run that went well; a signal then stops at once, for nothing is under way."""
        if job.spec.dry_run and self._after_dry_run and job.summary is not None and job.summary.outcome == "done":
            self._job = None
            self._after_dry_run(job.summary)

    def _follow(self, job: RunningJob) -> None:
        for line in job.lines():
            if self._json:
                if job.summary is None:
                    sys.stdout.write(line.decode())
                    sys.stdout.flush()
                continue
            event = event_from_document(json.loads(line))
            if event is not None and not isinstance(event, Summary):
                self._talk.event(event)

    def _json_end(self, job: RunningJob) -> int:
        """The last line: the summary with job id and exit code."""
        try:
            job.result()
            code = 0
        except TransferError as error:
            code = error.exit_code
            print(f"error: {error}", file=sys.stderr)
            if error.hint:
                print(f"hint: {error.hint}", file=sys.stderr)
        print(json.dumps({**(job.summary_document or {}), "job_id": job.id, "exit_code": code}))
        return code

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._interrupts and now_s - self._interrupted_s < ONE_WISH_S:
            return
        self._interrupted_s = now_s
        self._interrupts += 1
        if self._job is None:
            raise KeyboardInterrupt
        if self._interrupts == 1:
            # Not through the stream object: the signal may have come in the middle of a write to it.
            try:
                os.write(2, b"\nstopping: what is under way is closed or kept for later; once more leaves at once\n")
            except OSError:
                _mute()  # The terminal is gone. That is no reason to stop in disorder.
            # Nor here: the answer comes when all is closed, and until then events are to be read.
            threading.Thread(target=self._job.drain, daemon=True).start()
            return
        job_id, resumable = self._job.id, self._job.spec.state_dir is not None
        self._job.kill()
        raise Interrupted(
            "left at once", hint=f"go on with: tradewind jobs resume {job_id}" if resumable else None, job_id=job_id
        )


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
        return [f"would move {format_count(progress.objects_total, 'object')}; nothing was done"]
    total_usd = job.spent_usd(progress.cost_usd, progress.elapsed_s)
    return summary_lines(summary, job.plan, job.spec.ceiling_usd_per_gb, total_usd)


def follow(args: Namespace, after_dry_run: Callable[[Summary], None] | None = None) -> Follower:
    """A follower as a context: the signals are its own within. `after_dry_run` is called before its last line."""
    return Follower(args, after_dry_run)
