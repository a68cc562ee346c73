"""The question before `sync --delete` deletes: a job that waits for the answer is resumed with it."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from tradewind.errors import JobFailed
from tradewind.model.job import Deletion
from tradewind.model.units import format_bytes, format_count

if TYPE_CHECKING:
    from tradewind.cli.follow import Follower
    from tradewind.engine.client import Client
    from tradewind.engine.running import RunningJob


def asks_before_deleting(args: Namespace) -> bool:
    """Return whether somebody sits at a terminal who can be asked before `--delete` deletes."""
    silent = args.yes or args.json or args.quiet or args.dry_run or args.detach
    return not silent and _is_terminal()


def run_with_question(
    follower: Follower,
    client: Client,
    job: RunningJob,
    source: str,
    destinations: tuple[str, ...],
    *,
    yes: bool,
    note: str | None = None,
    begun: Callable[[], None] | None = None,
) -> int:
    """Shows the job to its end, asks if it waits for a confirmation, and resumes it with a yes. Returns the exit code.

    Raises UsageError for a no, and the job's TransferError, also where nobody can be asked.
    """
    try:
        return follower.run(job, source, destinations, note, begun)
    except JobFailed as failed:
        waiting = None if failed.summary is None else failed.summary.to_delete
        asked = job.spec.delete is not None and job.spec.delete.ask and not job.spec.dry_run
        if waiting is None or not asked or not (yes or _is_terminal()):
            raise
    if not yes:
        from tradewind.cli.transferring import confirm

        follower.rest()
        objects = format_count(waiting.objects, "object")
        confirm(f"Delete {objects} ({format_bytes(waiting.bytes)}) that the source does not have?")
    confirmed = Deletion(keys_max=waiting.objects, over_half=True)
    return follower.run(client.resume(job.id, deletion=confirmed), source, destinations)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
