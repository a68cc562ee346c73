"""The spans of jobs: how long each one waited, its runs, and the hops of a run.

All are in the trace of the request that submitted the job, whose `traceparent` is kept with the job. So a job has one
trace, whichever servers work on it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise

from sqlalchemy import select

from tradewind.engine.job import Job
from tradewind.errors import TradewindError
from tradewind.model.event import Progress
from tradewind.model.records import dataclass
from tradewind.service.database import ServiceDatabase
from tradewind.service.limits import TRACE_HOPS_MAX
from tradewind.service.tables import job_events, jobs
from tradewind.service.traces import Attributes, Traces, traceparent

__all__ = ["JobTraces"]

_LOG = logging.getLogger("tradewind.service")
ARROW = " → "
#: Outcomes of a run that are no errors.
GOOD = ("done", "interrupted")


@dataclass
class HopUse:
    """Bytes that a hop carried in a run, and when, in seconds after the start of the run; None if that is not known."""

    bytes: int = 0
    saved_bytes: int = 0
    deduplicated_bytes: int = 0
    from_s: float | None = None
    to_s: float | None = None


class JobTraces:
    """Makes the spans of jobs. A failure is logged, and changes nothing else."""

    def __init__(self, database: ServiceDatabase, traces: Traces) -> None:
        self._database, self._traces = database, traces

    def scheduled(self) -> str:
        """Return the traceparent of a job that a schedule submits now."""
        span = self._traces.begin("schedule", None, {})
        span.end()
        return traceparent(span)

    def moved(self, job_id: str, state: str) -> None:
        """Add the span of a wait, if the job has just left `waiting` for this state."""
        with _harmless(job_id), self._database.read() as connection:
            parent = connection.execute(select(jobs.c.traceparent).where(jobs.c.id == job_id)).scalar()
            if parent is None or state == "waiting":
                return
            query = select(job_events.c.state, job_events.c.at_unix_ms).where(job_events.c.job == job_id)
            latest = connection.execute(query.order_by(job_events.c.number.desc()).limit(4)).all()
            number = next((at for at, row in enumerate(latest) if row.state == state), len(latest))
            if number + 1 >= len(latest) or latest[number + 1].state != "waiting":
                return
            attributes = {"tradewind.job.id": job_id, "tradewind.wait.next_state": state}
            times = latest[number + 1].at_unix_ms, latest[number].at_unix_ms
            self._traces.add("wait", parent, *times, attributes)

    def run_ended(self, job_id: str, parent: str | None, job: Job) -> None:
        """Add the spans of the latest run of a job and of its hops."""
        if parent is None:
            return
        with _harmless(job_id):
            run = job.latest_run()
            if run is None:
                return
            summary = None if job.running is None else job.running.summary
            progress, start_ms = run.progress if summary is None else summary.progress, run.started_unix_ms
            # A killed run has no end: its latest progress is the latest sign of it.
            end_ms = start_ms + round(progress.elapsed_s * 1000) if run.ended_unix_ms is None else run.ended_unix_ms
            outcome = run.outcome or "lost"
            attributes: Attributes = {
                "tradewind.job.id": job_id,
                "tradewind.run.outcome": outcome,
                "tradewind.objects": progress.objects_done - progress.objects_earlier,
                "tradewind.bytes": progress.bytes_done - progress.bytes_earlier,
                "tradewind.retries": progress.retries,
                "tradewind.duplicate_bytes": progress.duplicate_bytes,
            }
            error = None if outcome in GOOD else outcome
            own = self._traces.add("run", parent, start_ms, end_ms, attributes, error=error)
            times = {} if job.running is None else job.running.route_times
            for number, ((start, end), hop) in enumerate(_hops(progress, times)):
                if number == TRACE_HOPS_MAX:
                    break
                self._add_hop(own, job_id, (start, end), hop, start_ms, end_ms)

    def _add_hop(self, run: str, job_id: str, ends: tuple[str, str], hop: HopUse, start_ms: int, end_ms: int) -> None:
        """Add the span of a hop, within the times of its run."""
        from_ms = start_ms if hop.from_s is None else min(end_ms, start_ms + round(hop.from_s * 1000))
        to_ms = end_ms if hop.to_s is None else min(end_ms, start_ms + round(hop.to_s * 1000))
        attributes: Attributes = {
            "tradewind.job.id": job_id,
            "tradewind.hop.from": ends[0],
            "tradewind.hop.to": ends[1],
            "tradewind.bytes": hop.bytes,
            "tradewind.saved_bytes": hop.saved_bytes,
            "tradewind.deduplicated_bytes": hop.deduplicated_bytes,
        }
        self._traces.add("hop", run, from_ms, to_ms, attributes)


def _hops(progress: Progress, times: Mapping[str, tuple[float, float]]) -> Iterator[tuple[tuple[str, str], HopUse]]:
    """Yield each hop of the routes that carried bytes, busiest first. A route within one gateway is one hop."""
    found: dict[tuple[str, str], HopUse] = defaultdict(HopUse)
    for route in progress.hops:
        if route.bytes == 0:
            continue
        stations = route.name.split(ARROW)
        for pair in pairwise(stations) if len(stations) > 1 else [(stations[0], stations[0])]:
            hop = found[pair]
            hop.bytes += route.bytes
            hop.saved_bytes += route.saved_bytes
            hop.deduplicated_bytes += route.deduplicated_bytes
            if route.name in times:
                from_s, to_s = times[route.name]
                hop.from_s = from_s if hop.from_s is None else min(hop.from_s, from_s)
                hop.to_s = to_s if hop.to_s is None else max(hop.to_s, to_s)
    yield from sorted(found.items(), key=lambda item: (-item[1].bytes, item[0]))


@contextmanager
def _harmless(job_id: str) -> Iterator[None]:
    try:
        yield
    except (TradewindError, OSError, ValueError) as error:
        _LOG.warning("traces: job %s: %s", job_id, error)
