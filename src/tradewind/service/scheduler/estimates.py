"""Estimates of when jobs end, corrected for what operators have closed.

A job whose routes are all closed ends after the first one opens, by a ban's end; without an end, nobody knows. When a
route opens, the jobs that waited for it are estimated anew: what they waited says nothing about other jobs. A ban or a
maintenance window that is to come moves the latest end of the jobs that it may hold up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from tradewind.service.scheduler.admission import Admitter
from tradewind.service.scheduler.ends import CLOSED, JobEnds, run_s
from tradewind.service.scheduler.eta import Eta
from tradewind.service.scheduler.job_states import DELAYED_PHASE, OWNED_PHASE, PAUSED_PHASE, QUEUED_PHASE, JobState
from tradewind.service.scheduler.jobs import Resource, ServiceJob, resources_of
from tradewind.service.scheduler.ownership import Ownership
from tradewind.service.scheduler.queues import WaitingQueue
from tradewind.service.scheduler.why import TURN, WaitCause

__all__ = ["Estimates"]

UNKNOWN_GBPS = 1.0
"""Rate of a job without any route [Gbit/s]."""


class Estimates:
    """The estimates of all jobs of a scheduler, whose state it reads. `causes` returns why a job waits."""

    def __init__(
        self,
        jobs: Mapping[str, JobState],
        admitter: Admitter,
        ownership: Ownership,
        queue_of: Callable[[ServiceJob], WaitingQueue],
        causes: Callable[[JobState], Sequence[WaitCause]],
    ) -> None:
        self.ends = JobEnds()
        self._jobs, self._admitter, self._ownership = jobs, admitter, ownership
        self._queue_of, self._causes = queue_of, causes

    def eta(self, state: JobState, now_s: float) -> Eta | None:
        """Return when a job ends; None if that depends on people."""
        if state.phase == PAUSED_PHASE:
            return None
        if state.grant is not None:
            return self._moved_by_bans(self.ends.of_running(state, now_s), state.grant.resources, now_s, stop_only=True)
        opens_s = self._opens_s(state, now_s)
        if math.isinf(opens_s):
            return None
        found = self.ends.of_waiting(state, now_s) if opens_s <= now_s else self.ends.of_closed(state, opens_s)
        bindings = self._admitter.bindings(state.job)
        resources = resources_of(state.job, bindings[0]) if bindings else ()
        return self._moved_by_bans(found, resources, max(now_s, opens_s), stop_only=False)

    def set(self, state: JobState, now_s: float) -> None:
        """Estimate the duration of a job that was just submitted: its delay, the bytes before it, and its own."""
        job, state.estimate_kind = state.job, QUEUED_PHASE
        ahead_bytes = 0
        if state.phase == OWNED_PHASE:
            state.estimate_kind = OWNED_PHASE
            ahead_bytes = self._owned_bytes(state)
        elif state.phase == QUEUED_PHASE:
            ahead_bytes = self._queue_of(job).waiting_bytes - state.left_bytes
        state.since_s = job.submitted_s
        delay_s = max(job.not_before_s - job.submitted_s, 0.0)
        state.estimate_s = delay_s + run_s(ahead_bytes + state.left_bytes, self._rate_gbps(job))

    def refresh(self, now_s: float, may_change: Callable[[ServiceJob], bool] = lambda _: True) -> None:
        """Estimate the waiting jobs anew whose routes were closed or opened just now.

        It may look at the routes of all jobs, because operators do this; for a store that does not answer, `may_change`
        says which jobs use it.
        """
        changed = []
        for state in self._jobs.values():
            if state.phase in (QUEUED_PHASE, OWNED_PHASE) and self._may_change(state, may_change):
                is_closed = self._places_open_s(state, now_s) > now_s
                if is_closed != state.is_closed:
                    state.is_closed = is_closed
                    changed.append(state)
        self.set_anew(changed, now_s)

    def _may_change(self, state: JobState, may_change: Callable[[ServiceJob], bool]) -> bool:
        """Return whether the routes may change of a job, or of the one that writes to its place first."""
        if may_change(state.job) or state.phase != OWNED_PHASE:
            return may_change(state.job)
        return may_change(self._jobs[self._ownership.first_owner(state.job.id)].job)

    def note_closed(self, state: JobState, now_s: float) -> None:
        """Note whether the routes of a job that begins to wait are closed: then `refresh` sees when they open."""
        state.is_closed = self._admitter.may_be_closed and self._places_open_s(state, now_s) > now_s

    def set_anew(self, states: Iterable[JobState], now_s: float) -> None:
        """Estimate jobs that begin to wait now, or when their routes open."""
        until: dict[int, dict[str, int]] = {}
        for state in states:
            if state.phase == QUEUED_PHASE:
                queue = self._queue_of(state.job)
                if queue.number not in until:
                    until[queue.number] = queue.bytes_until()
                total_bytes = until[queue.number][state.job.id]
            else:
                total_bytes = self._owned_bytes(state) + state.left_bytes
            state.since_s, state.runs, state.estimate_kind = now_s, [], CLOSED
            state.estimate_s = run_s(total_bytes, self._rate_gbps(state.job))

    def _opens_s(self, state: JobState, now_s: float) -> float:
        """Return when a route of a job is open, and one of those that it waits for; at most `now_s` if they are."""
        if state.phase == DELAYED_PHASE:
            # The delay is a part of the estimate.
            start_s = max(now_s, state.not_before_s)
            opens_s = self._places_open_s(state, start_s)
            return opens_s if opens_s > start_s else now_s
        opens_s = self._places_open_s(state, now_s)
        if state.phase == QUEUED_PHASE and opens_s <= now_s:
            causes = self._causes(state)
            if all(cause.kind == TURN for cause in causes):
                return min(self._opens_of(cause.subject, now_s) for cause in causes)
        return opens_s

    def _places_open_s(self, state: JobState, now_s: float) -> float:
        """Return when a route of a job is open, and one of the job that writes to its place first."""
        opens_s = self._admitter.opens_s(state.job, state.left_bytes, now_s)
        if state.phase != OWNED_PHASE:
            return opens_s
        owner = self._jobs[self._ownership.first_owner(state.job.id)]
        return opens_s if owner.grant is not None else max(opens_s, self._opens_of(owner.job.id, now_s))

    def _opens_of(self, job_id: str, now_s: float) -> float:
        state = self._jobs.get(job_id)
        return now_s if state is None else self._admitter.opens_s(state.job, state.left_bytes, now_s)

    def _moved_by_bans(self, eta: Eta, resources: Sequence[Resource], now_s: float, *, stop_only: bool) -> Eta | None:
        """Return an end that bans which are to come may delay; None if one of them has no end."""
        latest_s = eta.latest_s
        for ban in self._admitter.bans.coming(resources, now_s):
            if ban.start_s < latest_s and (ban.stops_jobs or not stop_only):
                latest_s += ban.end_s - ban.start_s
        return None if math.isinf(latest_s) else Eta(eta.earliest_s, latest_s)

    def _owned_bytes(self, state: JobState) -> int:
        return sum(self._jobs[one].left_bytes for one in self._ownership.owners(state.job.id))

    def _rate_gbps(self, job: ServiceJob) -> float:
        bindings = self._admitter.bindings(job)
        return min(bindings[0].rate_gbps, job.rate_gbps_max) if bindings else UNKNOWN_GBPS
