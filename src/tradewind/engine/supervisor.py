"""The supervisor of one running job as a pure state machine: events and the time in, actions out. No I/O, no threads.

It stops the job at its ceiling, restarts a lead that died, repeats a drain request that was not answered, and ends the
machines of a lead that does not drain. Events may be lost, late or repeated: decisions depend on the latest known state
and on the time, never on the number of events. `engine.running` carries out the actions.

A lead has a number, its generation: 0 for the first one, one more for each restart. Lines from an earlier generation
are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from tradewind.model.records import dataclass
from tradewind.model.units import BYTES_PER_GB

__all__ = [
    "CEILING_END_S",
    "CEILING_STOP_S",
    "DRAIN_AGAIN_S",
    "DRAIN_END_S",
    "EGRESS_STOP_S",
    "REQUESTS_STOP_S",
    "RESTARTS_MAX",
    "RESTART_END_S",
    "Action",
    "Budget",
    "Drain",
    "DrainAsked",
    "Event",
    "Finish",
    "LeadEnded",
    "LeadSaid",
    "Publish",
    "Restart",
    "RestartFailed",
    "Restarted",
    "Supervisor",
    "Tick",
]

#: Maximum automatic restarts of a job whose lead dies; it resumes from its journal.
RESTARTS_MAX = 2
#: A job is stopped this long before its ceiling: its machines are charged while it drains.
CEILING_STOP_S = 3.0
#: A draining job is ended this long before its ceiling: the next tick may be this late.
CEILING_END_S = 0.5
#: Egress continues for this time after a tick: until the next tick, and until the lead has the order.
EGRESS_STOP_S = 1.0
#: Requests continue for longer: what is in flight then is still written, and counted when it is done.
REQUESTS_STOP_S = 2.0
#: A drain request is repeated if the lead still runs after this time.
DRAIN_AGAIN_S = 5.0
#: A lead that has not ended this long after a drain request is ended with its machines.
DRAIN_END_S = 120.0
#: A restart that takes longer has failed. Machines have 60 s to answer, in clouds where they start slowly up to 600 s,
#: and their predecessors 10 s to end.
RESTART_END_S = 660.0


@dataclass(frozen=True, slots=True)
class LeadSaid:
    """One line of a lead's events, as it came and parsed."""

    generation: int
    line: bytes
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LeadEnded:
    """A lead's events ended; `how` its process ended, in words."""

    generation: int
    how: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """A new lead runs."""

    generation: int


@dataclass(frozen=True, slots=True)
class RestartFailed:
    """No new lead could be started."""

    generation: int
    error: Exception


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """The user requested a stop; the job stays resumable."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = LeadSaid | LeadEnded | Restarted | RestartFailed | DrainAsked | Tick


@dataclass(frozen=True, slots=True)
class Publish:
    """Put a line into the job's event log."""

    line: bytes
    progress: bool = False


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask the lead of a generation to drain."""

    generation: int


@dataclass(frozen=True, slots=True)
class Restart:
    """End all gateways and start them again, with this generation of the lead."""

    generation: int
    how: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The job's run is over: end the machines.

    `done` is the lead's last line, if there was one; otherwise `lost` describes how the lead ended. `error` is why it
    could not be restarted. With `at_once` the machines are ended without waiting, because the ceiling leaves no money
    for them.
    """

    done: Mapping[str, Any] | None = None
    lost: str | None = None
    error: Exception | None = None
    at_once: bool = False


Action = Publish | Drain | Restart | Finish


class Budget(Protocol):
    """A ceiling on the cost of a job, and the cost of the job."""

    @property
    def usd(self) -> float:
        """The ceiling; infinite without one."""
        ...

    @property
    def usd_per_gb_max(self) -> float:
        """Return the egress of one GB over the most expensive route."""
        ...

    @property
    def requests_usd(self) -> float:
        """Cost of the requests of all runs so far."""
        ...

    def spent_usd(self, egress_usd: float, at_s: float) -> float:
        """Return the cost of all runs of the job at a time of the supervisor's clock: egress, machines, requests.

        `egress_usd` is the lead's figure for the egress of all runs.
        """
        ...


