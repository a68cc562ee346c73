"""The deadline of a job: whether the job has kept it."""

from __future__ import annotations

from typing import Any

from tradewind.errors import DeadlineMissed
from tradewind.model.event import Summary
from tradewind.model.records import dataclass
from tradewind.model.units import format_duration

__all__ = ["JobDeadline", "deadline_lines"]


@dataclass(frozen=True, slots=True)
class JobDeadline:
    """A deadline, and the time from the start of the job to the end of its latest run, over all its runs [s].

    `took_s` is None while the end is not known. The end of machines does not count, only that of the transfer.
    """

    seconds: float
    took_s: float | None = None

    @property
    def late_s(self) -> float:
        """Time from the deadline to the end of the job; 0 for a job that has kept it."""
        return 0.0 if self.took_s is None else max(0.0, self.took_s - self.seconds)

    @property
    def late_text(self) -> str | None:
        """The message of a job that is done, but late; None for one that has kept its deadline."""
        if not self.late_s:
            return None
        late, limit = format_duration(self.late_s), format_duration(self.seconds)
        return f"the job ended {late} after its deadline of {limit}; everything is done"

    def document(self) -> dict[str, Any]:
        """Return the document for `--json`; `kept` is None while the end is not known."""
        kept = None if self.took_s is None else self.late_s == 0
        return {"deadline_s": self.seconds, "took_s": self.took_s, "kept": kept}

    def require_kept(self, job_id: str, summary: Summary) -> None:
        """Raise DeadlineMissed for a job that is done, but ended late."""
        if self.late_text is not None:
            raise DeadlineMissed(self.late_text, summary=summary, job_id=job_id)

    def __str__(self) -> str:
        limit = format_duration(self.seconds)
        if self.took_s is None:
            return f"deadline of {limit}"
        if self.late_s:
            return f"{format_duration(self.late_s)} after the deadline of {limit}"
        return f"within the deadline of {limit}"


def deadline_lines(deadline: JobDeadline | None) -> list[str]:
    """Return the line of a report; none without a deadline."""
    return [] if deadline is None else [f"goal    {deadline}"]
