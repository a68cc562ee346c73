"""The scheduler with a virtual clock: jobs arrive, run and end as a scenario says, and no time passes outside.

Used by tests, by `python -m benchmarks.service`, and to try limits and weights before they are set.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Collection, Iterable

from tradewind.model.records import dataclass
from tradewind.service.scheduler.events import (
    FailJob,
    JobSubmitted,
    RunEnded,
    RunFailed,
    RunProgressed,
    SchedulerEvent,
    StartJob,
    StopJob,
    TimePassed,
    TuneLink,
)
from tradewind.service.scheduler.jobs import Binder, Binding, ServiceJob
from tradewind.service.scheduler.state import Scheduler

__all__ = ["SimulatedJob", "Simulator"]


@dataclass
class SimulatedJob:
    """The history of a job. Times are seconds; None if that has not happened."""

    job: ServiceJob
    started_s: float | None = None
    ended_s: float | None = None
    runs: int = 0
    binding: Binding | None = None
    rate_gbps: float = 0.0
    failed: bool = False


class Simulator:
    """Runs a scheduler.

    A run takes bytes/rate times a lognormal factor with the standard deviation `noise` of its logarithm; a share
    `failures` of the runs fails at a random point as `transient`. A run reports its progress `reports` times, at equal
    intervals; by the share u of its time it has moved u to the power of another such factor. `observe` is called after
    each event with the time and the jobs that a decision was made about. With `tunes_links` the scheduler tunes the
    links; `tunings` has what it has decided, with the times.
    """

    def __init__(
        self,
        binder: Binder,
        *,
        noise: float = 0.3,
        failures: float = 0.0,
        seed: int = 0,
        reports: int = 0,
        observe: Callable[[float, list[str]], None] | None = None,
        tunes_links: bool = False,
    ) -> None:
        self.scheduler = Scheduler(binder, tunes_links=tunes_links)
        self.tunings: list[tuple[float, TuneLink]] = []
        self.jobs: dict[str, SimulatedJob] = {}
        self.observe = observe
        self._noise, self._failures, self._reports = noise, failures, reports
        self._random = random.Random(seed)
        self._heap: list[tuple[float, int, SchedulerEvent, int]] = []
        self._runs: dict[str, int] = {}
        self._left: dict[str, int] = {}
        self._numbers = 0
        self.now_s = 0.0
        self.events = 0

    @property
    def running(self) -> Collection[str]:
        """The ids of the jobs that run."""
        return self._runs.keys()

    def at(self, at_s: float, event: SchedulerEvent) -> None:
        """Send an event to the scheduler at a time."""
        self._push(at_s, event, 0)

    def submit(self, jobs: Iterable[ServiceJob]) -> None:
        """Submit jobs at their times of submission."""
        for job in jobs:
            self.jobs[job.id] = SimulatedJob(job)
            self._left[job.id] = job.size_bytes
            self.at(job.submitted_s, JobSubmitted(job))

    def run(self, until_s: float = math.inf) -> None:
        """Run until nothing is left to happen, or until a time."""
        while True:
            wakeup_s = self.scheduler.next_wakeup_s()
            next_s = self._heap[0][0] if self._heap else math.inf
            if min(wakeup_s, next_s) > until_s or (next_s == math.inf and wakeup_s == math.inf):
                return
            if wakeup_s < next_s:
                self._handle(wakeup_s, TimePassed())
                continue
            at_s, _, event, run = heapq.heappop(self._heap)
            if not run or self._is_current(event, run):
                self._handle(at_s, event)

    def _push(self, at_s: float, event: SchedulerEvent, run: int) -> None:
        self._numbers += 1
        heapq.heappush(self._heap, (at_s, self._numbers, event, run))

    def _is_current(self, event: SchedulerEvent, number: int) -> bool:
        run = self._runs.get(event.job_id) if isinstance(event, RunEnded | RunFailed | RunProgressed) else None
        return run == number

    def _handle(self, now_s: float, event: SchedulerEvent) -> None:
        self.now_s = now_s
        self.events += 1
        if isinstance(event, RunEnded):
            del self._runs[event.job_id]
            self.jobs[event.job_id].ended_s = now_s
        elif isinstance(event, RunFailed):
            del self._runs[event.job_id]
            self._left[event.job_id] -= event.moved_bytes
        changed = []
        for decision in self.scheduler.handle(now_s, event):
            if isinstance(decision, TuneLink):
                self.tunings.append((now_s, decision))
                continue
            changed.append(decision.job_id)
            if isinstance(decision, StartJob):
                self._start(decision)
            elif isinstance(decision, StopJob):
                self._runs.pop(decision.job_id, None)
            elif isinstance(decision, FailJob):
                self.jobs[decision.job_id].failed = True
        if self.observe:
            self.observe(now_s, changed)

    def _start(self, decision: StartJob) -> None:
        seen = self.jobs[decision.job_id]
        seen.runs += 1
        seen.binding, seen.rate_gbps = decision.binding, decision.rate_gbps
        if seen.started_s is None:
            seen.started_s = self.now_s
        left = self._left[decision.job_id]
        duration_s = max(left * 8 / (decision.rate_gbps * 1e9), 0.001) * self._random.lognormvariate(0, self._noise)
        self._numbers += 1
        number = self._runs[decision.job_id] = self._numbers
        if self._random.random() < self._failures:
            share = self._random.random()
            failed = RunFailed(decision.job_id, "transient", int(left * share))
            self._push(self.now_s + duration_s * share, failed, number)
        else:
            self._push(self.now_s + duration_s, RunEnded(decision.job_id), number)
        power = self._random.lognormvariate(0, self._noise) if self._reports else 1.0
        for report in range(1, self._reports + 1):
            share = report / (self._reports + 1)
            moved_bytes = int(left * share**power)
            self._push(self.now_s + duration_s * share, RunProgressed(decision.job_id, moved_bytes), number)