class Supervisor:
    """Decides for one running job. `restartable` is false for a run without a journal.

    `mean_usd_per_gb` is the lead's own ceiling on the average price of bytes that are not lost.
    """

    def __init__(
        self, budget: Budget, *, restartable: bool, now_s: float, mean_usd_per_gb: float | None = None
    ) -> None:
        self.state: Literal["running", "restarting", "finished"] = "running"
        self.generation = 0
        self.restarts = 0
        self.over_ceiling = False
        self._budget, self._restartable = budget, restartable
        self._egress_usd = 0.0
        self._mean_usd_per_gb = mean_usd_per_gb
        #: Growth of the egress cost between the last two reports, time of the last one, and cost of the remaining
        #: egress.
        self._egress_usd_per_s, self._reported_at_s, self._left_usd = 0.0, now_s, float("inf")
        self._reported_egress_usd: float | None = None
        self._first_egress_usd = 0.0
        #: Cost of requests at the last report and at the first one, its growth, and the remaining cost.
        self._reported_requests_usd = self._first_requests_usd = 0.0
        self._requests_usd_per_s, self._left_requests_usd = 0.0, float("inf")
        #: Start of the present lead, if known, and the time that it last reported.
        self._began_s, self._reported_s = now_s, 0.0
        self._drain_since_s: float | None = None
        self._drain_asked_s = 0.0
        self._restart_since_s = 0.0

    @property
    def draining(self) -> bool:
        """True if the job is to stop."""
        return self._drain_since_s is not None

    def elapsed_s(self, now_s: float) -> float:
        """Return the running time of the present lead, by the supervisor's clock: its own reports may be late."""
        return max(0.0, now_s - self._began_s)

    def handle(self, event: Event, now_s: float) -> list[Action]:
        """Return the actions for an event. There are none after Finish."""
        if self.state == "finished":
            return []
        actions: list[Action] = []
        if isinstance(event, LeadSaid | LeadEnded | Restarted):
            # Any line of a new lead shows that it runs; it may arrive before the restart is reported.
            self._restarted(event.generation, now_s)
        if isinstance(event, LeadSaid):
            actions += self._said(event, now_s)
        elif isinstance(event, LeadEnded):
            actions += self._ended(event, now_s)
        elif isinstance(event, RestartFailed):
            actions += self._restart_failed(event)
        elif isinstance(event, DrainAsked):
            self._stop(now_s)
        return actions + self._due(now_s)

    def _said(self, event: LeadSaid, now_s: float) -> list[Action]:
        if event.generation != self.generation or self.state != "running":
            return []
        kind = event.document["event"]
        if kind == "done":
            return [self._finish(Finish(done=event.document)), Publish(event.line)]
        if kind != "progress":
            return [Publish(event.line)]
        elapsed_s, egress_usd = float(event.document["elapsed_s"]), float(event.document["cost_usd"])
        self._egress_usd = max(self._egress_usd, egress_usd)
        self._began_s = min(self._began_s, now_s - elapsed_s)
        if elapsed_s < self._reported_s:
            return []  # A later report has already arrived.
        requests_usd = self._budget.requests_usd
        if self._reported_egress_usd is None:
            self._first_egress_usd, self._first_requests_usd = egress_usd, requests_usd
        elif elapsed_s > self._reported_s:
            lasted_s = elapsed_s - self._reported_s
            self._egress_usd_per_s = max(0.0, egress_usd - self._reported_egress_usd) / lasted_s
            self._requests_usd_per_s = max(0.0, requests_usd - self._reported_requests_usd) / lasted_s
        self._reported_requests_usd = requests_usd
        self._left_requests_usd = self._most_left_requests_usd(event.document)
        self._reported_s, self._reported_egress_usd, self._reported_at_s = elapsed_s, egress_usd, now_s
        self._left_usd = self._most_left_usd(event.document)
        return [Publish(event.line, progress=True)]

    def _ended(self, event: LeadEnded, now_s: float) -> list[Action]:
        if event.generation != self.generation or self.state != "running":
            return []
        if not self._restartable or self.draining or self.restarts >= RESTARTS_MAX:
            return [self._finish(Finish(lost=event.how))]
        self.state, self._restart_since_s = "restarting", now_s
        self.restarts += 1
        self.generation += 1
        return [Restart(self.generation, event.how)]

    def _restarted(self, generation: int, now_s: float) -> None:
        if generation == self.generation and self.state == "restarting":
            self.state = "running"
            self._began_s, self._reported_s = now_s, 0.0
            self._reported_egress_usd, self._egress_usd_per_s, self._left_usd = None, 0.0, float("inf")
            self._requests_usd_per_s, self._left_requests_usd = 0.0, float("inf")
            self._drain_asked_s = float("-inf")

    def _restart_failed(self, event: RestartFailed) -> list[Action]:
        if event.generation != self.generation or self.state != "restarting":
            return []
        return [self._finish(Finish(error=event.error))]

    def _stop(self, now_s: float) -> None:
        if self._drain_since_s is None:
            self._drain_since_s, self._drain_asked_s = now_s, float("-inf")

    def _due(self, now_s: float) -> list[Action]:
        """Return the actions that are due by the clock alone."""
        if self.state == "restarting":
            if now_s - self._restart_since_s >= RESTART_END_S:
                return [self._finish(Finish(lost=f"no new lead within {RESTART_END_S:.0f} s"))]
            return []
        if self.state == "finished":
            return []
        if not self.draining and self._nears_ceiling(now_s):
            self.over_ceiling = True
            self._stop(now_s)
        if self._drain_since_s is None:
            return []
        if self._reaches_ceiling(now_s):
            self.over_ceiling = True
            return [self._finish(Finish(lost="it did not drain before its ceiling", at_once=True))]
        if now_s - self._drain_since_s >= DRAIN_END_S:
            return [self._finish(Finish(lost=f"it did not drain within {DRAIN_END_S:.0f} s"))]
        if now_s - self._drain_asked_s < DRAIN_AGAIN_S:
            return []
        self._drain_asked_s = now_s
        return [Drain(self.generation)]

    def _nears_ceiling(self, now_s: float) -> bool:
        """Return whether the cost is close to the ceiling, even if no progress arrives."""
        usd = self._budget.usd
        if usd == float("inf"):
            return False
        silent_s = max(0.0, now_s - self._reported_at_s)
        more_usd = min(self._egress_usd_per_s * (silent_s + EGRESS_STOP_S), self._left_usd)
        more_usd += min(self._requests_usd_per_s * (silent_s + REQUESTS_STOP_S), self._left_requests_usd)
        return self._budget.spent_usd(self._egress_usd + more_usd, now_s + CEILING_STOP_S) >= usd

    def _most_left_usd(self, progress: Mapping[str, Any]) -> float:
        """Return the maximum further cost of egress, by the remaining bytes and the lead's own ceiling."""
        if not progress.get("listed"):
            return float("inf")
        total_gb, done_gb, earlier_gb = (
            float(progress.get(name, 0)) / BYTES_PER_GB for name in ("bytes_total", "bytes_done", "bytes_earlier")
        )
        left_usd = max(0.0, total_gb - done_gb) * self._budget.usd_per_gb_max
        mean = self._mean_usd_per_gb
        if mean is None or progress.get("retries", 0):
            return left_usd  # Lost bytes are sent again, beyond the mean.
        lost_usd = max(0.0, self._first_egress_usd - mean * earlier_gb)
        return min(left_usd, max(0.0, mean * total_gb + lost_usd - self._egress_usd))

    def _most_left_requests_usd(self, progress: Mapping[str, Any]) -> float:
        """Return the maximum further cost of requests, if the rest needs as many per byte and object as this run so
        far.
        """
        if not progress.get("listed"):
            return float("inf")
        part = 0.0
        for what in ("bytes", "objects"):
            total, done, earlier = (
                float(progress.get(name, 0)) for name in (f"{what}_total", f"{what}_done", f"{what}_earlier")
            )
            if total > done:
                part = max(part, (total - done) / (done - earlier) if done > earlier else float("inf"))
        run_usd = self._reported_requests_usd - self._first_requests_usd
        return run_usd * part if part < float("inf") else part

    def _reaches_ceiling(self, now_s: float) -> bool:
        """Return whether a draining job would exceed the ceiling by the cost of its machines alone."""
        usd = self._budget.usd
        if usd == float("inf"):
            return False
        present_usd, soon_usd = (self._budget.spent_usd(self._egress_usd, now_s + s) for s in (0.0, CEILING_END_S))
        return present_usd < soon_usd and soon_usd >= usd

    def _finish(self, finish: Finish) -> Finish:
        self.state = "finished"
        return finish
