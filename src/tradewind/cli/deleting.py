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
    from tradewind.engine.job import Job


def asks_before_deleting(args: Namespace) -> bool:
    """Return whether somebody sits at a terminal who can be asked before `--delete` deletes."""
    silent = args.yes or args.json or args.quiet or args.dry_run or args.detach
    return not silent and _is_terminal()


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
    """Shows the job to its end, asks if it waits for a confirmation, and resumes it with a yes. Returns the exit code.

    Raises UsageError for a no, and the job's TransferError, also where nobody can be asked.
    """
    try:
        return follower.run(job.require_running(), source, destinations, note, begun)
    except JobFailed as failed:
        waiting = job.deletion_to_confirm(failed)
        if waiting is None or not (yes or _is_terminal()):
            raise
    if not yes:
        from tradewind.cli.transferring import confirm

        follower.rest()
        objects = format_count(waiting.objects, "object")
        confirm(f"Delete {objects} ({format_bytes(waiting.bytes)}) that the source does not have?")
    confirmed = Deletion(keys_max=waiting.objects, over_half=True)
    return follower.run(job.resume(deletion=confirmed).require_running(), source, destinations)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
