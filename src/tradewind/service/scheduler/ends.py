"""When jobs end: by their waits, their runs, and the progress of their runs, as earlier jobs have shown."""

from __future__ import annotations

from tradewind.service.scheduler.eta import Calibration, Eta
from tradewind.service.scheduler.events import RunProgressed
from tradewind.service.scheduler.job_states import OWNED_PHASE, QUEUED_PHASE, RUNNING_PHASE, JobState

__all__ = ["CLOSED", "JobEnds", "run_s", "see_progress"]

PROGRESS_SHARE = 0.05
"""Share of a run after which its end is estimated anew from its progress. A run has at most 20 such
estimates, and none for its last part, which depends on other things than the rate."""
PROGRESS = "progress"
"""Kind of the estimates from progress."""
CLOSED = "closed"
"""Kind of the estimates of jobs whose routes were closed: many begin to wait for their turn at the same time."""


KINDS = (OWNED_PHASE, QUEUED_PHASE, RUNNING_PHASE, PROGRESS, CLOSED)


class JobEnds:
    """The ends of jobs. Each kind of estimate has its own calibration, which learns from the jobs that end."""

    def __init__(self) -> None:
        self._calibrations = {kind: Calibration() for kind in KINDS}

    def of_running(self, state: JobState, now_s: float) -> Eta:
        """Return when a running job ends, by its progress if that is known."""
        if state.seen:
            return self._calibrations[PROGRESS].interval(*state.seen[-1], now_s)
        return self._calibrations[RUNNING_PHASE].interval(*state.runs[-1], now_s)

    def of_waiting(self, state: JobState, now_s: float) -> Eta:
        """Return when a waiting job ends, by its estimate."""
        return self._calibrations[state.estimate_kind].interval(state.since_s, state.estimate_s, now_s)

    def of_closed(self, state: JobState, opens_s: float) -> Eta:
        """Return when a job ends that waits until its route opens. Only then it begins to wait for its turn."""
        return self._calibrations[CLOSED].interval(opens_s, state.estimate_s, opens_s)

    def learn(self, state: JobState, now_s: float) -> None:
        """Learn from a job that is done just now."""
        for started_s, expected_s in state.runs:
            self._calibrations[RUNNING_PHASE].add(expected_s, now_s - started_s)
        for at_s, left_s in state.seen:
            self._calibrations[PROGRESS].add(left_s, now_s - at_s)
        self._calibrations[state.estimate_kind].add(state.estimate_s, now_s - state.since_s)


def see_progress(state: JobState, event: RunProgressed, now_s: float) -> None:
    """Note what a running job has moved, and after each `PROGRESS_SHARE` how long its run would still last."""
    state.moved_bytes = max(state.moved_bytes, event.moved_bytes)
    left = max(0, state.left_bytes - event.moved_bytes) if event.left_bytes is None else event.left_bytes
    took_s = now_s - state.runs[-1][0]
    share = event.moved_bytes / (event.moved_bytes + left) if event.moved_bytes > 0 else 0.0
    if took_s > 0 and state.seen_share + PROGRESS_SHARE <= share <= 1 - PROGRESS_SHARE:
        state.seen_share = share
        state.seen.append((now_s, took_s * left / event.moved_bytes))


def run_s(left_bytes: int, rate_gbps: float) -> float:
    """Return the time of a run, at least a second."""
    return max(left_bytes * 8 / (rate_gbps * 1e9), 1.0)
