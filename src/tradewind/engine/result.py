"""Results of jobs: of one that succeeded, and the errors of all others, in words."""

from __future__ import annotations

from tradewind.errors import ERROR_BY_OUTCOME, CeilingReached, Interrupted, TransferError
from tradewind.model.event import Progress, Summary
from tradewind.model.records import dataclass
from tradewind.model.units import format_count

__all__ = ["OVER_CEILING", "Result", "outcome_error", "resume_hint", "stopped_error"]

OVER_CEILING = "stopped before egress, machines and requests together cost more than the ceiling"
WILDCARD_HINT = "in a place, * matches within a directory and ** across directories; check the name with `tradewind ls`"
#: Outcomes of a lead after which the job can be resumed.
UNFINISHED = ("interrupted", "unavailable", "ceiling")

#: Why objects failed, for outcomes that several objects can share.
_COMMON_REASONS = {
    "some_failed": "",
    "failed": "",
    "unauthorised": ": not authorised",
    "unavailable": ": only temporary errors",
    "mismatch": ": bytes did not match",
}


@dataclass(frozen=True)
class Result:
    """Result of a successful job: its id and the lead's summary."""

    job_id: str
    summary: Summary

    @property
    def progress(self) -> Progress:
        """Final counts."""
        return self.summary.progress

    def __repr__(self) -> str:
        progress = self.progress
        return (
            f"<Result {self.job_id}: {format_count(progress.objects_done, 'object')}, {progress.bytes_done} bytes in "
            f"{progress.elapsed_s:.1f} s, proofs {dict(self.summary.proofs)}>"
        )


def outcome_error(job_id: str, summary: Summary | None, *, over_ceiling: bool, can_be_resumed: bool) -> TransferError:
    """Return the error of a job that did not succeed. `summary` is None if its lead did not report an end."""
    if summary is None:
        kind = CeilingReached if over_ceiling else Interrupted
        return kind(OVER_CEILING if over_ceiling else "interrupted", hint=resume_hint(job_id), job_id=job_id)
    hint = _hint(summary, job_id, can_be_resumed=can_be_resumed)
    if summary.outcome in UNFINISHED and can_be_resumed:
        hint = hint or resume_hint(job_id)
    if summary.outcome == "interrupted" and over_ceiling:
        return CeilingReached(OVER_CEILING, hint=hint, summary=summary, job_id=job_id)
    error = ERROR_BY_OUTCOME[summary.outcome]
    return error(summary.message or _words(summary), hint=hint, summary=summary, job_id=job_id)


def resume_hint(job_id: str) -> str:
    """Return the hint for resuming a job."""
    return f"resume with: tradewind jobs resume {job_id}"


def stopped_error(job_id: str, summary: Summary | None, *, cancelled: bool) -> Interrupted:
    """Return the error of a job that another process cancelled or paused."""
    if cancelled:
        return Interrupted(f"job {job_id} was cancelled; copied objects stay", summary=summary, job_id=job_id)
    return Interrupted(f"job {job_id} is paused", hint=resume_hint(job_id), summary=summary, job_id=job_id)


def _hint(summary: Summary, job_id: str, *, can_be_resumed: bool) -> str | None:
    """Return the gateway's hint, which does not know the job's id. A wildcard in a missing source has its own."""
    if summary.outcome == "source_not_found" and "*" in (summary.message or ""):
        return WILDCARD_HINT
    if summary.hint is None:
        return None
    hint = summary.hint
    if not can_be_resumed:
        return hint.replace("run `tradewind jobs resume`", "run the command again")
    for action in ("resume", "cancel"):
        hint = hint.replace(f"`tradewind jobs {action}`", f"`tradewind jobs {action} {job_id}`")
    return hint


def _words(summary: Summary) -> str:
    progress = summary.progress
    if summary.objects_not_deleted and not progress.objects_failed:
        return f"{format_count(summary.objects_not_deleted, 'object')} could not be deleted"
    if progress.objects_failed and summary.outcome in _COMMON_REASONS:
        failed = f"{progress.objects_failed} of {format_count(progress.objects_total, 'object')} failed"
        return failed + _COMMON_REASONS[summary.outcome]
    return summary.outcome.replace("_", " ")
