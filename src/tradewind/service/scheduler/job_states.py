"""The state of a job that has not ended, as the scheduler knows it."""

from __future__ import annotations

from tradewind.model.records import dataclass, field
from tradewind.service.scheduler.admission import Grant
from tradewind.service.scheduler.jobs import Resource, ServiceJob

__all__ = [
    "DELAYED_PHASE",
    "OWNED_PHASE",
    "PAUSED_PHASE",
    "QUEUED_PHASE",
    "RUNNING_PHASE",
    "RUNS_MAX",
    "JobState",
]

RUNS_MAX = 20
"""Latest runs of a job, besides the current one, that later estimates learn from."""
DELAYED_PHASE, OWNED_PHASE, PAUSED_PHASE, QUEUED_PHASE, RUNNING_PHASE = (
    "delayed",
    "owned",
    "paused",
    "queued",
    "running",
)


@dataclass
class JobState:
    """The state of a job that has not ended. `runs` has start and estimated duration in seconds.

    `seen` has times in the current run, and how long it would still last by its progress until then [s].
    `counted_bytes` of the current run count for its links, None if it was restored just now; `is_moving` says that it
    has moved some; `requests` are the latest that its gateways had in flight, see `RunProgressed`. The job ends
    `estimate_s` after `since_s`, which is its submission, or when its routes were closed or
    opened, as `is_closed` says.
    """

    job: ServiceJob
    number: int
    left_bytes: int
    phase: str = QUEUED_PHASE
    not_before_s: float = 0.0
    failure: str = ""
    failures: dict[str, int] = field(default_factory=dict)
    grant: Grant | None = None
    moved_bytes: int = 0
    charged: list[Resource] = field(default_factory=list)
    runs: list[tuple[float, float]] = field(default_factory=list)
    seen: list[tuple[float, float]] = field(default_factory=list)
    seen_share: float = 0.0
    counted_bytes: int | None = 0
    is_moving: bool = False
    requests: tuple[float | None, float | None] | None = None
    since_s: float = 0.0
    is_closed: bool = False
    estimate_s: float = 0.0
    estimate_kind: str = ""
